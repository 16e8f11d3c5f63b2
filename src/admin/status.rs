//! The state of the process at a glance, and its problems.

use std::borrow::Cow;

use axum::extract::State;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::json::{Json, Rfc3339};
use super::problem::Problem;
use super::problems::{problems, texts};
use super::readiness::{Connections, Phase};
use super::reload_history::ReloadResult;
use super::state::AdminState;
use super::totals::{RecentTraffic, Totals};
use crate::clock::Timestamp;
use crate::proxy::Ruleset;
use crate::proxy::inspect::key_state::rfc_3339;
use crate::store::OperatorActionKind;
use crate::store::redis::client::{FaultKind, State as RedisState};

/// The state of the process.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Status {
    /// The version of the program.
    pub version: Cow<'static, str>,
    /// The commit of the build.
    pub revision: Cow<'static, str>,
    /// The id of the process.
    pub pid: u32,
    /// The start of the process.
    pub started_at: Rfc3339,
    /// Seconds since the start.
    pub uptime_s: u64,
    /// The phase of the process.
    pub phase: Phase,
    /// Threads that serve requests.
    pub workers: usize,
    /// The ruleset in force.
    pub ruleset: RunningRuleset,
    /// The last reload, if there was one.
    pub last_reload: Option<LastReload>,
    /// The stores of buckets.
    pub stores: Vec<StoreStatus>,
    /// Connections of clients.
    pub connections: Connections,
    /// Requests over the last 10 to 20 s. Null in the first 10 s after the start.
    pub recent: Option<RecentTraffic>,
    /// Things that an operator has to look at, most urgent first.
    pub problems: Vec<String>,
    /// The same, with their severity and what to do.
    #[serde(default)]
    pub problem_details: Vec<Problem>,
    /// Things that an operator has set and may forget: a sentence for each policy whose mode differs
    /// from the configuration, with the instant and the reason, for each policy with granted keys,
    /// and for each drained endpoint. They are no problems.
    pub notes: Vec<String>,
}

/// The ruleset in force.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct RunningRuleset {
    /// A hash of the configuration's text.
    pub hash: String,
    /// The instant since which it runs.
    pub loaded_at: Rfc3339,
}

/// The last reload.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct LastReload {
    /// The instant at which it ended.
    pub at: Rfc3339,
    /// Its result.
    pub result: ReloadResult,
    /// The reason why it failed.
    pub error: Option<String>,
}

/// A store of buckets.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct StoreStatus {
    /// The store: `memory` or `redis`.
    pub name: Cow<'static, str>,
    /// Its state.
    pub state: StoreState,
    /// The reason why it is down, or that some calls of the last minute got no place.
    pub detail: Option<String>,
}

/// The state of a store.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, strum::IntoStaticStr,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum StoreState {
    /// It answers.
    Up,
    /// It has not been reached yet.
    Starting,
    /// It does not answer.
    Down,
}

pub(super) async fn status(State(state): State<AdminState>) -> Json<Status> {
    let (ruleset, now) = (state.gateway.ruleset(), state.clock.now());
    let (running, last_reload) = (state.reloads.running(), state.reloads.last());
    let facts = &state.facts;
    let problem_details = problems(&state, &ruleset);
    Json(Status {
        version: facts.version.into(),
        revision: facts.revision.into(),
        pid: std::process::id(),
        started_at: Rfc3339(facts.started_at),
        uptime_s: facts.started.elapsed().as_secs(),
        phase: state.readiness.get(),
        workers: facts.workers,
        ruleset: RunningRuleset {
            hash: running.info.hash,
            loaded_at: Rfc3339(running.loaded_at),
        },
        notes: set_modes(&ruleset)
            .chain(grants(&ruleset, now))
            .chain(drained_endpoints(&ruleset))
            .collect(),
        problems: texts(&problem_details),
        problem_details,
        last_reload: last_reload.map(|reload| LastReload {
            at: reload.at,
            result: reload.result,
            error: reload.error.map(|error| error.to_string()),
        }),
        stores: stores(&ruleset),
        connections: state.readiness.connections(),
        recent: state.history.since(now, |before, seconds| {
            let totals = Totals::of(&ruleset, now);
            totals.requests_since(before).rates(seconds)
        }),
    })
}

fn stores(ruleset: &Ruleset) -> Vec<StoreStatus> {
    let memory = StoreStatus {
        name: "memory".into(),
        state: StoreState::Up,
        detail: None,
    };
    let redis = ruleset.store.redis().map(|store| {
        let state = store.client().state();
        let (word, detail) = match state {
            RedisState::Starting => (StoreState::Starting, None),
            RedisState::Up => {
                let crowded = FaultKind::Crowded.text();
                let detail = store
                    .client()
                    .is_crowded()
                    .then(|| format!("up, crowded: it {crowded}"));
                (StoreState::Up, detail)
            }
            RedisState::Down { .. } => (StoreState::Down, Some(state.to_string())),
        };
        StoreStatus {
            name: "redis".into(),
            state: word,
            detail,
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
            [policy.mode.current(), &policy.mode.configured].map(|mode| mode.into_str());
        let effect = if policy.mode.current().can_refuse() {
            "it refuses requests of all keys"
        } else {
            "it refuses nothing"
        };
        let percent = policy.mode.configured.percent();
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
        let name = &policy.name;
        let keys = match policy.steering.keys().count(OperatorActionKind::Grant, now) {
            0 => return None,
            1 => "a key has".to_owned(),
            keys => format!("{keys} keys have"),
        };
        Some(format!("policy {name}: {keys} a grant by an operator"))
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
