//! Counts of the replayed requests, in memory that does not grow with the log. The limits' own
//! metrics count the decisions of each limit.

mod keys;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use serde::Serialize;

use super::log::LineError;
use super::timeline::{Part, Timeline};
use crate::clock::Timestamp;
use crate::clock::text::Span;
use crate::proxy::Ruleset;
use crate::proxy::inspect::dry_run::DryRun;
use crate::proxy::ruleset::{Limit, Policy};
use crate::rules::Head;
use crate::telemetry::metrics::LimitDecision;

pub(super) use keys::{FOLLOWED, MetKey, PolicyKeys};

/// How many lines of a kind are named; the others are counted.
const MAX_NAMED: usize = 5;

/// Counts over a whole log.
#[derive(Debug)]
pub(super) struct Tally {
    /// The first time of the log, and the latest so far.
    pub times: Option<(Timestamp, Timestamp)>,
    /// The outcomes of all requests.
    pub all: OutcomeCounts,
    /// At the routes' places; the last is for requests that none takes.
    pub routes: Vec<OutcomeCounts>,
    /// By name.
    pub policies: HashMap<Arc<str>, PolicyKeys>,
    pub timeline: Timeline<PartCounts>,
    /// Responses of the proxy before any limit, and their number.
    pub answered: BTreeMap<&'static str, u64>,
    pub out_of_order: LinesReport,
    pub unparsable: LinesReport,
    /// The policies that are not replayed.
    pub left_out: Vec<Arc<str>>,
}

/// The decision on a request, in the words of the metrics and the access log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RequestDecision {
    /// All enforced limits allow the request.
    Allowed,
    /// All enforced limits allow the request, and one delays it.
    Delayed,
    /// A limit refuses the request.
    Limited,
    /// No limit applies.
    Unlimited,
}

/// The outcomes of requests.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct OutcomeCounts {
    /// At once.
    pub allowed: u64,
    /// Admitted after a wait; left out where there is none.
    #[serde(skip_serializing_if = "is_zero")]
    pub delayed: u64,
    pub limited: u64,
    /// Met by no limit.
    pub unlimited: u64,
}

pub(super) fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// Lines that deserve attention.
#[derive(Clone, Debug, Default, Serialize)]
pub struct LinesReport {
    /// How many.
    pub count: u64,
    /// The first of them.
    pub first: Vec<LineReport>,
}

/// A line, and what is the matter with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LineReport {
    /// Its number, from 1.
    pub line: u64,
    /// Why it is told.
    pub reason: String,
}

/// Counts of a part of the log's time.
#[derive(Clone, Debug, Default)]
pub(super) struct PartCounts {
    pub all: OutcomeCounts,
    /// Requests that each policy limited, and would have limited, by its place. Shorter if the others
    /// did neither.
    pub policies: Vec<[u32; 2]>,
}

impl Part for PartCounts {
    fn add(&mut self, other: Self) {
        self.all.add(other.all);
        for (place, [limited, shadowed]) in other.policies.into_iter().enumerate() {
            let counts = self.policy(place);
            counts[0] += limited;
            counts[1] += shadowed;
        }
    }
}

impl PartCounts {
    fn policy(&mut self, place: usize) -> &mut [u32; 2] {
        if self.policies.len() <= place {
            self.policies.resize(place + 1, [0; 2]);
        }
        &mut self.policies[place]
    }
}

impl Tally {
    pub(super) fn new(ruleset: &Ruleset, left_out: Vec<Arc<str>>) -> Self {
        let names = ruleset.policies.iter().map(|policy| &policy.name);
        Tally {
            times: None,
            all: OutcomeCounts::default(),
            routes: vec![OutcomeCounts::default(); ruleset.routes.len() + 1],
            policies: names
                .enumerate()
                .map(|(place, name)| (Arc::clone(name), PolicyKeys::new(place)))
                .collect(),
            timeline: Timeline::new(),
            answered: BTreeMap::new(),
            out_of_order: LinesReport::default(),
            unparsable: LinesReport::default(),
            left_out,
        }
    }

    /// The instant at which a request with this time is decided: not before any other.
    pub(super) fn arrive(&mut self, line: u64, time: Timestamp) -> Timestamp {
        let (first, latest) = self.times.unwrap_or((time, time));
        if time < latest {
            let late = Span(latest.since(time));
            self.out_of_order
                .note(line, || format!("{late} earlier than a line before it"));
        }
        let now = time.max(latest);
        self.times = Some((first, now));
        now
    }

    pub(super) fn unparsable(&mut self, line: u64, why: &LineError) {
        self.unparsable.note(line, || why.to_string());
    }

    pub(super) fn answered(&mut self, reason: &'static str) {
        *self.answered.entry(reason).or_default() += 1;
    }

    /// True if a request met this policy with a key.
    pub(super) fn has_met(&self, policy: &Policy) -> bool {
        let keys = self.policies.get(&policy.name);
        keys.is_some_and(|keys| !keys.busiest.is_empty())
    }

    /// Counts a request that was decided.
    pub(super) fn count(
        &mut self,
        ruleset: &Ruleset,
        run: &DryRun<'_>,
        decision: RequestDecision,
        now: Timestamp,
    ) {
        let place = run.place.unwrap_or(ruleset.routes.len());
        self.all.count(decision);
        self.routes[place].count(decision);
        let part = self.timeline.at(now);
        part.all.count(decision);
        for (limit, word) in run.words() {
            let which = match word {
                LimitDecision::Limited => 0,
                // A request that others refuse counts for no other policy.
                LimitDecision::Shadowed if decision != RequestDecision::Limited => 1,
                _ => continue,
            };
            if let Some(keys) = self.policies.get(&limit.policy.name) {
                part.policy(keys.place)[which] += 1;
            }
        }
        for (limit, key, decision) in run.decisions() {
            if let Some(keys) = self.policies.get_mut(&limit.policy.name) {
                keys.count(key, || name(limit, &run.head), decision, now);
            }
        }
    }
}

impl OutcomeCounts {
    fn count(&mut self, decision: RequestDecision) {
        *match decision {
            RequestDecision::Allowed => &mut self.allowed,
            RequestDecision::Delayed => &mut self.delayed,
            RequestDecision::Limited => &mut self.limited,
            RequestDecision::Unlimited => &mut self.unlimited,
        } += 1;
    }

    fn add(&mut self, other: Self) {
        self.allowed += other.allowed;
        self.delayed += other.delayed;
        self.limited += other.limited;
        self.unlimited += other.unlimited;
    }

    pub(super) fn requests(&self) -> u64 {
        self.allowed + self.delayed + self.limited + self.unlimited
    }
}

impl LinesReport {
    pub(super) fn note(&mut self, line: u64, why: impl FnOnce() -> String) {
        self.count += 1;
        if self.first.len() < MAX_NAMED {
            let reason = why();
            self.first.push(LineReport { line, reason });
        }
    }
}

/// A key as people read it.
fn name(limit: &Limit, head: &Head<'_>) -> String {
    let parts = limit.spec.descriptor.describe(head);
    let parts: Vec<_> = parts.iter().map(ToString::to_string).collect();
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(micros: u64) -> Timestamp {
        Timestamp::from_micros(micros)
    }

    #[test]
    fn time_does_not_run_backwards_and_the_first_such_lines_are_named() {
        let mut tally = Tally {
            times: None,
            all: OutcomeCounts::default(),
            routes: Vec::new(),
            policies: HashMap::new(),
            timeline: Timeline::new(),
            answered: BTreeMap::new(),
            out_of_order: LinesReport::default(),
            unparsable: LinesReport::default(),
            left_out: Vec::new(),
        };
        assert_eq!(tally.arrive(1, at(7_000)), at(7_000));
        assert_eq!(tally.arrive(2, at(5_500)), at(7_000));
        assert_eq!(tally.arrive(3, at(7_000)), at(7_000));
        assert_eq!(tally.times, Some((at(7_000), at(7_000))));
        let first = LineReport {
            line: 2,
            reason: "1.5ms earlier than a line before it".to_owned(),
        };
        assert_eq!(tally.out_of_order.first, [first]);
        for line in 4..10 {
            tally.arrive(line, at(6_000));
        }
        assert_eq!(
            (tally.out_of_order.count, tally.out_of_order.first.len()),
            (7, MAX_NAMED)
        );
    }
}
