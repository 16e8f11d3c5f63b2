//! One limit in an explanation: the bucket that decides, and its decision.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;

use crate::clock::Timestamp;
use crate::limiter::{Decision, Demand, Fingerprint};
use crate::proxy::admission::applicability::Applicability;
use crate::proxy::admission::mode::{Enforcement, Mode};
use crate::proxy::admission::record::word_of;
use crate::proxy::answers::action::Action;
use crate::proxy::answers::error::Error;
use crate::proxy::inspect::key_state::KeyState;
use crate::proxy::ruleset::{Limit, Quota};
use crate::rules::{Head, InvalidCost, KeyFault, LocalPeriods, PartDescription};
use crate::store::{ChargeId, OnStoreError, Refusals};
use crate::telemetry::metrics::LimitDecision;

/// A limit on one request.
#[derive(Debug)]
pub(super) struct LimitTrace<'r> {
    pub(super) limit: &'r Limit,
    /// The quota of the bucket that decides.
    pub(super) quota: &'r Quota,
    /// The override of the request, and the soft limit that it exceeds.
    pub(super) id: ChargeId,
    /// Number of buckets that cannot pay before this one.
    pub(super) tier: usize,
    pub(super) key: Vec<PartDescription>,
    /// The time zone of its windows, and its source, if a claim can name it.
    pub(super) zone: Option<String>,
    /// The quota of the request, and its source, if the request can state it.
    pub(super) stated: Option<String>,
    pub(super) cost: u32,
    demand: Demand,
    /// The key of the bucket that decides, unless granted units or a ban do.
    pub(super) paying: Option<Fingerprint>,
    pub(super) enforcement: Enforcement,
    pub(super) outcome: LimitOutcome,
    /// The state of the key in a running ruleset.
    pub(super) state: Option<KeyState>,
    /// The error of the store that should have decided.
    pub(super) store_error: Option<String>,
}

#[derive(Debug)]
pub(super) enum LimitOutcome {
    /// The limit decides.
    Decided(Decision),
    /// The request waits until others return their units.
    Queued(Decision),
    /// The store does not answer, and no bucket decides.
    Undecided(OnStoreError),
    /// The condition does not hold.
    NotApplicable,
    /// The policy is disabled.
    Disabled,
    /// The key is exempt.
    Exempt,
    /// The limit does not apply without a key.
    Skipped,
    /// The limit refuses requests without a key.
    MissingKey,
    /// The limit refuses requests with different values in their key.
    SeveralKeys,
    /// The limit would refuse: the request states no valid cost.
    InvalidCost,
}

impl<'r> LimitTrace<'r> {
    /// The trace of a limit of this applicability, with its buckets in memory.
    ///
    /// # Errors
    /// The request states no number where an enforced limit reads its cost.
    pub(super) fn of(
        limit: &'r Limit,
        applicability: Applicability,
        head: &Head<'_>,
        now: Timestamp,
    ) -> Result<Self, Error> {
        let cost = limit.spec.cost.of(head);
        let place = applicability.place();
        let quota = limit.quota(place);
        let mut trace = Self {
            limit,
            quota,
            id: ChargeId::new(0, place),
            tier: 0,
            key: limit.spec.descriptor.describe(head),
            zone: quota.local_periods.as_ref().map(|local| zone(local, head)),
            stated: quota.stated.as_ref().map(|stated| stated.describe(head)),
            cost: *cost.as_ref().unwrap_or(&1),
            demand: Demand::default(),
            paying: None,
            enforcement: limit.enforcement(place, head),
            outcome: LimitOutcome::NotApplicable,
            state: None,
            store_error: None,
        };
        trace.outcome = match (applicability, cost) {
            (Applicability::Bucket(key, _), Ok(cost)) => {
                let first = limit.demand(place, Some(head), cost);
                let peek = |(tier, quota): (usize, &Quota)| {
                    let kept = if tier == 0 { first.kept } else { 0 };
                    let charge = quota.buckets.charge(key, 0, quota.window_end(head, now));
                    charge.with(Demand { kept, ..first }).peek(now)
                };
                let mut decisions: Vec<_> = quota.tiers().enumerate().map(peek).collect();
                let place = deciding(&decisions);
                trace.decide_by(quota, place);
                let decision = decisions.swap_remove(place);
                (trace.demand, trace.paying) = (first, Some(key));
                LimitOutcome::Decided(decision)
            }
            (Applicability::Bucket(..), Err(InvalidCost)) if trace.can_refuse() => {
                return Err(InvalidCost.into());
            }
            (Applicability::Bucket(..), Err(InvalidCost)) => LimitOutcome::InvalidCost,
            (Applicability::Elsewhere, _) if *limit.policy.mode.current() == Mode::Disabled => {
                LimitOutcome::Disabled
            }
            (Applicability::Elsewhere, _) => LimitOutcome::NotApplicable,
            (Applicability::Exempt, _) => LimitOutcome::Exempt,
            (Applicability::Skipped, _) => LimitOutcome::Skipped,
            (Applicability::Keyless(_), _) => match limit.spec.descriptor.fault(head) {
                Some(KeyFault::Several(_)) => LimitOutcome::SeveralKeys,
                _ => LimitOutcome::MissingKey,
            },
        };
        Ok(trace)
    }

    /// Counts the refused request, if the policy charges those: its own charge makes the wait longer.
    /// Units in a ring are not counted.
    pub(super) fn charge_refused(&mut self, now: Timestamp) {
        let (buckets, algorithm) = (&self.quota.buckets, self.quota.algorithm());
        let is_charged = buckets.table.refusals() == Refusals::Charged
            && !buckets.is_in_redis()
            && algorithm.shape().is_none();
        if let LimitOutcome::Decided(decision) = &mut self.outcome
            && self.paying.is_some_and(|_| is_charged)
            && !decision.is_admitted()
        {
            let (cell, _) = algorithm.charge_refused(decision.cell, now, self.demand.cost);
            *decision = algorithm.decide_keeping(cell, now, self.demand);
        }
    }

    /// Lets the soft limit decide that the request exceeds.
    pub(super) fn decide_softly(&mut self, now: Timestamp) {
        if let (LimitOutcome::Decided(decision), Some(key)) = (&mut self.outcome, self.paying) {
            self.id.soft = self.limit.exceeded(self.id, decision);
            let (id, charged) = ((self.id, key), Some(decision.cell));
            *decision = (self.limit).decide_softly(id, *decision, charged, (self.cost, now));
        }
    }

    /// Lets the overflow tier of `quota` with this number decide.
    pub(super) fn decide_by(&mut self, quota: &'r Quota, tier: usize) {
        self.quota = quota.tiers().nth(tier).unwrap_or(quota);
        self.tier = tier;
    }
}

impl LimitTrace<'_> {
    /// The action on requests beyond the quota, or the soft limit.
    pub(super) fn action(&self) -> &Action {
        self.limit.action(self.id)
    }

    /// The name of the policy, or of the soft limit.
    pub(super) fn name(&self) -> &Arc<str> {
        self.limit.name(self.id)
    }

    /// The action only tags.
    pub(super) fn is_tag(&self) -> bool {
        self.action().tag().is_some()
    }

    /// An enforced limit that does not only tag.
    pub(super) fn can_refuse(&self) -> bool {
        self.enforcement == Enforcement::Enforced && !self.is_tag()
    }

    /// The status of its rejections, if the action answers.
    pub(super) fn status(&self) -> Option<StatusCode> {
        let rejection = self.limit.rejection(self.id, self.quota);
        match (self.action(), &self.outcome) {
            (Action::Drop, _) => None,
            (_, LimitOutcome::MissingKey | LimitOutcome::SeveralKeys) => {
                Some(rejection.keyless_status())
            }
            _ => Some(rejection.status()),
        }
    }

    /// The algorithm returns units at the end of a request, not with time.
    pub(super) fn returns_units(&self) -> bool {
        self.quota.algorithm().is_concurrency()
    }

    pub(super) fn refuses(&self) -> bool {
        matches!(
            self.decision(),
            LimitDecision::Limited | LimitDecision::Tagged
        )
    }

    /// The request is answered as if the proxy failed.
    pub(super) fn refuses_without_store(&self) -> bool {
        matches!(self.outcome, LimitOutcome::Undecided(OnStoreError::Refuse)) && self.can_refuse()
    }

    pub(super) fn is_queued(&self) -> bool {
        matches!(self.outcome, LimitOutcome::Queued(_))
    }

    /// The end of the delay, if the limit delays the request.
    pub(super) fn delayed_until(&self) -> Option<Timestamp> {
        match (&self.outcome, self.enforcement) {
            (LimitOutcome::Decided(decision), Enforcement::Enforced) => decision.delayed_until(),
            _ => None,
        }
    }

    /// The places in the queue and the longest wait, if the request may have to queue.
    pub(super) fn queue_bounds(&self) -> Option<(u32, Duration)> {
        let waits = self.is_queued() || (self.is_decided() && !self.refuses());
        let queue = self.quota.algorithm().queueing();
        let queue = queue.filter(|_| waits && self.can_refuse())?;
        Some((queue.queue(), queue.max_wait()))
    }

    pub(super) fn is_decided(&self) -> bool {
        matches!(self.outcome, LimitOutcome::Decided(_))
    }

    /// The decision that metrics would count for this limit if the request were served.
    pub(super) fn decision(&self) -> LimitDecision {
        let is_enforced = self.enforcement == Enforcement::Enforced;
        let beyond = match (is_enforced, self.is_tag()) {
            (false, _) => LimitDecision::Shadowed,
            (true, true) => LimitDecision::Tagged,
            (true, false) => LimitDecision::Limited,
        };
        match &self.outcome {
            LimitOutcome::NotApplicable | LimitOutcome::Disabled | LimitOutcome::Skipped => {
                LimitDecision::Allowed
            }
            LimitOutcome::Exempt => LimitDecision::Exempt,
            LimitOutcome::Queued(_) => LimitDecision::Delayed,
            LimitOutcome::Undecided(OnStoreError::Refuse) if self.is_tag() => beyond,
            LimitOutcome::Undecided(_) => LimitDecision::Error,
            LimitOutcome::MissingKey | LimitOutcome::SeveralKeys | LimitOutcome::InvalidCost => {
                beyond
            }
            LimitOutcome::Decided(_) if self.id.soft.is_some() => beyond,
            LimitOutcome::Decided(decision) => {
                match word_of(decision, self.tier > 0, is_enforced, false) {
                    LimitDecision::Limited => beyond,
                    word => word,
                }
            }
        }
    }
}

/// The place of the decision that counts: the first bucket that pays, else that with the shortest
/// wait.
pub(super) fn deciding(decisions: &[Decision]) -> usize {
    let mut all = decisions.iter();
    let paying = all.position(Decision::is_admitted);
    let waits = decisions.iter().enumerate();
    let soonest = waits.min_by_key(|(_, decision)| decision.outcome.wait());
    paying
        .or(soonest.map(|(place, _)| place))
        .unwrap_or_default()
}

fn zone(periods: &LocalPeriods, head: &Head<'_>) -> String {
    match periods.zone(head) {
        Some(zone) => format!("{zone}, from jwt:{}", periods.claim),
        None => format!("the default: jwt:{} names none", periods.claim),
    }
}
