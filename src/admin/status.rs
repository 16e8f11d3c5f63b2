//! The state of the process at a glance, and its problems.

use std::sync::Arc;

use axum::extract::State;
use parking_lot::Mutex;
use serde::Serialize;

use super::json::{Json, Rfc3339};
use super::policies::granted_keys;
use super::reload_history::ReloadResult;
use super::{AdminState, upstreams};
use crate::clock::Timestamp;
use crate::net::file_budget;
use crate::proxy::Ruleset;
use crate::proxy::inspect::key_state::rfc_3339;
use crate::server::ConnectionPressure;
use crate::store::redis::client::State as RedisState;
use crate::store::{HomeSpec, OnStoreError};

/// The most policies that a problem names.
const MAX_NAMES: usize = 5;

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

/// A problem that a part of the process has, or not. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct StatusProblem(Arc<Mutex<Option<String>>>);

impl StatusProblem {
    /// Sets the problem. Returns true if there was none.
    pub fn set(&self, problem: String) -> bool {
        self.0.lock().replace(problem).is_none()
    }

    /// Ends the problem.
    pub fn clear(&self) {
        self.0.lock().take();
    }

    pub(super) fn get(&self) -> Option<String> {
        self.0.lock().clone()
    }
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
        notes: set_modes(&ruleset).chain(grants(&ruleset, now)).collect(),
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

/// The things that an operator has to look at, most urgent first.
pub(super) fn problems(state: &AdminState, ruleset: &Ruleset) -> Vec<String> {
    let pressure = state.readiness.pressure();
    let mut problems = Vec::new();
    if let Some(reload) =
        (state.reloads.last()).filter(|reload| reload.result == ReloadResult::Failed)
    {
        let why = reload.error.as_deref().map(first_line);
        problems.push(format!(
            "the last reload failed: {}. The configuration before it runs",
            why.as_deref().unwrap_or("it says no reason")
        ));
    }
    if let Some(store) = ruleset.store.redis()
        && let state @ RedisState::Down { .. } = store.state()
    {
        problems.push(format!("redis is {state}{}", without_redis(ruleset)));
    }
    for policy in ruleset.policies_without_store() {
        problems.push(format!(
            "policy {policy} refuses requests: it cannot reach redis"
        ));
    }
    let (running, now) = (
        state.reloads.running(),
        state.clock.now().as_micros() / 1_000_000,
    );
    let ends = running.certificates.iter();
    problems.extend(ends.filter_map(|end| end.problem(now)));
    problems.extend(upstreams::problems(ruleset));
    problems.extend(unsettled(ruleset));
    problems.extend(state.problems.iter().filter_map(StatusProblem::get));
    if let Some(pressure) = pressure.filter(|pressure| pressure.is_near_max()) {
        let (open, max) = (pressure.open(), pressure.max());
        problems.push(format!(
            "{open} of {max} connections are open: idle ones give way"
        ));
    }
    let upstream_shares = state.gateway.upstream_shares();
    if upstream_shares.are_scarce() {
        let (in_flight, max) = (upstream_shares.in_flight(), upstream_shares.max());
        problems.push(format!(
            "{in_flight} of {max} requests are in flight at upstreams: clients that hold most get 503"
        ));
    }
    if file_budget::UPSTREAMS.is_short() {
        problems.push("connections fail for lack of files, memory or ports".to_owned());
    }
    problems
}

/// The first line of an error, after the place that it points to.
fn first_line(error: &str) -> String {
    let mut lines = error.lines();
    let first = lines.next().unwrap_or_default();
    let coded = first.strip_prefix("error[");
    let message = coded.and_then(|rest| rest.split_once("]: "));
    let message = message.map_or(first, |(_, message)| message);
    let place = lines
        .next()
        .and_then(|line| line.trim_start().strip_prefix("--> "));
    match place {
        Some(place) => format!("{place}: {message}"),
        None => message.to_owned(),
    }
}

/// The policies that go on without Redis, by the way in which they do.
fn without_redis(ruleset: &Ruleset) -> String {
    let named = |wanted: fn(HomeSpec) -> bool| {
        let policies = ruleset.policies.iter();
        let names = policies.filter(|policy| wanted(policy.buckets.home()));
        listed(names.map(|policy| &*policy.name).collect())
    };
    let alone = named(|home| {
        matches!(
            home,
            HomeSpec::Redis(OnStoreError::Local) | HomeSpec::Synchronised(_)
        )
    });
    let unlimited = named(|home| home == HomeSpec::Redis(OnStoreError::Admit));
    let alone = alone.map(|names| format!("; each machine counts alone for {names}"));
    let unlimited = unlimited.map(|names| format!("; nothing is limited by {names}"));
    alone.into_iter().chain(unlimited).collect()
}

/// The first policies by name, and how many more there are; `None` without any.
fn listed(names: Vec<&str>) -> Option<String> {
    let (first, more) = names.split_at(names.len().min(MAX_NAMES));
    match (first, more.len()) {
        ([], _) => None,
        ([only], 0) => Some(format!("policy {only}")),
        (first, 0) => Some(format!("policies {}", first.join(", "))),
        (first, more) => Some(format!("policies {} and {more} more", first.join(", "))),
    }
}

/// The policies whose costs are often not settled.
fn unsettled(ruleset: &Ruleset) -> impl Iterator<Item = String> {
    ruleset.policies.iter().filter_map(|policy| {
        let (estimated, all) = policy.settlements.as_ref()?.estimated();
        // One response in a hundred may fail.
        let is_often = estimated * 100 > all;
        is_often.then(|| {
            let name = &policy.name;
            format!("policy {name}: {estimated} of {all} responses since the start state no cost")
        })
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_has_its_place_first() {
        let report = "error[invalid-value]: `1zz` has an unknown unit\n --> gate.yaml:36:12\n  |\n";
        assert_eq!(
            first_line(report),
            "gate.yaml:36:12: `1zz` has an unknown unit"
        );
        assert_eq!(first_line("no file\nsecond"), "no file");
        assert_eq!(first_line(""), "");
    }

    #[test]
    fn many_policies_are_not_all_named() {
        assert_eq!(listed(vec![]), None);
        assert_eq!(listed(vec!["a", "b"]).as_deref(), Some("policies a, b"));
        assert_eq!(listed(vec!["a"]).as_deref(), Some("policy a"));
        let many = vec!["a", "b", "c", "d", "e", "f", "g"];
        assert_eq!(
            listed(many).as_deref(),
            Some("policies a, b, c, d, e and 2 more")
        );
    }
}
