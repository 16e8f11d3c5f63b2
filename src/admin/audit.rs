//! The audit log: a line of the process log for each change that a caller asks for, and an event for
//! the readers of `/v1/events`. Keys are named by their fingerprints, never by their text.

use serde::Serialize;
use strum::IntoStaticStr;

use super::AdminState;
use super::auth::Actor;
use super::events::written;
use super::json::Rfc3339;
use crate::limiter::Fingerprint;
use crate::telemetry::metrics::AdminStream;

/// A change that a caller asks for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Change<'a> {
    pub(super) action: Action,
    pub(super) target: Target<'a>,
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
        reason,
        dry_run,
    } = *change;
    let (policy, key, upstream, endpoint) = match target {
        Target::Key { policy, key } => (Some(policy), Some(key), None, None),
        Target::Policy(policy) => (Some(policy), None, None, None),
        Target::Endpoint { upstream, endpoint } => (None, None, Some(upstream), Some(endpoint)),
    };
    let action: &'static str = action.into();
    let key = key.map(key_id);
    let (actor, peer) = (actor.to_string(), actor.peer);
    let event = ChangeEvent {
        at: Rfc3339(state.clock.now()),
        action,
        policy,
        key_id: key.as_deref(),
        upstream,
        endpoint,
        actor: &actor,
        reason,
        dry_run,
        result,
    };
    let event = written("change", &event).into();
    state.streams.send(AdminStream::Events, &event);
    tracing::info!(
        target: "audit",
        action,
        policy,
        key,
        upstream,
        endpoint,
        actor,
        %peer,
        reason,
        dry_run,
        result,
    );
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
