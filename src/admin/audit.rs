//! The audit log: a line of the process log for each change that a caller with a token of `write`
//! asks for, made or not, and an event for the readers of `/v1/events`. Keys are named by their
//! fingerprints, never by their text.
//!
//! Callers that may change nothing get at most one line a second, and no event.

use http::StatusCode;
use serde::Serialize;
use strum::IntoStaticStr;

use super::AdminState;
use super::auth::Actor;
use super::events::written;
use super::json::Rfc3339;
use crate::clock::Timestamp;
use crate::limiter::Fingerprint;
use crate::net::peer_address::PeerAddress;
use crate::proxy::inspect::key_state::rfc_3339;
use crate::telemetry::metrics::{AdminRefusal, AdminStream};

/// The longest path in a line, in bytes.
const MAX_PATH: usize = 200;

/// A change that a caller asks for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Change<'a> {
    pub(super) action: Action,
    pub(super) target: Target<'a>,
    pub(super) extent: Extent,
    /// The caller's reason.
    pub(super) reason: Option<&'a str>,
    pub(super) dry_run: bool,
}

/// The kind of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub(super) enum Action {
    Reset,
    Grant,
    Ban,
    Unban,
    Mode,
    Drain,
    Undrain,
    Readmit,
    /// An unban, or a grant of 0 units, by the id of the key. Audited as these unless it is rejected.
    Revoke,
}

/// The extent of a grant or a ban; nothing for other changes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Extent {
    /// Granted units.
    pub(super) units: Option<u32>,
    /// The end.
    pub(super) until: Option<Timestamp>,
    /// The length of a ban, in seconds.
    pub(super) for_s: Option<f64>,
}

/// The thing that changes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Target<'a> {
    /// A key's bucket, or its ban.
    Key { policy: &'a str, key: Fingerprint },
    /// A policy as a whole.
    Policy(&'a str),
    /// An endpoint of an upstream.
    Endpoint {
        upstream: &'a str,
        endpoint: &'a str,
    },
    /// The path of a request that names nothing that could change.
    Path(&'a str),
}

/// A change, as readers of events see it. The address of the caller is in the log only.
#[derive(Serialize)]
struct ChangeEvent<'a> {
    at: Rfc3339,
    action: &'static str,
    policy: Option<&'a str>,
    key_id: Option<&'a str>,
    upstream: Option<&'a str>,
    endpoint: Option<&'a str>,
    path: Option<&'a str>,
    units: Option<u32>,
    until: Option<&'a str>,
    for_s: Option<f64>,
    actor: &'a str,
    reason: Option<&'a str>,
    dry_run: bool,
    result: &'a str,
}

/// Logs a change with its `result`: a word such as `applied`, or the reason why not.
pub(super) fn log(state: &AdminState, actor: &Actor, change: &Change<'_>, result: &str) {
    let Change {
        action,
        target,
        extent: Extent {
            units,
            until,
            for_s,
        },
        reason,
        dry_run,
    } = *change;
    let (mut policy, mut key, mut upstream, mut endpoint, mut path) = Default::default();
    match target {
        Target::Key {
            policy: name,
            key: id,
        } => (policy, key) = (Some(name), Some(key_id(id))),
        Target::Policy(name) => policy = Some(name),
        Target::Endpoint {
            upstream: name,
            endpoint: label,
        } => (upstream, endpoint) = (Some(name), Some(label)),
        Target::Path(text) => path = Some(text),
    }
    let action: &'static str = action.into();
    let until = until.map(rfc_3339);
    let (actor, peer) = (actor.to_string(), actor.peer);
    let event = ChangeEvent {
        at: Rfc3339(state.clock.now()),
        action,
        policy,
        key_id: key.as_deref(),
        upstream,
        endpoint,
        path,
        units,
        until: until.as_deref(),
        for_s,
        actor: &actor,
        reason,
        dry_run,
        result,
    };
    let event = written("change", &event).into();
    match (dry_run, target) {
        // What changes nothing need not be known later.
        (true, _) | (_, Target::Path(_)) => state.streams.send(AdminStream::Events, &event),
        _ => state.streams.tell(&event, state.clock.now()),
    }
    tracing::info!(
        target: "audit",
        action,
        policy,
        key,
        upstream,
        endpoint,
        path,
        units,
        until,
        for_s,
        actor,
        %peer,
        reason,
        dry_run,
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
        action,
        target: Target::Path(&path[..end]),
        extent: Extent::default(),
        reason: None,
        dry_run: false,
    };
    log(state, actor, &change, &status.to_string());
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

/// The result of a change that may have been made before.
pub(super) fn applied(is_changed: bool) -> &'static str {
    match is_changed {
        true => "applied",
        false => "unchanged",
    }
}

/// The name of a key in logs and answers.
pub(super) fn key_id(key: Fingerprint) -> String {
    key.to_string()
}
