//! The state of the process at a glance, and its problems.

use axum::extract::State;
use serde::Serialize;

use super::AdminState;
use super::json::{Json, Rfc3339};
use super::policies::granted_keys;
use super::problems::problems;
use super::reload_history::ReloadResult;
use crate::clock::Timestamp;
use crate::proxy::Ruleset;
use crate::proxy::inspect::key_state::rfc_3339;
use crate::server::ConnectionPressure;
use crate::store::redis::client::State as RedisState;

/// The constants of the process.
#[derive(Clone, Copy, Debug)]
pub struct ProcessFacts {
    /// The version of the program.
    pub version: &'static str,
    /// The commit that the program was built from.
    pub revision: &'static str,
    /// The number of worker threads.
    pub workers: usize,
    /// The start of the process.
    pub started_at: Timestamp,
}

#[derive(Serialize)]
pub(super) struct Status {
    version: &'static str,
    revision: &'static str,
    pid: u32,
    started_at: Rfc3339,
    uptime_s: u64,
    phase: &'static str,
    workers: usize,
    ruleset: RulesetStatus,
    last_reload: Option<ReloadStatus>,
    stores: Vec<StoreStatus>,
    connections: ConnectionCounts,
    problems: Vec<String>,
    notes: Vec<String>,
}

#[derive(Serialize)]
struct RulesetStatus {
    hash: String,
    loaded_at: Rfc3339,
}

#[derive(Serialize)]
struct ReloadStatus {
    at: Rfc3339,
    result: ReloadResult,
    error: Option<String>,
}

/// A store of buckets.
#[derive(Serialize)]
struct StoreStatus {
    name: &'static str,
    state: &'static str,
    /// The reason why it is down.
    detail: Option<String>,
}

/// Connections of clients.
#[derive(Serialize)]
struct ConnectionCounts {
    open: usize,
    max: usize,
}

pub(super) async fn status(State(state): State<AdminState>) -> Json<Status> {
    let (ruleset, now) = (state.gateway.ruleset(), state.clock.now());
    let (running, last_reload) = (state.reloads.running(), state.reloads.last());
    let pressure = state.readiness.pressure();
    let facts = &state.facts;
    Json(Status {
        version: facts.version,
        revision: facts.revision,
        pid: std::process::id(),
        started_at: Rfc3339(facts.started_at),
        uptime_s: now.since(facts.started_at).as_secs(),
        phase: state.readiness.get().as_str(),
        workers: facts.workers,
        ruleset: RulesetStatus {
            hash: running.hash,
            loaded_at: Rfc3339(running.loaded_at),
        },
        notes: set_modes(&ruleset)
            .chain(grants(&ruleset, now))
            .chain(drained_endpoints(&ruleset))
            .collect(),
        problems: problems(&state, &ruleset),
        last_reload: last_reload.map(|reload| ReloadStatus {
            at: Rfc3339(reload.at),
            result: reload.result,
            error: reload.error.map(|error| error.to_string()),
        }),
        stores: stores(&ruleset),
        connections: ConnectionCounts {
            open: pressure.map_or(0, ConnectionPressure::open),
            max: pressure.map_or(0, ConnectionPressure::max),
        },
    })
}

fn stores(ruleset: &Ruleset) -> Vec<StoreStatus> {
    let memory = StoreStatus {
        name: "memory",
        state: "up",
        detail: None,
    };
    let redis = ruleset.store.redis().map(|store| {
        let state = store.state();
        StoreStatus {
            name: "redis",
            state: match state {
                RedisState::Starting => "starting",
                RedisState::Up => "up",
                RedisState::Down { .. } => "down",
            },
            detail: matches!(state, RedisState::Down { .. }).then(|| state.to_string()),
        }
    });
    [memory].into_iter().chain(redis).collect()
}

/// The policies whose mode an operator has set.
fn set_modes(ruleset: &Ruleset) -> impl Iterator<Item = String> {
    ruleset.policies.iter().filter_map(|policy| {
        let change = policy.mode.change()?;
        let (name, at) = (&policy.name, rfc_3339(change.at));
        let [mode, configured] =
            [policy.mode.current(), policy.mode.configured()].map(|mode| mode.as_str());
        let effect = match policy.mode.current().can_refuse() {
            true => "it refuses requests of all keys",
            false => "it refuses nothing",
        };
        let percent = policy.mode.configured().percent();
        let percent = percent.map_or_else(String::new, |percent| format!(" for {percent} %"));
        let reason = change.reason.filter(|reason| !reason.is_empty());
        let reason = reason.map_or_else(String::new, |reason| format!(". Reason: {reason}"));
        Some(format!(
            "policy {name} is in mode {mode}, set by an operator at {at}: {effect}. The \
             configuration has {configured}{percent}{reason}"
        ))
    })
}

/// Notes on the policies with granted keys.
fn grants(ruleset: &Ruleset, now: Timestamp) -> impl Iterator<Item = String> {
    ruleset.policies.iter().filter_map(move |policy| {
        let (name, keys) = (&policy.name, granted_keys(policy, now));
        match keys {
            0 => None,
            1 => Some(format!("policy {name}: a key has a grant by an operator")),
            keys => Some(format!(
                "policy {name}: {keys} keys have a grant by an operator"
            )),
        }
    })
}

/// Notes on the endpoints that an operator drains.
fn drained_endpoints(ruleset: &Ruleset) -> impl Iterator<Item = String> {
    ruleset.upstreams.iter().flat_map(|upstream| {
        let endpoints = upstream.endpoints().iter();
        let drained = endpoints.filter(|endpoint| endpoint.is_draining());
        drained.map(|endpoint| {
            let (name, endpoint) = (upstream.name(), endpoint.label());
            format!(
                "upstream {name}: {endpoint} is drained by an operator and gets no new requests"
            )
        })
    })
}
