//! Counts of decided requests, in memory that does not grow with the log.

mod keys;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use limiter::{Decision, Fingerprint, Timestamp};
use readable::time::Span;
use serde::Serialize;

use crate::timeline::{Part, Timeline};

pub(crate) use keys::{FOLLOWED, MetKey, PolicyKeys};

/// How many lines of a kind are named; the others are counted.
const MAX_NAMED: usize = 5;

/// Counts over a whole log.
#[derive(Debug)]
pub struct Tally {
    /// The first time of the log, and the latest so far.
    pub(crate) times: Option<(Timestamp, Timestamp)>,
    /// The outcomes of all requests.
    pub(crate) all: OutcomeCounts,
    /// At the routes' places; the last is for requests that none takes.
    pub(crate) routes: Vec<OutcomeCounts>,
    /// By name.
    pub(crate) policies: HashMap<Arc<str>, PolicyKeys>,
    pub(crate) timeline: Timeline<PartCounts>,
    /// Responses of the proxy before any limit, and their number.
    pub(crate) answered: BTreeMap<&'static str, u64>,
    pub(crate) out_of_order: LinesReport,
    pub(crate) unparsable: LinesReport,
}

/// The decision on a request, in the words of the metrics and the access log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RequestDecision {
    /// All enforced limits allow the request.
    Allowed,
    /// All enforced limits allow the request, and one delays it.
    Delayed,
    /// A limit refuses the request.
    Limited,
    /// No limit applies.
    #[default]
    Unlimited,
}

/// The outcomes of requests.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct OutcomeCounts {
    /// At once.
    pub allowed: u64,
    /// Admitted after a wait; left out where there is none.
    #[serde(skip_serializing_if = "is_zero")]
    pub delayed: u64,
    pub limited: u64,
    /// Met by no limit.
    pub unlimited: u64,
}

pub(crate) fn is_zero(count: &u64) -> bool {
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
pub(crate) struct PartCounts {
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
    /// Counts for policies with these names, and this number of routes.
    pub fn new(policies: impl IntoIterator<Item = Arc<str>>, routes: usize) -> Self {
        let policies = policies.into_iter().enumerate();
        Tally {
            times: None,
            all: OutcomeCounts::default(),
            routes: vec![OutcomeCounts::default(); routes + 1],
            policies: policies
                .map(|(place, name)| (name, PolicyKeys::new(place)))
                .collect(),
            timeline: Timeline::new(),
            answered: BTreeMap::new(),
            out_of_order: LinesReport::default(),
            unparsable: LinesReport::default(),
        }
    }

    /// Notes the time of the next request, and returns the instant at which it is decided: not before
    /// any other. What is counted then is of that instant.
    pub fn arrive(&mut self, line: u64, time: Timestamp) -> Timestamp {
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

    /// Notes a line that can't be read.
    pub fn note_unparsable(&mut self, line: u64, reason: &str) {
        self.unparsable.note(line, || reason.to_owned());
    }

    /// Counts a request that is answered before any limit.
    pub fn count_answered(&mut self, reason: &'static str) {
        *self.answered.entry(reason).or_default() += 1;
    }

    /// Counts a request of the route at this place; `None` if no route takes it.
    pub fn count(&mut self, route: Option<usize>, decision: RequestDecision) {
        let none = self.routes.len() - 1;
        self.all.count(decision);
        self.routes[route.unwrap_or(none)].count(decision);
        self.part().all.count(decision);
    }

    /// Counts a request that a policy limits.
    pub fn count_limited(&mut self, policy: &str) {
        self.count_over_time(policy, 0);
    }

    /// Counts an admitted request that a policy in shadow would have limited.
    pub fn count_shadowed(&mut self, policy: &str) {
        self.count_over_time(policy, 1);
    }

    fn count_over_time(&mut self, policy: &str, which: usize) {
        if let Some(place) = self.policies.get(policy).map(|keys| keys.place) {
            self.part().policy(place)[which] += 1;
        }
    }

    /// Counts the decision of a policy on a key, which people know by its `name`.
    pub fn count_key(
        &mut self,
        policy: &str,
        key: Fingerprint,
        name: impl Fn() -> String,
        decision: &Decision,
    ) {
        let now = self.now();
        if let Some(keys) = self.policies.get_mut(policy) {
            keys.count(key, name, decision, now);
        }
    }

    /// True if a request met this policy with a key.
    pub fn has_met(&self, policy: &str) -> bool {
        let keys = self.policies.get(policy);
        keys.is_some_and(|keys| !keys.busiest.is_empty())
    }

    fn now(&self) -> Timestamp {
        self.times.map_or(Timestamp::EPOCH, |(_, now)| now)
    }

    fn part(&mut self) -> &mut PartCounts {
        let now = self.now();
        self.timeline.at(now)
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

    pub(crate) fn requests(&self) -> u64 {
        self.allowed + self.delayed + self.limited + self.unlimited
    }
}

impl LinesReport {
    pub(crate) fn note(&mut self, line: u64, why: impl FnOnce() -> String) {
        self.count += 1;
        if self.first.len() < MAX_NAMED {
            let reason = why();
            self.first.push(LineReport { line, reason });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(micros: u64) -> Timestamp {
        Timestamp::from_micros(micros)
    }

    #[test]
    fn time_does_not_run_backwards_and_the_first_such_lines_are_named() {
        let mut tally = Tally::new([], 0);
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
