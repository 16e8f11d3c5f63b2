//! One limit in an explanation: the bucket that decides, and its decision.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;

use crate::limiter::Decision;
use crate::proxy::admission::applicability::Applicability;
use crate::proxy::admission::mode::{Enforcement, Mode};
use crate::proxy::admission::{Admission, without_store_word};
use crate::proxy::answers::action::Action;
use crate::proxy::inspect::key_state::KeyState;
use crate::proxy::ruleset::{Limit, Quota};
use crate::rules::{Head, InvalidCost, KeyFault, LocalPeriods, PartDescription};
use crate::store::{ChargeId, OnStoreError, WithoutStore};
use crate::telemetry::metrics::LimitDecision;

/// A limit on one request.
#[derive(Debug)]
pub(super) struct LimitTrace<'r> {
    pub(super) limit: &'r Limit,
    /// The bucket that decides, and the soft limit that the request exceeds.
    pub(super) id: ChargeId,
    pub(super) key: Vec<PartDescription>,
    /// The time zone of its windows, and its source, if a claim can name it.
    pub(super) zone: Option<String>,
    /// The quota of the request, and its source, if the request can state it.
    pub(super) stated: Option<String>,
    pub(super) cost: u32,
    pub(super) enforcement: Enforcement,
    pub(super) outcome: LimitOutcome,
    /// The outcome in a word.
    pub(super) word: LimitDecision,
    /// The state of the key in a running ruleset.
    pub(super) state: Option<KeyState>,
    /// The error of the store that should have decided.
    pub(super) store_error: Option<String>,
}

#[derive(Debug)]
pub(super) enum LimitOutcome {
    /// The limit applies, and its bucket is not asked, or not yet: memory refuses.
    NotAsked,
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
    /// The trace of the limit with this number before a bucket decides.
    pub(super) fn new(
        (number, limit): (u16, &'r Limit),
        applicability: Applicability,
        head: &Head<'_>,
    ) -> Self {
        let cost = limit.spec.cost.of(head);
        let place = applicability.place();
        let quota = limit.quota(place);
        Self {
            limit,
            id: ChargeId::new(number, place),
            key: limit.spec.descriptor.describe(head),
            zone: quota.local_periods.as_ref().map(|local| zone(local, head)),
            stated: quota.stated.as_ref().map(|stated| stated.describe(head)),
            cost: *cost.as_ref().unwrap_or(&1),
            enforcement: limit.enforcement(place, head),
            outcome: match (applicability, cost) {
                (Applicability::Bucket(..), Ok(_)) => LimitOutcome::NotAsked,
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
            },
            word: LimitDecision::Allowed,
            state: None,
            store_error: None,
        }
    }

    /// Takes over the decision of the admission, or of a store that does not answer.
    pub(super) fn decide(
        &mut self,
        admission: &Admission,
        without_store: Option<&WithoutStore>,
        is_queued: bool,
    ) {
        self.store_error = without_store.map(|one| one.error.to_string());
        let mut records = admission.records().iter();
        let record = records.find(|record| record.limit == self.id.limit);
        if let Some(record) = record {
            self.word = record.word;
        }
        if !matches!(self.outcome, LimitOutcome::NotAsked) {
            return;
        }
        let decided = record.and_then(|record| admission.decision_of(record));
        match (decided, without_store) {
            (Some((bucket, decision)), _) => {
                self.id = bucket.id;
                self.outcome = if is_queued {
                    self.word = LimitDecision::Delayed;
                    LimitOutcome::Queued(*decision)
                } else {
                    LimitOutcome::Decided(*decision)
                };
            }
            (None, Some(one)) => {
                self.outcome = LimitOutcome::Undecided(one.on_error);
                self.word = without_store_word(one.on_error, self.is_tag(), self.enforcement);
            }
            (None, None) => {}
        }
    }
}

impl<'r> LimitTrace<'r> {
    /// The action on requests beyond the quota, or the soft limit.
    pub(super) fn action(&self) -> &Action {
        self.limit.action(self.id)
    }

    /// The name of the policy, or of the soft limit.
    pub(super) fn name(&self) -> &Arc<str> {
        self.limit.name(self.id)
    }

    /// The quota of the bucket that decides.
    pub(super) fn quota(&self) -> &'r Quota {
        self.limit.chosen(self.id)
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
        let rejection = self.limit.rejection(self.id, self.quota());
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
        self.quota().algorithm().is_concurrency()
    }

    pub(super) fn refuses(&self) -> bool {
        matches!(self.word, LimitDecision::Limited | LimitDecision::Tagged)
    }

    /// The places in the queue and the longest wait, if the request may have to queue.
    pub(super) fn queue_bounds(&self) -> Option<(u32, Duration)> {
        let waits = match self.outcome {
            LimitOutcome::Queued(_) => true,
            LimitOutcome::Decided(_) => !self.refuses(),
            _ => false,
        };
        let queue = self.quota().algorithm().queueing();
        let queue = queue.filter(|_| waits && self.can_refuse())?;
        Some((queue.queue(), queue.max_wait()))
    }
}

fn zone(periods: &LocalPeriods, head: &Head<'_>) -> String {
    match periods.zone(head) {
        Some(zone) => format!("{zone}, from jwt:{}", periods.claim),
        None => format!("the default: jwt:{} names none", periods.claim),
    }
}
