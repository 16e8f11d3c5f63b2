//! The decision after Redis has answered, or has not.

use smallvec::SmallVec;

use super::{BucketHome, PendingCharge, PendingRedisCharge, Through, peek_spared};
use crate::clock::Timestamp;
use crate::limiter::{Decision, Secret, Verdict};
use crate::proxy::admission::in_flight::InFlightGuard;
use crate::proxy::admission::settle::{AnyReservation, ReservedCharge};
use crate::proxy::admission::tag::{RedisAnswer, RedisTagDecision};
use crate::proxy::admission::{Admission, AdmissionContext, ChargeSet, RemoteBucket};
use crate::proxy::answers::error::Error;
use crate::proxy::ruleset::{Limit, OnStoreError, Policy, Route};
use crate::store::Refusals;
use crate::store::redis::{self, BucketReplies, BucketReply, ChargeError};
use crate::telemetry::metrics::LimitDecision;

impl PendingRedisCharge {
    /// Stores the decision in `admission`; returns the decisions of limits that tag.
    ///
    /// # Errors
    /// A limit refuses because its store does not answer.
    pub(in crate::proxy) fn finish(
        mut self: Box<Self>,
        route: &Route,
        secret: &Secret,
        now: Timestamp,
        admission: &mut Admission,
    ) -> Result<Vec<RedisTagDecision>, Error> {
        let error = match self.answer.take() {
            Some(Ok(answers)) => {
                self.apply_reply(route, answers, now);
                None
            }
            Some(Err(error)) => {
                self.decide_here(route, &error, now)?;
                Some(error)
            }
            None => None,
        };
        let mut context = AdmissionContext::new(route, secret, now, admission);
        context.uncharged = std::mem::take(&mut self.noted);
        let reserved_charges = self.merge(&mut context);
        context.strike(&[]);
        context.store_decision(
            reserved_charges,
            std::mem::take(&mut self.taken),
            self.acquired,
        );
        if admission.is_refused() {
            // Limits that tag were not charged.
            return Ok(Vec::new());
        }
        let through = self.through.as_ref();
        let tags = self.tags.into_iter();
        let told = tags.map(|tag| tag.told(&route.tags, through, error.as_ref(), now));
        Ok(told.collect())
    }

    /// Applies the replies of Redis.
    fn apply_reply(&mut self, route: &Route, answers: BucketReplies, now: Timestamp) {
        let is_remote = |entry: &&mut PendingCharge| matches!(entry.home, BucketHome::Redis(_));
        let entries = self.entries.iter_mut().filter(is_remote);
        let entries = entries.map(|entry| (entry, &route.limits));
        let tags = self.tags.iter_mut().map(|tag| (tag, &route.tags));
        for ((entry, limits), said) in entries.chain(tags).zip(answers) {
            if let Some(said) = said {
                entry.move_on(limits, said.tier);
                entry.remember(limits, &said.decision, now);
            }
            if let BucketHome::Redis(remote) = &mut entry.home {
                (remote.said, remote.decision) = (said, said.map(|said| said.decision));
            }
        }
    }

    /// Decides in memory for the limits without a reply.
    fn decide_here(
        &mut self,
        route: &Route,
        error: &ChargeError,
        now: Timestamp,
    ) -> Result<(), Error> {
        let mut local = ChargeSet::default();
        let mut binding = 0;
        let mut places: SmallVec<[usize; 4]> = SmallVec::new();
        let mut is_undecided = false;
        for (index, entry, _) in self.remote() {
            let is_binding = index < self.binding && !self.is_refused;
            let limit = entry.matched.limit(&route.limits);
            match on_error(entry.policy(&route.limits), error, now) {
                OnStoreError::Local => {
                    places.push(index);
                    local.push(entry.matched, entry.charge(&route.limits));
                    binding += usize::from(is_binding);
                }
                OnStoreError::Admit => limit.metrics.record(LimitDecision::Error),
                OnStoreError::Refuse => {
                    limit.metrics.record(LimitDecision::Error);
                    is_undecided |= is_binding;
                }
            }
        }
        if is_undecided {
            for (_, reservation) in self.reserved.drain(..) {
                reservation.give_back(now);
            }
            return Err(Error::Undecided);
        }
        let settled = local.settleable(route, |limit| limit.spec.settlement.is_some());
        let mut verdict = Verdict::default();
        let last = Refusals::Charged;
        let reserved = local.charge_reserving(route, &settled, binding, now, last, &mut verdict);
        let reserved = reserved.into_iter();
        self.reserved
            .extend(reserved.map(|(place, reservation)| (places[place], reservation)));
        self.taken.extend(local.in_flight_guards(route, &verdict));
        for (place, index) in places.into_iter().enumerate() {
            let entry = &mut self.entries[index];
            entry.matched = local.limits[place];
            if let BucketHome::Redis(remote) = &mut entry.home {
                remote.decision = Some(verdict.decisions[place]);
            }
        }
        Ok(())
    }

    /// Merges the decisions of memory and Redis. If Redis refuses, gives the charges in memory
    /// back. Returns the charges that the response settles.
    fn merge(&mut self, context: &mut AdmissionContext<'_, '_>) -> Vec<ReservedCharge> {
        let (route, now) = (context.route, context.now);
        let is_refused = self.remote().any(|(index, _, remote)| {
            let refuses = |decision: Decision| !decision.is_admitted();
            index < self.binding && remote.decision.is_some_and(refuses)
        });
        let is_admitted = !self.is_refused && !is_refused;
        let mut reserved_charges = self.settle_reserved(route, is_admitted, now);
        match is_admitted {
            true => self.keep(context, &mut reserved_charges),
            false => self.taken.clear(),
        }
        let mut decisions: SmallVec<[Decision; 4]> = SmallVec::new();
        for (index, entry) in self.entries.iter_mut().enumerate() {
            let charge = entry.charge(&route.limits);
            let decision = match &mut entry.home {
                BucketHome::Memory(decision) if is_admitted || self.is_refused => *decision,
                BucketHome::Memory(decision)
                    if !decision.is_admitted() || charge.is_charged_if_refused() =>
                {
                    *decision
                }
                BucketHome::Memory(_) => peek_spared(&charge, now),
                BucketHome::Redis(remote) => {
                    remote.end_lending();
                    let Some(decision) = remote.decision else {
                        continue;
                    };
                    decision
                }
            };
            context.charge_set.push(entry.matched, charge);
            context.binding += usize::from(index < self.binding);
            decisions.push(decision);
        }
        context.admission.verdict = Verdict::of(decisions, context.binding);
        reserved_charges
    }

    /// The reservations in memory that the response settles. The others stay, or are given back.
    fn settle_reserved(
        &mut self,
        route: &Route,
        is_admitted: bool,
        now: Timestamp,
    ) -> Vec<ReservedCharge> {
        let mut reserved_charges = Vec::new();
        for (index, reservation) in self.reserved.drain(..) {
            let entry = &self.entries[index];
            let place = usize::from(entry.matched.place);
            match is_admitted {
                true if route.limits[place].spec.settlement.is_some() => {
                    reserved_charges.push(ReservedCharge::new(
                        place,
                        AnyReservation::Here(reservation),
                    ));
                }
                false if !entry.charge(&route.limits).is_charged_if_refused() => {
                    reservation.give_back(now)
                }
                _ => {}
            }
        }
        reserved_charges
    }

    /// Keeps what an admitted request holds in Redis until it ends.
    fn keep(
        &mut self,
        context: &mut AdmissionContext<'_, '_>,
        reserved_charges: &mut Vec<ReservedCharge>,
    ) {
        let route = context.route;
        let through = self.through.take();
        for entry in &mut self.entries {
            let place = usize::from(entry.matched.place);
            self.taken.extend(entry.taken(&route.limits));
            let due = entry.due(&route.limits, through.as_ref());
            reserved_charges
                .extend(due.map(|due| ReservedCharge::new(place, AnyReservation::InRedis(due))));
            let turn = entry.turn(&route.limits, through.as_ref());
            let turn = turn.map(|turn| (entry.matched.place, turn));
            context.admission.queue_places.extend(turn);
        }
        self.through = through;
    }
}

impl RemoteBucket {
    /// Ends the leases of a refused request: a refused lease holds nothing; any other may hold
    /// units, and is given back.
    fn end_lending(&mut self) {
        if let Some(lending) = self.lending.take().filter(|_| self.said.is_some()) {
            lending.forget();
        }
    }
}

impl PendingCharge {
    /// Moves on to the overflow bucket that replied.
    fn move_on(&mut self, limits: &[Limit], tier: usize) {
        let limit = self.matched.limit(limits);
        for _ in 0..tier {
            self.matched.chosen = limit
                .after(self.matched.chosen)
                .unwrap_or(self.matched.chosen);
        }
    }

    /// The reply of a bucket that Redis charged.
    fn charged(&self) -> Option<&BucketReply> {
        let BucketHome::Redis(remote) = &self.home else {
            return None;
        };
        let said = remote.said.as_ref()?;
        (said.decision.is_admitted() && self.cost > 0).then_some(said)
    }

    /// The guard of an admitted request's leased units. If Redis has not answered, it is still told
    /// of them.
    fn taken(&mut self, limits: &[Limit]) -> Option<InFlightGuard> {
        let cost = self.cost;
        let policy = self.policy(limits);
        let BucketHome::Redis(remote) = &mut self.home else {
            return None;
        };
        let is_refused = remote
            .decision
            .is_some_and(|decision| !decision.is_admitted());
        // If memory decided, it counts the units.
        let is_counted = remote.said.is_none() && remote.decision.is_some();
        let mut lending = remote.lending.take_if(|_| !is_refused)?;
        lending.renew();
        let in_use = policy.in_use_metrics.as_ref().filter(|_| !is_counted);
        Some(InFlightGuard::of_lease(lending, in_use, cost))
    }

    /// The reservation in Redis that the response settles.
    fn due(&self, limits: &[Limit], through: Option<&Through>) -> Option<redis::Reservation> {
        self.matched.limit(limits).spec.settlement.as_ref()?;
        let (store, worker) = through?;
        let place = self.place(limits, store, *worker)?;
        Some(place.reservation(self.charged()?))
    }

    /// The place in a queue in Redis.
    fn turn(&self, limits: &[Limit], through: Option<&Through>) -> Option<redis::QueuePlace> {
        let said = self.charged()?;
        said.decision.delayed_until()?;
        let (store, worker) = through?;
        self.place(limits, store, *worker)?.queue_place(said)
    }

    /// The decision on a limit that tags an admitted request.
    fn told(
        mut self,
        limits: &[Limit],
        through: Option<&Through>,
        error: Option<&ChargeError>,
        now: Timestamp,
    ) -> RedisTagDecision {
        let said = match error {
            Some(error) => RedisAnswer::Unknown(on_error(self.policy(limits), error, now)),
            None => match &self.home {
                BucketHome::Redis(remote) => remote.decision.map_or_else(
                    || RedisAnswer::Unknown(OnStoreError::Admit),
                    RedisAnswer::Decided,
                ),
                BucketHome::Memory(decision) => RedisAnswer::Decided(*decision),
            },
        };
        let taken = match said {
            RedisAnswer::Decided(_) => self.taken(limits),
            // The lease may exist, and is given back.
            RedisAnswer::Unknown(_) => None,
        };
        if let BucketHome::Redis(remote) = &mut self.home {
            remote.end_lending();
        }
        RedisTagDecision {
            place: self.matched.place.into(),
            said,
            taken,
            due: self.due(limits, through),
        }
    }

    /// Remembers a refusal of Redis that lasts, unless Redis has to charge each refusal.
    fn remember(&self, limits: &[Limit], decision: &Decision, now: Timestamp) {
        let policy = self.policy(limits);
        let table = &policy.table;
        // Units that are given back arrive earlier than the refusal said.
        let is_given_back = table.algorithm().is_concurrency() || table.has_settlement();
        if let (Some(shared), BucketHome::Redis(remote), Refusals::Free, false) =
            (&policy.shared, &self.home, table.refusals(), is_given_back)
        {
            let key = remote.name.key;
            shared.refusals.note(key, self.cost, decision, now);
        }
    }
}

/// The decision for the policy without Redis. Errors that do not concern the whole server are
/// logged for each policy.
fn on_error(policy: &Policy, error: &ChargeError, now: Timestamp) -> OnStoreError {
    let Some(shared) = &policy.shared else {
        return OnStoreError::default();
    };
    if !error.is_server_fault()
        && let Some(omitted) = shared.undecided_log.admit(now)
    {
        tracing::warn!(policy = &*policy.name, %error, omitted, "no decision from the store");
    }
    shared.on_error
}
