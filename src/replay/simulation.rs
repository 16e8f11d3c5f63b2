//! Decides about the requests of a log, one after the other, at the times that the log has.

use std::sync::Arc;

use serde::Serialize;

use super::log::{LineError, LogEntry, MalformedRequest};
use super::report::{CountRange, ReplayReport};
use super::tally::{RequestDecision, Tally};
use super::warnings::Warnings;
use crate::clock::text::Millis;
use crate::clock::{Clock, Timestamp};
use crate::limiter::{Decision, Secret};
use crate::proxy::Ruleset;
use crate::proxy::inspect::dry_run::{DryRun, Recorded, RecordedResponse, dry_run};
use crate::proxy::ruleset::build::{BuildContext, PreparedRuleset};
use crate::proxy::ruleset::{Limit, LimitSpec, RulesetSpec};
use crate::telemetry::registry::Registry;

/// The hash key of every replay, so that two of them fill tables alike: nobody attacks one.
pub(super) const SECRET: Secret = Secret::from_key([0, 0]);

/// A ruleset with buckets of its own, and what came of the requests so far.
#[derive(Debug)]
pub(super) struct Simulation {
    ruleset: Arc<Ruleset>,
    tally: Tally,
    warnings: Warnings,
}

/// The decision on the request of one line, written as JSON without the fields that do not apply.
#[derive(Debug, Serialize)]
pub struct DecisionLine {
    /// The line's number, from 1.
    pub line: u64,
    /// The decision.
    pub decision: RequestDecision,
    /// The deciding policy.
    #[serde(skip_serializing_if = "Option::is_none")]
    policy: Option<Arc<str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    remaining: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<Millis>,
    #[serde(skip_serializing_if = "Option::is_none")]
    delay_ms: Option<Millis>,
    /// Policies that allow the request at a lower priority.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    overflowed: Vec<Arc<str>>,
    /// Policies in shadow that would have refused or delayed the request.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    shadowed_by: Vec<Arc<str>>,
    /// The proxy's answer before any limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
}

impl Simulation {
    pub(super) fn new(rules: RulesetSpec, is_host_given: bool) -> Self {
        let routes = rules.routes.iter().map(|route| route.matches.clone());
        let routes: Vec<_> = routes.collect();
        let (ruleset, left_out) = build(rules);
        Simulation {
            tally: Tally::new(&ruleset, left_out),
            warnings: Warnings::new(&ruleset, &routes, is_host_given),
            ruleset,
        }
    }

    /// Decides about a request. One that is earlier than another before it is decided at the time
    /// of that, as buckets do: time never runs backwards.
    pub(super) fn decide(&mut self, line: u64, entry: &LogEntry) -> DecisionLine {
        let now = self.tally.arrive(line, entry.time);
        let request = match &entry.head {
            Ok(request) => request,
            Err(MalformedRequest(reason)) => return self.answered(line, reason),
        };
        let (ruleset, tally) = (&self.ruleset, &mut self.tally);
        let warnings = &mut self.warnings;
        warnings.arrive(entry.time, entry.names_host);
        let recorded = recorded(entry);
        let decided = dry_run(ruleset, request, entry.peer, now, recorded, |run| {
            let line_decision = DecisionLine::of(line, &run, now);
            tally.count(ruleset, &run, line_decision.decision, now);
            warnings.note(ruleset, run.place, &run.head);
            warnings.note_bans(&run.recorded_bans);
            line_decision
        });
        decided.unwrap_or_else(|error| self.answered(line, error.detail()))
    }

    /// The proxy's own answer to a request that no limit applied yet.
    fn answered(&mut self, line: u64, reason: &'static str) -> DecisionLine {
        self.tally.answered(reason);
        DecisionLine {
            line,
            decision: RequestDecision::Unlimited,
            policy: None,
            remaining: None,
            retry_after_ms: None,
            delay_ms: None,
            overflowed: Vec::new(),
            shadowed_by: Vec::new(),
            reason: Some(reason),
        }
    }

    /// Counts a line that says nothing.
    pub(super) fn skip(&mut self, line: u64, why: &LineError) {
        self.tally.unparsable(line, why);
    }

    /// The keys that policies limited, and how often, as far as they are followed.
    pub(super) fn limited_keys(&self) -> impl Iterator<Item = (Arc<str>, String, CountRange)> {
        self.tally.policies.iter().flat_map(|(policy, keys)| {
            let entries = keys.limited.entries().iter();
            entries.map(|entry| {
                let name = entry.value.name.clone();
                (Arc::clone(policy), name, CountRange::of(entry))
            })
        })
    }

    /// The most refusals of a key of a policy that is not followed.
    pub(super) fn limited_floor(&self, policy: &str) -> u64 {
        let keys = self.tally.policies.get(policy);
        keys.map_or(0, |keys| keys.limited.floor())
    }

    pub(super) fn report(&self) -> ReplayReport {
        ReplayReport::new(&self.ruleset, &self.tally, &self.warnings)
    }
}

impl DecisionLine {
    fn of(line: u64, run: &DryRun<'_>, now: Timestamp) -> Self {
        let (ruling, policy, decision) = match (run.deciding(), run.delaying()) {
            (None, _) if run.is_unlimited() => (RequestDecision::Unlimited, None, None),
            // Limits that only watch or tag refuse nothing.
            (None, _) => (RequestDecision::Allowed, None, None),
            (policy, None) if run.is_refused() => {
                (RequestDecision::Limited, policy, run.decision())
            }
            (policy, None) => (RequestDecision::Allowed, policy, run.decision()),
            (_, Some((limit, decision))) => {
                let policy = Some(&limit.policy.name);
                (RequestDecision::Delayed, policy, Some(decision))
            }
        };
        let delayed_until = decision.and_then(Decision::delayed_until);
        DecisionLine {
            line,
            decision: ruling,
            policy: policy.cloned(),
            remaining: decision.map(|decision| decision.remaining),
            retry_after_ms: decision
                .and_then(Decision::retry_at)
                .map(|at| wait(at, now)),
            delay_ms: delayed_until.map(|until| wait(until, now)),
            overflowed: run.lowering().map(name).collect(),
            shadowed_by: run.shadowing().map(name).collect(),
            reason: None,
        }
    }
}

/// The effects on a request that a line has.
pub(super) fn recorded(entry: &LogEntry) -> Recorded<'_> {
    let response = entry.response.as_ref().map(|response| RecordedResponse {
        status: response.status,
        headers: &response.headers,
        bytes: response.bytes,
        costs: &response.costs,
    });
    let steering = &entry.steering;
    let banned = steering.banned.as_ref();
    Recorded {
        response,
        granted: &steering.granted,
        banned: banned.map(|(policy, length)| (&**policy, *length)),
    }
}

fn name(limit: &Limit) -> Arc<str> {
    Arc::clone(&limit.policy.name)
}

/// A ruleset with new buckets, and the policies that it leaves out.
pub(super) fn build(mut rules: RulesetSpec) -> (Arc<Ruleset>, Vec<Arc<str>>) {
    let left_out = leave_out_permits(&mut rules);
    (build_all(rules), left_out)
}

/// A ruleset with new buckets, on virtual time.
pub(super) fn build_all(rules: RulesetSpec) -> Arc<Ruleset> {
    let context = BuildContext {
        workers: 1,
        registry: Registry::default(),
        clock: Arc::new(Clock::manual(Timestamp::EPOCH)),
        secret: SECRET,
    };
    PreparedRuleset::new(rules, &context, None).migrate_buckets(Timestamp::EPOCH)
}

/// Takes the limits out that count what is in flight, since a log does not say when requests end;
/// the names of their policies.
fn leave_out_permits(rules: &mut RulesetSpec) -> Vec<Arc<str>> {
    let policies = &rules.policies;
    let is_replayed = |limit: &LimitSpec| !policies[limit.policy].quota.algorithm.is_concurrency();
    let mut left_out: Vec<Arc<str>> = Vec::new();
    let routes = rules.routes.iter_mut().chain([&mut rules.unmatched]);
    for limits in routes.map(|route| &mut route.limits) {
        for limit in limits.iter().filter(|limit| !is_replayed(limit)) {
            let name = &policies[limit.policy].spec.name;
            if !left_out.contains(name) {
                left_out.push(Arc::clone(name));
            }
        }
        limits.retain(is_replayed);
    }
    left_out
}

fn wait(until: Timestamp, now: Timestamp) -> Millis {
    Millis(until.as_micros().saturating_sub(now.as_micros()))
}
