//! Decides about the requests of a log, one after the other, at the times that the log has.

use std::sync::Arc;

use serde::Serialize;
use traffic::{
    LimitCounts, LogEntry, LogLine, PolicyFacts, ReplayFacts, ReplayReport, RequestDecision, Tally,
};

use super::warnings::Warnings;
use crate::clock::text::Millis;
use crate::clock::{Clock, Timestamp};
use crate::limiter::{Decision, Secret};
use crate::proxy::Ruleset;
use crate::proxy::inspect::dry_run::{DryRun, Recorded, RecordedResponse, dry_run};
use crate::proxy::ruleset::build::{BuildContext, PreparedRuleset};
use crate::proxy::ruleset::{Limit, LimitSpec, Policy, RulesetSpec};
use crate::rules::{Descriptor, Head};
use crate::telemetry::metrics::LimitDecision;
use crate::telemetry::registry::Registry;

/// The hash key of every replay, so that two of them fill tables alike: nobody attacks one.
pub(super) const SECRET: Secret = Secret::from_key([0, 0]);

/// A ruleset with buckets of its own, and what came of the requests so far.
#[derive(Debug)]
pub(super) struct Simulation {
    ruleset: Arc<Ruleset>,
    pub(super) tally: Tally,
    warnings: Warnings,
    /// The policies that are not replayed.
    left_out: Vec<Arc<str>>,
}

/// The decision on the request of one line, written as JSON without the fields that do not apply.
#[derive(Debug, Default, Serialize)]
pub struct DecisionLine {
    /// The line's number, from 1.
    pub line: u64,
    /// The decision.
    pub decision: RequestDecision,
    /// The deciding policy.
    #[serde(skip_serializing_if = "Option::is_none")]
    policy: Option<Arc<str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    remaining: Option<u64>,
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
        let names = ruleset.policies.iter().map(|policy| &policy.name);
        Simulation {
            tally: Tally::new(names.cloned(), ruleset.routes.len()),
            warnings: Warnings::new(&ruleset, &routes, is_host_given),
            ruleset,
            left_out,
        }
    }

    /// Decides about the request of a line, if it has one. One that is earlier than another before it
    /// is decided at the time of that, as buckets do: time never runs backwards.
    pub(super) fn decide(&mut self, line: &LogLine) -> Option<DecisionLine> {
        match &line.entry {
            Ok(entry) => Some(self.decide_entry(line.number, entry)),
            Err(reason) => {
                self.tally.note_unparsable(line.number, reason);
                None
            }
        }
    }

    fn decide_entry(&mut self, line: u64, entry: &LogEntry) -> DecisionLine {
        let now = self.tally.arrive(line, entry.time);
        let head = match &entry.head {
            Ok(head) => head,
            Err(reason) => return self.answered(line, reason),
        };
        let (ruleset, tally) = (&self.ruleset, &mut self.tally);
        let warnings = &mut self.warnings;
        warnings.arrive(entry.time, head.names_host);
        let recorded = recorded(entry);
        let decided = dry_run(ruleset, &head.request, entry.peer, now, recorded, |run| {
            let line_decision = DecisionLine::of(line, &run, now);
            count(tally, &run, line_decision.decision);
            warnings.note(ruleset, run.place, &run.head);
            warnings.note_bans(&run.recorded_bans);
            line_decision
        });
        decided.unwrap_or_else(|error| self.answered(line, error.detail()))
    }

    /// The proxy's own answer to a request that no limit applied yet.
    fn answered(&mut self, line: u64, reason: &'static str) -> DecisionLine {
        self.tally.count_answered(reason);
        DecisionLine {
            line,
            reason: Some(reason),
            ..DecisionLine::default()
        }
    }

    pub(super) fn report(&self) -> ReplayReport {
        let ruleset = &self.ruleset;
        let named = ruleset.routes.iter();
        let named = named.map(|route| (Some(Arc::clone(&route.name)), route));
        let routes = named.chain([(None, &ruleset.unmatched)]);
        let routes = routes.map(|(name, route)| {
            let limits = route.limits.iter().flat_map(limit_counts);
            (name, limits.collect())
        });
        let facts = ReplayFacts {
            routes: routes.collect(),
            policies: ruleset
                .policies
                .iter()
                .map(|policy| facts(policy))
                .collect(),
            warnings: self
                .warnings
                .all(ruleset, |policy| self.tally.has_met(&policy.name)),
            not_replayed: self.left_out.clone(),
            recorded_bans: self.warnings.banned(),
        };
        ReplayReport::new(&self.tally, facts)
    }
}

/// Counts a decided request.
fn count(tally: &mut Tally, run: &DryRun<'_>, decision: RequestDecision) {
    tally.count(run.place, decision);
    for (limit, word) in run.words() {
        match word {
            LimitDecision::Limited => tally.count_limited(&limit.policy.name),
            // A request that others refuse counts for no other policy.
            LimitDecision::Shadowed if decision != RequestDecision::Limited => {
                tally.count_shadowed(&limit.policy.name);
            }
            _ => {}
        }
    }
    for (limit, key, decision) in run.decisions() {
        let name = || key_name(&limit.spec.descriptor, &run.head);
        tally.count_key(&limit.policy.name, key, name, decision);
    }
}

/// A key as people read it.
pub(super) fn key_name(descriptor: &Descriptor, head: &Head<'_>) -> String {
    let parts = descriptor.describe(head);
    let parts: Vec<_> = parts.iter().map(ToString::to_string).collect();
    parts.join(", ")
}

/// The decisions of a limit, and of its soft limits.
fn limit_counts(limit: &Limit) -> impl Iterator<Item = LimitCounts> {
    let soft = limit.policy.soft_limits.iter().map(|soft| &soft.name);
    let names = std::iter::once(&limit.policy.name).chain(soft);
    let metrics = std::iter::once(&limit.metrics).chain(&limit.soft_metrics);
    names.zip(metrics).map(|(name, metrics)| LimitCounts {
        policy: Arc::clone(name),
        allowed: metrics.count(LimitDecision::Allowed),
        limited: metrics.count(LimitDecision::Limited),
        delayed: metrics.count(LimitDecision::Delayed),
        overflowed: metrics.count(LimitDecision::Overflowed),
        tagged: metrics.count(LimitDecision::Tagged),
        routed: metrics.count(LimitDecision::Routed),
        shadowed: metrics.count(LimitDecision::Shadowed),
    })
}

fn facts(policy: &Policy) -> PolicyFacts<'_> {
    let tables = policy.quotas().map(|quota| &quota.buckets.table);
    PolicyFacts {
        name: &policy.name,
        algorithm: policy.quota.algorithm(),
        quota: &policy.quota.text,
        evictions: tables.map(|table| table.evictions()).sum(),
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
    let banned = entry.banned.as_ref();
    Recorded {
        response,
        granted: &entry.granted,
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
