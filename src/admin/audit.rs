//! The audit log: a line of the process log for each change that a caller with a token of `write`
//! asks for, made or not, and an event for the readers of `/v1/events`. In the log, keys are named by
//! their fingerprints, never by their text.
//!
//! Callers that may change nothing get at most one line a second, and no event.

use http::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;
use strum::IntoStaticStr;

use super::actor::Actor;
use super::json::Rfc3339;
use super::keys::owner::KeyOwner;
use super::state::AdminState;
use super::streams::readers::message;
use crate::net::peer_address::PeerAddress;
use crate::telemetry::metrics::{AdminRefusal, AdminStream};

/// The longest path in a line, in bytes.
const MAX_PATH: usize = 200;

/// A change that a caller asks for.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub(super) struct Change<'a> {
    /// The kind of the change.
    pub(super) action: Action,
    /// The policy that changes.
    pub(super) policy: Option<&'a str>,
    /// The key that changes.
    pub(super) key_id: Option<String>,
    /// The text of the key, and who uses it. The log has no such text.
    #[serde(flatten)]
    pub(super) owner: KeyOwner,
    /// The upstream that changes.
    pub(super) upstream: Option<&'a str>,
    /// The endpoint that changes.
    pub(super) endpoint: Option<&'a str>,
    /// The path of a request that is malformed, or names nothing that could change: up to 200 bytes.
    /// Nothing else is then known of the change.
    pub(super) path: Option<&'a str>,
    /// The units of a grant.
    pub(super) units: Option<u32>,
    /// The end of a grant or a ban.
    #[schemars(extend("format" = "date-time"))]
    pub(super) until: Option<String>,
    /// The length of a ban, in seconds.
    pub(super) for_s: Option<f64>,
    /// The reason of the caller.
    pub(super) reason: Option<&'a str>,
    /// True if nothing was to change.
    pub(super) dry_run: bool,
}

/// The kind of a change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema, IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub(super) enum Action {
    /// The bucket of a key becomes full.
    #[default]
    Reset,
    /// A key gets units beyond its quota.
    Grant,
    /// A key is banned.
    Ban,
    /// The bans of a key end.
    Unban,
    /// A policy gets another mode.
    Mode,
    /// An endpoint gets no new requests.
    Drain,
    /// An endpoint gets requests again.
    Undrain,
    /// The ejections of an endpoint's addresses end.
    Readmit,
    /// An unban, or a grant of 0 units, by the id of the key. Audited as these unless it is rejected.
    Revoke,
}

/// A change, made or not. The address of the caller is in the log only.
#[derive(Serialize, JsonSchema)]
pub(super) struct ChangeEvent<'a> {
    at: Rfc3339,
    #[serde(flatten)]
    change: Change<'a>,
    /// Role and place of the token of the caller.
    actor: String,
    /// `applied`; `unchanged`; `dry_run` if nothing was to change; the modes before and after, as in
    /// `enforce to shadow`; or the reason why nothing changed, which is the status of the answer if
    /// there is a `path`.
    result: &'a str,
}

impl<'a> Change<'a> {
    /// A change of nothing so far.
    pub(super) fn new(action: Action, reason: Option<&'a str>) -> Self {
        Self {
            action,
            reason,
            ..Self::default()
        }
    }
}

/// Logs a change with its `result`: a word such as `applied`, or the reason why not.
pub(super) fn log(state: &AdminState, actor: &Actor, change: Change<'_>, result: &str) {
    let event = ChangeEvent {
        at: Rfc3339(state.clock.now()),
        change,
        actor: actor.to_string(),
        result,
    };
    let told = message("change", &event);
    let change = event.change;
    if change.dry_run || change.path.is_some() {
        // What changes nothing need not be known later.
        state.streams.send(AdminStream::Events, &told.into());
    } else {
        state.streams.tell(told, event.at.0);
    }
    tracing::info!(
        target: "audit",
        action = <&str>::from(change.action),
        policy = change.policy,
        key = change.key_id,
        upstream = change.upstream,
        endpoint = change.endpoint,
        path = change.path,
        units = change.units,
        until = change.until,
        for_s = change.for_s,
        actor = event.actor,
        peer = %actor.peer,
        reason = change.reason,
        dry_run = change.dry_run,
        result,
    );
}

/// Logs a request for a change that is malformed, or names nothing that could change. The line has
/// no text of its body, which may have a key.
pub(super) fn log_rejected(
    state: &AdminState,
    actor: &Actor,
    (action, path): (Action, &str),
    status: StatusCode,
) {
    let end = path.floor_char_boundary(MAX_PATH);
    let change = Change {
        path: Some(&path[..end]),
        ..Change::new(action, None)
    };
    log(state, actor, change, &status.to_string());
}

/// Logs a change that a caller asks for which may change nothing. A flood of them is one line a
/// second: nobody needs a token for it.
pub(super) fn log_refused(
    state: &AdminState,
    action: Action,
    peer: PeerAddress,
    refusal: AdminRefusal,
) {
    let Some(omitted) = state.refused_changes.admit(state.clock.now()) else {
        return;
    };
    let (action, result): (&str, &str) = (action.into(), refusal.into());
    tracing::info!(target: "audit", action, %peer, result, omitted);
}

/// The result of a change that is a dry run, or may have been made before.
pub(super) fn result(dry_run: bool, is_changed: bool) -> &'static str {
    match (dry_run, is_changed) {
        (true, _) => "dry_run",
        (false, true) => "applied",
        (false, false) => "unchanged",
    }
}
