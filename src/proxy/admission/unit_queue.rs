//! Requests that wait for units (`on_limit: { action: wait }`).
//!
//! The requests of a key wait in order, and only the first, which has the turn, for units: it is
//! admitted anew when they come. A waiting request has been charged nothing. Queues are those of this
//! process, also for buckets in Redis.

use std::time::Duration;

use super::Admission;
use super::acquired_permits::{AcquiredPermits, Turn};
use super::context::AdmissionInputs;
use super::permit_queue::Pending;
use crate::clock::{Clock, Timestamp};
use crate::proxy::answers::action::Action;
use crate::proxy::ruleset::{Limit, Route};
use crate::store::{Ask, ChargeResult, ChargeSet, DecidedBucket};

/// The longest time without a look at the bucket: an operator or a reload may give it units.
const PAUSE: Duration = Duration::from_secs(1);

/// A request that waits for units, or for its turn.
#[derive(Debug)]
pub(crate) struct UnitWaiter {
    acquired: AcquiredPermits,
    limit: u16,
    deadline: Timestamp,
    /// The instant at which the units come, if the request has the turn.
    units_at: Option<Timestamp>,
}

impl UnitWaiter {
    /// The limit that the request waits for.
    pub(crate) fn limit<'r>(&self, route: &'r Route) -> &'r Limit {
        route.limit(self.limit)
    }

    /// Waits for the turn, or for the units, as long as the limit allows.
    pub(crate) async fn wait(self: Box<Self>, clock: &Clock) -> AcquiredPermits {
        let left = |until: Timestamp| until.since(clock.now());
        if let Some(at) = self.units_at {
            tokio::time::sleep(left(at).min(PAUSE)).await;
        } else if let Some(turn) = self.acquired.turn() {
            // In time or not, the request is decided next.
            _ = tokio::time::timeout(left(self.deadline), turn.permit.acquired()).await;
        }
        self.acquired
    }
}

impl Limit {
    /// The longest wait for units of a bucket, if requests wait for them.
    pub(in crate::proxy) fn max_wait(&self, bucket: &DecidedBucket) -> Option<Duration> {
        match self.action(bucket.id) {
            Action::Wait(spec) => Some(spec.max_wait),
            _ => None,
        }
    }
}

impl AdmissionInputs<'_> {
    /// Charges a request of a route on which requests wait, unless it has to wait: behind those of its
    /// key that wait already, or for units. `None` if it is neither charged nor waits, or Redis decides.
    pub(super) fn charge_or_wait(
        &self,
        set: &mut ChargeSet<'_>,
        admission: &mut Admission,
    ) -> Option<Option<Pending>> {
        if !self.may_wait || set.is_banned() {
            return None;
        }
        if admission.acquired.turn().is_none()
            && let Some(decided) = self.follow(set, admission)
        {
            return Some(decided);
        }
        if set.is_remote() {
            return None;
        }
        if set.try_charge(&mut admission.result) {
            admission.conclude(self);
            return Some(None);
        }
        admission.wait_for_units(self).map(Some)
    }

    /// Has a newcomer wait behind others of its key, or refuses it if the queue is full. `None` if there
    /// are no others, or another limit refuses it.
    fn follow(
        &self,
        set: &mut ChargeSet<'_>,
        admission: &mut Admission,
    ) -> Option<Option<Pending>> {
        let is_waited_for = |bucket: &DecidedBucket| {
            let limit = self.route.limit(bucket.id.limit);
            let turns = limit.policy.turns.as_ref();
            limit.max_wait(bucket).is_some() && turns.is_some_and(|one| one.is_taken(bucket.key))
        };
        let bucket = set.enforced().find(is_waited_for)?;
        set.refuse_by(Ask::Peek, bucket.id.limit, &mut admission.result);
        let (_, until) = admission.awaited(self.route)?;
        if let Some(waiter) = admission.enter(self, bucket, until) {
            return Some(Some(waiter));
        }
        set.refuse_by(Ask::Charge, bucket.id.limit, &mut admission.result);
        admission.conclude(self);
        Some(None)
    }
}

impl Admission {
    /// Has a refused request wait for units, if all limits that refuse it let it wait. `None` if it is to
    /// be refused.
    pub(super) fn wait_for_units(&mut self, inputs: &AdmissionInputs<'_>) -> Option<Pending> {
        let awaited = inputs.may_wait.then(|| self.awaited(inputs.route));
        let (bucket, until) = awaited.flatten()?;
        self.enter(inputs, bucket, until)
    }

    /// The bucket for whose units a refused request has to wait longest, and when they come; `None` if a
    /// limit refuses it that lets no request wait, or for good.
    pub(in crate::proxy) fn awaited(&self, route: &Route) -> Option<(DecidedBucket, Timestamp)> {
        let verdict = &self.result.verdict;
        let until = verdict.decision()?.retry_at()?;
        let decided = self.binding().iter().zip(&verdict.decisions);
        let mut refusing = decided.filter(|(_, decision)| !decision.is_admitted());
        let is_awaited = self.keyless.is_none()
            && !verdict.is_ban()
            && refusing.all(|(bucket, _)| route.limit(bucket.id.limit).max_wait(bucket).is_some());
        is_awaited.then(|| (self.binding()[verdict.deciding], until))
    }

    /// Takes the turn of the bucket's key, or a place in its queue. `None` if the queue is full, or the
    /// units come too late.
    fn enter(
        &mut self,
        inputs: &AdmissionInputs<'_>,
        DecidedBucket { id, key, .. }: DecidedBucket,
        until: Timestamp,
    ) -> Option<Pending> {
        let limit = inputs.route.limit(id.limit);
        let Action::Wait(spec) = limit.action(id) else {
            return None;
        };
        let before = self.acquired.turn();
        let since = before.map_or(inputs.now, |turn| turn.since);
        let deadline = since.saturating_add(spec.max_wait);
        if until > deadline {
            return None;
        }
        let is_same = |turn: &mut Box<Turn>| (turn.limit, turn.key) == (id.limit, key);
        let turn = match self.acquired.take_turn_if(is_same) {
            Some(turn) => turn,
            None => Box::new(Turn {
                limit: id.limit,
                key,
                // The one that has the turn waits, too.
                permit: limit.policy.turns.as_ref()?.take(key, spec.queue - 1)?,
                since,
                _waiting: (limit.policy.metrics.waits.as_ref()).map(|waits| waits.waiting.hold(1)),
            }),
        };
        let has_turn = !turn.permit.is_waiting();
        self.result = ChargeResult::default();
        // Others need what this one does not use yet.
        self.acquired.give_back();
        self.acquired.set_turn(turn);
        Some(Pending::Units(Box::new(UnitWaiter {
            acquired: std::mem::take(&mut self.acquired),
            limit: id.limit,
            deadline,
            units_at: has_turn.then_some(until),
        })))
    }
}
