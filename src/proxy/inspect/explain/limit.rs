//! One limit in an explanation: the bucket that decides, and its decision.

use std::sync::Arc;

use derive_more::Display;
use http::StatusCode;
use strum::IntoStaticStr;

use super::report::{LimitReport, QueueReport};
use crate::clock::Timestamp;
use crate::clock::text::Millis;
use crate::limiter::Decision;
use crate::proxy::admission::Admission;
use crate::proxy::admission::applicability::Applicability;
use crate::proxy::admission::mode::{Enforcement, Mode};
use crate::proxy::answers::action::Action;
use crate::proxy::inspect::key::PolicyKey;
use crate::proxy::ruleset::{Limit, Quota};
use crate::rules::{Head, InvalidCost, KeyFault, LocalPeriods};
use crate::store::{ChargeId, OnStoreError, Probe, WithoutStore};
use crate::telemetry::metrics::LimitDecision;

/// A limit on one request.
#[derive(Debug)]
pub(super) struct LimitTrace<'r> {
    pub(super) limit: &'r Limit,
    /// The bucket that decides, and the soft limit that the request exceeds.
    pub(super) id: ChargeId,
    pub(super) enforcement: Enforcement,
    pub(super) outcome: Result<Decision, Reason>,
    /// The outcome in a word.
    pub(super) word: LimitDecision,
    /// The key that the request charges, and a request of one unit.
    pub(super) key: Option<(PolicyKey<'r>, Probe)>,
    /// The facts that are known without a decision.
    pub(super) report: LimitReport,
}

/// The reason why a limit's bucket doesn't decide, or not alone, named as in reports. `Display` is for
/// people.
#[derive(Clone, Copy, Debug, Display, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub(super) enum Reason {
    /// The bucket is not asked, or not yet: memory refuses.
    #[display("not asked: another limit refuses")]
    NotAsked,
    /// The request waits until others return their units.
    #[display("it waits in line until others have ended")]
    Queue(Decision),
    /// The store does not answer, and no bucket decides.
    #[display("the request is {} without the store", match _0 {
        OnStoreError::Refuse => "refused",
        _ => "admitted",
    })]
    Store(OnStoreError),
    /// The condition does not hold.
    #[display("does not apply: `when` is not met")]
    Condition,
    /// The policy is disabled.
    #[display("does not apply: disabled")]
    Disabled,
    /// The key is exempt.
    #[display("does not apply: exempt")]
    Exempt,
    /// The limit does not apply without a key.
    #[display("does not apply without its key")]
    KeySkipped,
    /// The limit refuses requests without a key.
    #[display("the key is missing")]
    KeyMissing,
    /// The limit refuses requests with different values in their key.
    #[display("the key has different values")]
    KeySeveral,
    /// The limit would refuse: the request states no valid cost.
    #[display("the cost isn't a whole number")]
    InvalidCost,
}

impl Reason {
    /// The limit applies to the request.
    pub(super) fn applies(self) -> bool {
        !matches!(
            self,
            Self::NotAsked | Self::Condition | Self::Disabled | Self::KeySkipped
        )
    }
}

impl<'r> LimitTrace<'r> {
    /// The trace of the limit with this number before a bucket decides.
    pub(super) fn new(number: u16, limit: &'r Limit, head: &Head<'_>, now: Timestamp) -> Self {
        let applicability = limit.evaluate(head);
        let (place, cost) = (applicability.place(), limit.spec.cost.of(head));
        let (quota, enforcement) = (limit.quota(place), limit.enforcement(place, head));
        let reason = match (applicability, cost) {
            (Applicability::Bucket(..), Ok(_)) => Reason::NotAsked,
            (Applicability::Bucket(..), Err(InvalidCost)) => Reason::InvalidCost,
            (Applicability::Elsewhere, _) if *limit.policy.mode.current() == Mode::Disabled => {
                Reason::Disabled
            }
            (Applicability::Elsewhere, _) => Reason::Condition,
            (Applicability::Exempt, _) => Reason::Exempt,
            (Applicability::Skipped, _) => Reason::KeySkipped,
            (Applicability::Keyless(_), _) => match limit.fault(head) {
                Some(KeyFault::Several(_)) => Reason::KeySeveral,
                _ => Reason::KeyMissing,
            },
        };
        let key = || PolicyKey::of_request(limit, head, place);
        let probe = || Probe {
            demand: limit.demand(place, Some(head), 1),
            window_end: quota.window_end(head, now),
        };
        let is_charged = matches!(reason, Reason::NotAsked);
        Self {
            limit,
            id: ChargeId::new(number, place),
            enforcement,
            outcome: Err(reason),
            word: LimitDecision::Allowed,
            key: is_charged.then(key).flatten().map(|key| (key, probe())),
            report: LimitReport {
                policy: Arc::clone(&limit.policy.name),
                key: limit.spec.descriptor.describe(head),
                time_zone: quota.local_periods.as_ref().map(|local| zone(local, head)),
                stated_quota: quota.stated.as_ref().map(|stated| stated.describe(head)),
                mode: enforcement.into_str().into(),
                cost: cost.unwrap_or(1),
                cost_is_settled: limit.spec.settlement.is_some(),
                ..LimitReport::default()
            },
        }
    }

    /// Takes over the decision of the admission, or of a store that does not answer.
    pub(super) fn decide(
        &mut self,
        admission: &Admission,
        without_store: Option<&WithoutStore>,
        is_queued: bool,
    ) {
        self.report.store_error = without_store.map(|one| one.error.to_string());
        let mut records = admission.records.iter();
        let record = records.find(|record| record.limit == self.id.limit);
        if let Some(record) = record {
            self.word = record.word;
        }
        if !matches!(self.outcome, Err(Reason::NotAsked)) {
            return;
        }
        let decided = record.and_then(|record| admission.decision_of(record));
        match (decided, without_store) {
            (Some((bucket, decision)), _) => {
                self.id = bucket.id;
                self.outcome = if is_queued {
                    self.word = LimitDecision::Delayed;
                    Err(Reason::Queue(*decision))
                } else {
                    Ok(*decision)
                };
            }
            (None, Some(one)) => {
                self.outcome = Err(Reason::Store(one.on_error));
                self.word = self
                    .limit
                    .word_without_store(self.id, one.on_error, self.enforcement);
            }
            (None, None) => {}
        }
    }

    /// Adds the decision to the report.
    pub(super) fn finish(&mut self, now: Timestamp) {
        let wait = |until: Timestamp| Millis::from(until.since(now));
        let (quota, home) = (self.quota(), self.quota().buckets.home);
        let decision = match &self.outcome {
            Ok(decision) | Err(Reason::Queue(decision)) => Some(decision),
            Err(_) => None,
        };
        let reason = self.outcome.err();
        let is_applied = reason.is_none_or(Reason::applies);
        let refills = decision.filter(|_| !self.returns_units());
        self.report = LimitReport {
            algorithm: quota.algorithm().kind().into(),
            quota: quota.text.clone(),
            store: home.into_str().into(),
            sync_ms: home.sync_interval().map(Millis::from),
            action: self.action().into_str().into(),
            bucket: usize::from(self.id.tier) + 1,
            soft_limit: self.limit.soft_limit(self.id).map(|soft| soft.above),
            queue: self.queue(),
            decision: is_applied.then(|| self.word.as_str().into()),
            reason: reason.map(|reason| <&str>::from(reason).into()),
            remaining: decision.map(|decision| decision.remaining),
            retry_after_ms: self.retry_at().map(wait),
            delay_ms: decision.and_then(|decision| decision.delayed_until().map(wait)),
            reset_ms: refills.map(|decision| wait(decision.reset)),
            ..std::mem::take(&mut self.report)
        };
    }

    /// The action on requests beyond the quota, or the soft limit.
    pub(super) fn action(&self) -> &'r Action {
        self.limit.action(self.id)
    }

    /// The name of the policy, or of the soft limit.
    pub(super) fn name(&self) -> &'r Arc<str> {
        self.limit.name(self.id)
    }

    /// The quota of the bucket that decides.
    pub(super) fn quota(&self) -> &'r Quota {
        self.limit.chosen(self.id)
    }

    /// The action forwards requests nevertheless.
    pub(super) fn forwards(&self) -> bool {
        self.action().forwards()
    }

    /// The status of its rejections, if the action answers.
    pub(super) fn status(&self) -> Option<StatusCode> {
        let rejection = self.limit.rejection(self.id, self.quota());
        match (self.action(), &self.outcome) {
            (Action::Drop, _) => None,
            (_, Err(Reason::KeyMissing | Reason::KeySeveral)) => {
                Some(rejection.spec.keyless_status)
            }
            _ => Some(rejection.spec.status),
        }
    }

    /// The instant at which the same request is admitted.
    pub(super) fn retry_at(&self) -> Option<Timestamp> {
        self.outcome.as_ref().ok()?.retry_at()
    }

    /// The algorithm returns units at the end of a request, not with time.
    pub(super) fn returns_units(&self) -> bool {
        self.quota().algorithm().is_concurrency()
    }

    pub(super) fn refuses(&self) -> bool {
        matches!(
            self.word,
            LimitDecision::Limited | LimitDecision::Tagged | LimitDecision::Routed
        )
    }

    /// The queue in which the request may have to wait.
    fn queue(&self) -> Option<QueueReport> {
        let waits = match self.outcome {
            Ok(_) => !self.refuses(),
            Err(reason) => matches!(reason, Reason::Queue(_)),
        };
        let can_refuse = self.enforcement == Enforcement::Enforced && !self.forwards();
        let queue = self.quota().algorithm().queueing();
        let queue = queue.filter(|_| waits && can_refuse)?;
        Some(QueueReport {
            places: queue.queue,
            max_wait_ms: queue.max_wait.into(),
        })
    }
}

fn zone(periods: &LocalPeriods, head: &Head<'_>) -> String {
    match periods.zone(head) {
        Some(zone) => format!("{zone}, from {}", periods.part),
        None => format!("the default: {} names none", periods.part),
    }
}
