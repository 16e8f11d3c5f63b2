//! Events of the running process: refusals (a sample), bans, reloads, ejections of addresses,
//! and changes by operators.
//!
//! Only changes go through the audit log to the stream at once. The rest is found once a second, as
//! the difference to the second before. Refusals are found while somebody reads, the others always.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use schemars::JsonSchema;
use serde::Serialize;

use super::json::Rfc3339;
use super::keys::owner::KeyOwner;
use super::policies;
use super::state::AdminState;
use super::streams::readers::message;
use crate::clock::Timestamp;
use crate::proxy::Ruleset;
use crate::proxy::activity::RefusalSample;
use crate::telemetry::access_log::KeyForm;
use crate::upstream::HostState;

/// The most refusals of a second.
const MAX_REFUSALS: usize = 20;
/// The most events of another kind in a second.
const MAX_EVENTS: usize = 50;

/// Finds events by comparing with the second before.
#[derive(Default)]
pub(super) struct EventSource {
    /// The number of reloads before the last look.
    reloads: u64,
    /// The states of addresses, by upstream and address.
    hosts: HashMap<(Arc<str>, String), HostState>,
    /// True if events had texts of keys at the last look.
    has_texts: bool,
    /// True if refusals were read at the last look.
    has_readers: bool,
}

/// A refused request.
#[derive(Serialize, JsonSchema)]
pub(super) struct RefusalEvent {
    #[serde(flatten)]
    sample: RefusalSample,
    /// The text of the key, and who uses it.
    #[serde(flatten)]
    owner: KeyOwner,
}

/// A ban by a penalty.
#[derive(Serialize, JsonSchema)]
pub(super) struct BanEvent {
    at: Rfc3339,
    /// The policy with the penalty.
    policy: Arc<str>,
    /// Null if machines share the ban: there the key has another name.
    key_id: Option<String>,
    /// The text of the key, and who uses it.
    #[serde(flatten)]
    owner: KeyOwner,
    /// The end of the ban.
    until: Rfc3339,
}

/// An address that gets no more requests, or gets them again.
#[derive(Serialize, JsonSchema)]
pub(super) struct EjectionEvent {
    at: Rfc3339,
    /// The upstream.
    upstream: Arc<str>,
    /// The address.
    address: String,
    /// Its state from now on.
    state: HostState,
    /// The reason for an ejection.
    reason: Option<&'static str>,
    /// The state and the reason, in the words that follow "is".
    text: String,
}

impl EventSource {
    /// Tells the bans, ejections and reloads since the last call.
    pub(super) fn tell_new(&mut self, state: &AdminState) {
        let (ruleset, now) = (state.gateway.ruleset(), state.clock.now());
        let has_texts = state.gateway.activity.key_form() == KeyForm::Readable;
        if std::mem::replace(&mut self.has_texts, has_texts) && !has_texts {
            state.history.events.lock().forget_keys();
        }
        let mut text = String::new();
        let (all, reloads) = state.reloads.after(self.reloads);
        self.reloads = all;
        // A key that was banned in the last second may not be known otherwise.
        state.gateway.activity.collect(now);
        self.ejections(&ruleset, now, &mut text);
        bans(state, &ruleset, now, &mut text);
        for reload in reloads {
            text += &message("reload", &reload);
        }
        if !text.is_empty() {
            state.streams.tell(text, now);
        }
    }

    /// A sample of the refusals since the last call; `None` if there are none, at the first call, and
    /// without readers.
    pub(super) fn refusals(&mut self, state: &AdminState, has_readers: bool) -> Option<Bytes> {
        let had_readers = std::mem::replace(&mut self.has_readers, has_readers);
        let mut text = String::new();
        if has_readers {
            refusals(state, state.clock.now(), &mut text);
        }
        (had_readers && !text.is_empty()).then(|| text.into())
    }

    /// The addresses that have begun or ceased to get requests.
    fn ejections(&mut self, ruleset: &Ruleset, now: Timestamp, text: &mut String) {
        let mut hosts = HashMap::new();
        let mut room = MAX_EVENTS;
        for upstream in &ruleset.upstreams {
            let endpoints = upstream.status();
            for host in endpoints.into_iter().flat_map(|endpoint| endpoint.hosts) {
                let (state, reason) = (host.state, host.reason);
                let id = (Arc::clone(upstream.name()), host.address);
                let before = self.hosts.get(&id).copied();
                if before.unwrap_or(HostState::Available) != state && room > 0 {
                    room -= 1;
                    let event = EjectionEvent {
                        at: Rfc3339(now),
                        upstream: Arc::clone(&id.0),
                        address: id.1.clone(),
                        state,
                        reason,
                        text: host.text,
                    };
                    *text += &message("ejection", &event);
                }
                hosts.insert(id, state);
            }
        }
        self.hosts = hosts;
    }
}

/// Bans that penalties of this machine made.
fn bans(state: &AdminState, ruleset: &Ruleset, now: Timestamp, text: &mut String) {
    let bans = ruleset.policies.iter().flat_map(|policy| {
        policy.penalties.iter().flat_map(move |penalties| {
            let recent = penalties.take_recent().into_iter();
            recent.map(move |(key, until)| BanEvent {
                at: Rfc3339(now),
                policy: Arc::clone(&policy.name),
                key_id: (!penalties.is_shared()).then(|| key.to_string()),
                owner: KeyOwner::find(&state.gateway, policy, key),
                until: Rfc3339(until),
            })
        })
    });
    for event in bans.take(MAX_EVENTS) {
        *text += &message("ban", &event);
    }
}

fn refusals(state: &AdminState, now: Timestamp, text: &mut String) {
    let mut samples = state.gateway.activity.take_samples(now);
    let beyond = samples.taken.len().saturating_sub(MAX_REFUSALS);
    let mut omitted = samples.omitted + beyond as u64;
    samples.taken.truncate(MAX_REFUSALS);
    let ruleset = state.gateway.ruleset();
    for mut sample in samples.taken {
        sample.omitted = std::mem::take(&mut omitted);
        let id = sample.key_id.as_deref().and_then(|id| id.parse().ok());
        let policy = policies::find(&ruleset, &sample.policy).ok();
        let owner = policy.zip(id);
        let owner = owner.map(|(policy, id)| KeyOwner::find(&state.gateway, policy, id));
        let owner = owner.unwrap_or_default();
        *text += &message("refusal", &RefusalEvent { sample, owner });
    }
}
