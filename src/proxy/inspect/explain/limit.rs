//! One limit in an explanation: the bucket that decides, and its decision.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;

use crate::clock::Timestamp;
use crate::limiter::{Decision, Fingerprint, Outcome};
use crate::proxy::admission::applicability::Applicability;
use crate::proxy::admission::mode::{Enforcement, Mode};
use crate::proxy::answers::action::Action;
use crate::proxy::answers::error::Error;
use crate::proxy::inspect::key_state::KeyState;
use crate::proxy::ruleset::{Limit, Policy, Quota};
use crate::rules::{Head, InvalidCost, KeyFault, LocalPeriods, PartDescription};
use crate::store::{Home, OnStoreError};
use crate::telemetry::metrics::LimitDecision;

/// A limit on one request.
#[derive(Debug)]
pub(super) struct LimitTrace {
    pub(super) policy: Arc<str>,
    pub(super) bucket: BucketTrace,
    pub(super) key: Vec<PartDescription>,
    /// The time zone of its windows, and its source, if a claim can name it.
    pub(super) zone: Option<String>,
    pub(super) cost: u32,
    /// The response settles the cost.
    pub(super) settles: bool,
    pub(super) enforcement: Enforcement,
    pub(super) outcome: LimitOutcome,
    /// The state of the key in a running ruleset.
    pub(super) state: Option<KeyState>,
    /// The error of the store that should have decided.
    pub(super) store_error: Option<String>,
}

/// The bucket that decides, and its rules.
#[derive(Debug)]
pub(super) struct BucketTrace {
    /// Number of buckets that cannot pay before this one.
    pub(super) overflows: usize,
    pub(super) algorithm: &'static str,
    pub(super) quota: String,
    /// The policy's action, as a verb and as the configuration writes it.
    pub(super) action: [&'static str; 2],
    /// The status of its rejections, if the action answers.
    pub(super) status: Option<StatusCode>,
    /// The action only tags.
    pub(super) is_tag: bool,
    /// The algorithm returns units at the end of a request, not with time.
    pub(super) returns_units: bool,
    /// Places in the queue for such units, and the longest wait.
    pub(super) queue: Option<(u32, Duration)>,
    /// The home of its buckets.
    pub(super) home: Home,
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

impl LimitTrace {
    /// The trace of a limit of this applicability, with its buckets in memory.
    ///
    /// # Errors
    /// The request states no number where an enforced limit reads its cost.
    pub(super) fn of(
        limit: &Limit,
        applicability: Applicability,
        head: &Head<'_>,
        now: Timestamp,
    ) -> Result<Self, Error> {
        let cost = limit.spec.cost.of(head);
        let enforcement = limit.enforcement(head);
        let policy = &limit.policy;
        let quota = match applicability {
            Applicability::Bucket(_, place) => limit.quota(place),
            _ => &policy.quota,
        };
        let mut bucket = BucketTrace::new(policy, quota, 0);
        let can_refuse = enforcement == Enforcement::Enforced && !bucket.is_tag;
        let outcome = match (applicability, &cost) {
            (Applicability::Bucket(key, _), Ok(cost)) => {
                let tiers: Vec<_> = quota.tiers().collect();
                let peek = |quota: &&Quota| peek(quota, key, *cost, head, now);
                let mut decisions: Vec<_> = tiers.iter().map(peek).collect();
                let place = deciding(&decisions);
                bucket = BucketTrace::new(policy, tiers[place], place);
                LimitOutcome::Decided(decisions.swap_remove(place))
            }
            (Applicability::Bucket(..), Err(InvalidCost)) if can_refuse => {
                return Err(InvalidCost.into());
            }
            (Applicability::Bucket(..), Err(InvalidCost)) => LimitOutcome::InvalidCost,
            (Applicability::Elsewhere, _) if *limit.policy.mode.current() == Mode::Disabled => {
                LimitOutcome::Disabled
            }
            (Applicability::Elsewhere, _) => LimitOutcome::NotApplicable,
            (Applicability::Exempt, _) => LimitOutcome::Exempt,
            (Applicability::Skipped, _) => LimitOutcome::Skipped,
            (Applicability::Keyless, _) => {
                let status = quota.rejection.keyless_status();
                bucket.status = bucket.status.map(|_| status);
                match limit.spec.descriptor.fault(head) {
                    Some(KeyFault::Several(_)) => LimitOutcome::SeveralKeys,
                    _ => LimitOutcome::MissingKey,
                }
            }
        };
        Ok(Self {
            policy: Arc::clone(&policy.name),
            bucket,
            key: limit.spec.descriptor.describe(head),
            zone: quota.local_periods.as_ref().map(|local| zone(local, head)),
            cost: cost.unwrap_or(1),
            settles: limit.spec.settlement.is_some(),
            enforcement,
            outcome,
            state: None,
            store_error: None,
        })
    }
}

impl BucketTrace {
    /// The bucket of a policy's quota, which is the overflow tier with this number.
    pub(super) fn new(policy: &Policy, quota: &Quota, overflows: usize) -> Self {
        let algorithm = quota.algorithm();
        let queue = algorithm.queueing();
        Self {
            overflows,
            algorithm: algorithm.kind(),
            quota: quota.text.clone(),
            action: [policy.action.name(), policy.action.word()],
            status: match policy.action {
                Action::Drop => None,
                _ => Some(quota.rejection.status()),
            },
            is_tag: policy.action.tag().is_some(),
            returns_units: algorithm.is_concurrency(),
            queue: queue.map(|bound| (bound.queue(), bound.max_wait())),
            home: quota.buckets.home,
        }
    }
}

impl LimitTrace {
    pub(super) fn refuses(&self) -> bool {
        if self.enforcement == Enforcement::Shadowed {
            return false;
        }
        match &self.outcome {
            LimitOutcome::Decided(decision) => !decision.is_admitted(),
            LimitOutcome::MissingKey | LimitOutcome::SeveralKeys | LimitOutcome::InvalidCost => {
                true
            }
            LimitOutcome::Undecided(on_error) => {
                *on_error == OnStoreError::Refuse && self.bucket.is_tag
            }
            LimitOutcome::Queued(_)
            | LimitOutcome::NotApplicable
            | LimitOutcome::Disabled
            | LimitOutcome::Exempt
            | LimitOutcome::Skipped => false,
        }
    }

    /// The request is answered as if the proxy failed.
    pub(super) fn refuses_without_store(&self) -> bool {
        matches!(self.outcome, LimitOutcome::Undecided(OnStoreError::Refuse))
            && self.enforcement == Enforcement::Enforced
            && !self.bucket.is_tag
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
        let is_enforced = self.enforcement == Enforcement::Enforced && !self.bucket.is_tag;
        let waits = self.is_queued() || (self.is_decided() && !self.refuses());
        self.bucket.queue.filter(|_| waits && is_enforced)
    }

    pub(super) fn is_decided(&self) -> bool {
        matches!(self.outcome, LimitOutcome::Decided(_))
    }

    /// The decision that metrics would count for this limit if the request were served.
    pub(super) fn decision(&self) -> LimitDecision {
        let outcome = match &self.outcome {
            LimitOutcome::NotApplicable | LimitOutcome::Disabled | LimitOutcome::Skipped => {
                LimitDecision::Allowed
            }
            LimitOutcome::Exempt => LimitDecision::Exempt,
            LimitOutcome::Queued(_) => LimitDecision::Delayed,
            LimitOutcome::Undecided(OnStoreError::Refuse) if self.bucket.is_tag => {
                LimitDecision::Limited
            }
            LimitOutcome::Undecided(_) => LimitDecision::Error,
            LimitOutcome::MissingKey | LimitOutcome::SeveralKeys | LimitOutcome::InvalidCost => {
                LimitDecision::Limited
            }
            LimitOutcome::Decided(decision) => match decision.outcome {
                Outcome::Admit if self.bucket.overflows > 0 => LimitDecision::Overflowed,
                Outcome::Admit => LimitDecision::Allowed,
                Outcome::Delay { .. } => LimitDecision::Delayed,
                Outcome::Refuse { .. } => LimitDecision::Limited,
            },
        };
        match (outcome, self.enforcement) {
            (LimitDecision::Limited | LimitDecision::Delayed, Enforcement::Shadowed) => {
                LimitDecision::Shadowed
            }
            (LimitDecision::Limited, Enforcement::Enforced) if self.bucket.is_tag => {
                LimitDecision::Tagged
            }
            (outcome, _) => outcome,
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

/// The decision of a bucket of this quota, which is not charged.
fn peek(quota: &Quota, key: Fingerprint, cost: u32, head: &Head<'_>, now: Timestamp) -> Decision {
    let window_end = quota.window_end(head, now);
    quota.buckets.charge(key, cost, window_end).peek(now)
}

fn zone(periods: &LocalPeriods, head: &Head<'_>) -> String {
    match periods.zone(head) {
        Some(zone) => format!("{zone}, from jwt:{}", periods.claim),
        None => format!("the default: jwt:{} names none", periods.claim),
    }
}
