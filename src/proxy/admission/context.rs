//! The inputs of one admission, and the charges that they make.

use std::sync::Arc;

use http::StatusCode;

use super::acquired_permits::AcquiredPermits;
use super::applicability::Applicability;
use super::mode::Enforcement;
use super::permit_queue::{Pending, PermitsResult};
use super::settle::UnsettledCharge;
use super::{Admission, LimitRecord, jitter};
use crate::clock::Timestamp;
use crate::limiter::{Fingerprint, KeyParts};
use crate::proxy::ruleset::{Limit, Route};
use crate::rules::{Estimate, Head, InvalidCost};
use crate::store::{
    Buckets, ChargeId, ChargeSet, ChargeSource, ChargedLimits, Penalties, PendingCharge,
    PolicyCharge, Reservation, Role, Store, Undecided, WithoutStore,
};
use crate::telemetry::metrics::LimitDecision;

/// The inputs of an admission at one instant.
#[derive(Clone, Copy)]
pub(in crate::proxy) struct AdmissionInputs<'a> {
    pub(in crate::proxy) route: &'a Route,
    /// The limits whose numbers charges have: those of the route, or those that it reports.
    pub(in crate::proxy) limits: &'a Vec<Limit>,
    pub(in crate::proxy) head: &'a Head<'a>,
    /// The store of the buckets; memory decides for all in a dry run.
    pub(in crate::proxy) store: &'a Store,
    pub(in crate::proxy) now: Timestamp,
    /// The request may wait for units.
    pub(in crate::proxy) may_wait: bool,
}

/// A look at a request, which the store may still have to decide.
#[derive(Debug, Default)]
pub(in crate::proxy) struct Peeked {
    /// The limits for whose permits the request would wait.
    pub(in crate::proxy) queued: Vec<u16>,
    /// The decision of Redis, which is still to be asked.
    pub(in crate::proxy) pending: Option<Box<PendingCharge>>,
}

/// Charges the request to all limits of its route or to none, in memory and without waiting.
///
/// # Errors
/// The request states no number where an enforced limit reads its cost. Nothing is charged then.
pub(in crate::proxy) fn admit_in_memory(
    inputs: &AdmissionInputs<'_>,
    admission: &mut Admission,
) -> Result<(), InvalidCost> {
    if inputs.admit_plainly(admission) || inputs.refuse_without_claims(admission)? {
        return Ok(());
    }
    let mut set = inputs.empty_set();
    inputs.add_all(&mut set, admission)?;
    set.charge(&mut admission.result);
    admission.conclude(inputs);
    Ok(())
}

impl<'a> AdmissionInputs<'a> {
    /// The inputs for the limits of a route. `store` has the buckets.
    pub(in crate::proxy) fn new(
        store: &'a Store,
        route: &'a Route,
        head: &'a Head<'a>,
        now: Timestamp,
    ) -> Self {
        Self {
            route,
            limits: &route.limits,
            head,
            store,
            now,
            may_wait: route.may_wait,
        }
    }

    /// Charges the request to all limits of its route or to none, unless it has to wait first. The
    /// decisions go to `admission`.
    ///
    /// # Errors
    /// As [`admit_in_memory`].
    pub(in crate::proxy) fn admit(
        &self,
        acquired: AcquiredPermits,
        admission: &mut Admission,
    ) -> Result<Option<Pending>, InvalidCost> {
        if self.admit_plainly(admission)
            || acquired.is_empty() && self.refuse_without_claims(admission)?
        {
            return Ok(None);
        }
        let mut set = self.empty_set();
        self.add_all(&mut set, admission)?;
        admission.acquired = acquired;
        let queues = set.queues();
        if !queues.is_empty() && !set.is_banned() {
            match self.acquire_permits(&mut set, &queues, admission) {
                PermitsResult::Charged => {
                    admission.conclude(self);
                    return Ok(None);
                }
                PermitsResult::Waits(waiter) => return Ok(Some(Pending::Permit(waiter))),
                PermitsResult::Acquired => {}
            }
        }
        if let Some(decided) = self.charge_or_wait(&mut set, admission) {
            return Ok(decided);
        }
        Ok(self.charge_all(&mut set, admission))
    }

    /// Charges a request that access rules deny with this status to the limits that it meets
    /// nevertheless, or to none.
    ///
    /// # Errors
    /// As [`admit_in_memory`].
    pub(in crate::proxy) fn admit_denied(
        &self,
        status: StatusCode,
        admission: &mut Admission,
    ) -> Result<Option<Pending>, InvalidCost> {
        let mut set = self.empty_set();
        self.add_limits(&mut set, admission, |limit| limit.counts_denied(status))?;
        if admission.keyless.is_some() {
            set.clear();
        }
        Ok(self.charge_all(&mut set, admission))
    }

    /// Charges all of a set or none, unless the store has to be asked, a refusal is in doubt, or the
    /// request waits for units.
    fn charge_all(&self, set: &mut ChargeSet<'_>, admission: &mut Admission) -> Option<Pending> {
        if let Some(pending) = set.charge(&mut admission.result) {
            return Some(Pending::Store(pending));
        }
        let waits = admission
            .doubt(self.now)
            .or_else(|| admission.wait_for_units(self));
        if waits.is_none() {
            admission.conclude(self);
        }
        waits
    }

    /// Decides as [`admit`](Self::admit) does, or as [`admit_denied`](Self::admit_denied) with this
    /// status, and charges nothing. All limits decide, also beside one that the request lacks the key
    /// of.
    ///
    /// # Errors
    /// As [`admit_in_memory`].
    pub(in crate::proxy) fn peek(
        &self,
        denied: Option<StatusCode>,
        admission: &mut Admission,
    ) -> Result<Peeked, InvalidCost> {
        let mut set = self.empty_set();
        match denied {
            Some(status) => {
                self.add_limits(&mut set, admission, |limit| limit.counts_denied(status))?
            }
            None => {
                self.add_limits(&mut set, admission, |_| true)?;
                self.add_tags(&mut set, admission, |_| true);
            }
        }
        let queued = set.skip_queues();
        let pending = set.peek(&mut admission.result);
        Ok(Peeked { queued, pending })
    }

    /// An empty set of charges. It is large, and is never moved.
    pub(super) fn empty_set(&'a self) -> ChargeSet<'a> {
        ChargeSet::new(self.store, self, self.now)
    }

    /// Adds the charges of all limits that apply; none if one refuses because the request lacks its
    /// key.
    ///
    /// # Errors
    /// As [`admit_in_memory`].
    fn add_all(
        &'a self,
        set: &mut ChargeSet<'a>,
        admission: &mut Admission,
    ) -> Result<(), InvalidCost> {
        self.add_limits(set, admission, |_| true)?;
        if admission.keyless.is_some() {
            set.clear();
        } else {
            // Each call of Redis takes time: it decides tags in the same one.
            self.add_tags(set, admission, |limit| self.decides_later(limit));
        }
        Ok(())
    }

    /// True if Redis decides on a limit.
    pub(super) fn decides_later(&self, limit: &Limit) -> bool {
        self.store.redis().is_some() && limit.policy.quota.buckets.is_in_redis()
    }

    /// Adds the charges of those limits that tag and are `wanted`.
    pub(super) fn add_tags(
        &'a self,
        set: &mut ChargeSet<'a>,
        admission: &mut Admission,
        wanted: impl Fn(&Limit) -> bool,
    ) {
        let tags = self.route.tags_for(self.head);
        for (number, limit) in tags.filter(|(_, limit)| wanted(limit)) {
            // A tag refuses nothing.
            let (Ok(()) | Err(InvalidCost)) = self.add(number, limit, set, admission);
        }
    }

    /// Adds the charges of the limits that apply and are `wanted`.
    ///
    /// # Errors
    /// As [`admit_in_memory`].
    pub(super) fn add_limits(
        &'a self,
        set: &mut ChargeSet<'a>,
        admission: &mut Admission,
        wanted: impl Fn(&Limit) -> bool,
    ) -> Result<(), InvalidCost> {
        admission.records.clear();
        admission.keyless = None;
        let limits = (0_u16..).zip(self.route.limits_for(self.head));
        for (number, limit) in limits.filter(|(_, limit)| wanted(limit)) {
            self.add(number, limit, set, admission)?;
        }
        Ok(())
    }

    /// Adds the charge of a limit, if it applies, or notes what it does without one.
    ///
    /// # Errors
    /// As [`admit_in_memory`], unless the limit tags.
    #[inline]
    fn add(
        &'a self,
        number: u16,
        limit: &Limit,
        set: &mut ChargeSet<'a>,
        admission: &mut Admission,
    ) -> Result<(), InvalidCost> {
        let applicability = limit.evaluate(self.head);
        let place = match applicability {
            Applicability::Bucket(_, place) | Applicability::Keyless(place) => place,
            Applicability::Elsewhere => return Ok(()),
            Applicability::Exempt | Applicability::Skipped => {
                admission.note(number, LimitDecision::Exempt);
                return Ok(());
            }
        };
        let (is_tag, effect) = (
            self.route.is_tag(number),
            limit.enforcement(place, self.head),
        );
        let cost = limit.spec.cost.of(self.head);
        match (applicability, cost) {
            (Applicability::Bucket(key, _), Ok(cost)) => {
                let role = match (is_tag, effect) {
                    (false, Enforcement::Enforced) => Role::Refuses,
                    (false, Enforcement::Shadowed) => Role::Shadows,
                    (true, Enforcement::Enforced) => Role::Tags,
                    (true, Enforcement::Shadowed) => Role::ShadowTags,
                };
                set.push(self.charge(number, key, place, cost, role));
            }
            _ if is_tag || effect == Enforcement::Shadowed => {
                let id = ChargeId::new(number, place);
                admission.note(number, limit.forwarded_word(id, effect));
            }
            (Applicability::Bucket(..), Err(InvalidCost)) => return Err(InvalidCost),
            _ if admission.keyless.is_none() => {
                admission.keyless = Some((number, place));
                admission.note(number, LimitDecision::Limited);
            }
            _ => {}
        }
        Ok(())
    }

    /// The charge of a limit to the bucket of `key`, under the quota at `place`. One in shadow bans
    /// nobody.
    pub(in crate::proxy) fn charge(
        &self,
        number: u16,
        key: Fingerprint,
        place: Option<u32>,
        cost: u32,
        role: Role,
    ) -> PolicyCharge {
        let (limit, head, now) = (&self.limits[usize::from(number)], self.head, self.now);
        let quota = limit.quota(place);
        let charge = PolicyCharge {
            demand: limit.demand(place, Some(head), cost),
            window_end: quota.window_end(head, now),
            settles: limit.spec.settlement.is_some(),
            role,
            ..PolicyCharge::new(ChargeId::new(number, place), key, cost)
        };
        let penalties = limit.policy.penalties.as_deref();
        let ban_key = penalties.map_or(key, |penalties| limit.ban_key(penalties, head, key));
        let steered = limit.steered(key, &quota.buckets, head, now);
        let banned_until = match role {
            Role::Refuses | Role::Tags | Role::ShadowTags => penalties
                .and_then(|penalties| penalties.banned_until(ban_key, now))
                .max(steered.and_then(|steered| steered.banned_until)),
            Role::Shadows => None,
        };
        PolicyCharge { ban_key, ..charge }.steered(banned_until, steered)
    }
}

impl Admission {
    /// Notes what a limit did without a bucket.
    pub(super) fn note(&mut self, limit: u16, word: LimitDecision) {
        let place = None;
        self.records.push(LimitRecord { limit, word, place });
    }

    /// Keeps charges that the response settles.
    pub(super) fn reserve(
        &mut self,
        reserved: &mut Vec<(u16, Reservation)>,
        inputs: &AdmissionInputs<'_>,
    ) {
        let unsettled = |(limit, reservation): (u16, Reservation)| {
            let spec = &inputs.route.limit(limit).spec;
            let settlement = spec.settlement.as_ref();
            let units = reservation.units();
            UnsettledCharge {
                limit,
                estimate: Estimate {
                    reserved: settlement.map_or(units, |rule| rule.reserved(units)),
                    least: spec.cost.least(inputs.head),
                    price: settlement.and_then(|rule| rule.price(inputs.head)),
                },
                reservation,
                usage: None,
            }
        };
        self.reserved_charges
            .extend(reserved.drain(..).map(unsettled));
    }

    /// Counts and keeps the decision of the store.
    pub(super) fn conclude(&mut self, inputs: &AdmissionInputs<'_>) {
        self.now = inputs.now;
        self.apply_soft_limits(inputs.route);
        self.jitter = self.jitter(inputs);
        if let Some(held) = self.result.held() {
            let mut reserved = std::mem::take(&mut held.reservations);
            self.reserve(&mut reserved, inputs);
        }
        self.acquired.end_turn(self.now);
        if self.is_refused() {
            self.acquired.give_back();
        }
        self.record_decisions(inputs.route);
    }

    /// Notes the decisions on a request that is only looked at. It is undecided if a store
    /// does not answer.
    pub(in crate::proxy) fn conclude_peek(
        &mut self,
        route: &Route,
        is_undecided: bool,
        now: Timestamp,
    ) {
        self.now = now;
        if self.keyless.is_none() && !is_undecided {
            self.apply_soft_limits(route);
        }
        self.note_decisions(route, 0, |_| true);
    }

    /// Keeps the decision of a charge that was pending, unless it is in doubt, or the request waits for
    /// units.
    ///
    /// # Errors
    /// A limit refuses because its store does not answer.
    pub(in crate::proxy) fn conclude_pending(
        &mut self,
        decided: Result<(), Undecided>,
        inputs: &AdmissionInputs<'_>,
    ) -> Result<Option<Pending>, Undecided> {
        if let Some(doubt) = self.doubt(inputs.now) {
            return Ok(Some(doubt));
        }
        if decided.is_ok()
            && let Some(waits) = self.wait_for_units(inputs)
        {
            return Ok(Some(waits));
        }
        let held = self.result.held();
        let without_store = held.map(|held| std::mem::take(&mut held.without_store));
        match decided {
            Ok(()) => self.conclude(inputs),
            Err(Undecided) => self.acquired.give_back(),
        }
        for WithoutStore {
            limit: number,
            on_error,
            ..
        } in without_store.unwrap_or_default()
        {
            let is_refused = decided.is_err() || self.is_refused();
            if is_refused && inputs.route.is_tag(number) {
                continue;
            }
            let limit = inputs.route.limit(number);
            let place = limit.evaluate(inputs.head).place();
            let effect = limit.enforcement(place, inputs.head);
            let word = limit.word_without_store(ChargeId::new(number, place), on_error, effect);
            limit.metrics.record(word);
            self.note(number, word);
        }
        decided.map(|()| None)
    }

    /// The jitter of a refusal, by the policy that decides.
    pub(super) fn jitter(&self, inputs: &AdmissionInputs<'_>) -> u64 {
        let result = &self.result;
        match result.buckets.get(result.verdict.deciding) {
            Some(charge) if !result.verdict.is_admitted() => {
                let limit = inputs.route.limit(charge.id.limit);
                let most = limit.policy.retry_after_jitter;
                jitter::of(most, &limit.secret, charge.key, inputs.now)
            }
            _ => 0,
        }
    }
}

impl ChargeSource for AdmissionInputs<'_> {
    fn limits(&self) -> &dyn ChargedLimits {
        self.limits
    }

    fn write_key(&self, limit: u16, mut parts: &mut dyn KeyParts) -> bool {
        let descriptor = &self.limits[usize::from(limit)].spec.descriptor;
        descriptor.feed(self.head, &mut parts).is_ok()
    }

    fn period(&self, id: ChargeId, now: Timestamp) -> Option<(Timestamp, Timestamp)> {
        let limit = &self.limits[usize::from(id.limit)];
        limit.chosen(id).period(self.head, now)
    }
}

impl ChargedLimits for Vec<Limit> {
    fn buckets(&self, id: ChargeId) -> &Arc<Buckets> {
        &self[usize::from(id.limit)].quota(id.place).buckets
    }

    fn granted(&self, limit: u16) -> Option<&Arc<Buckets>> {
        self[usize::from(limit)].policy.steering.known_grants()
    }

    fn penalties(&self, limit: u16) -> Option<&Penalties> {
        self[usize::from(limit)].policy.penalties.as_deref()
    }
}
