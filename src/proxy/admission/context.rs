//! The context of one admission: the limits that apply, their charges, and the decision at one
//! instant.

use std::mem;
use std::time::Duration;

use smallvec::SmallVec;

use super::Admission;
use super::acquired_permits::AcquiredPermits;
use super::applicability::Applicability;
use super::charge_set::{Ban, ChargeSet, MatchedLimit};
use super::in_flight::InFlightGuard;
use super::mode::Enforcement;
use super::redis_charge::{PendingCharge, PendingRedisCharge, pending_tag_charges};
use super::remote_bucket::RemoteBucket;
use super::settle::ReservedCharge;
use super::{jitter, sync_charges};
use crate::clock::Timestamp;
use crate::limiter::Secret;
use crate::proxy::ruleset::{Limit, Route};
use crate::rules::{Head, InvalidCost};
use crate::store::redis::Store;
use crate::store::{Charge, Refusals};
use crate::telemetry::metrics::LimitDecision;

/// The admission of one request at one instant. It is large, and is never moved.
pub(in crate::proxy) struct AdmissionContext<'r, 'a> {
    pub(in crate::proxy) route: &'r Route,
    pub(in crate::proxy) charge_set: ChargeSet<'r>,
    /// The number of enforced limits; they come first in the charge set.
    pub(in crate::proxy) binding: usize,
    pub(super) limit_without_key: Option<u16>,
    /// The charges that go to Redis.
    pub(in crate::proxy) remote: Vec<RemoteBucket>,
    /// The charges of limits that tag, for the same call to Redis.
    pub(super) tags: Vec<PendingCharge>,
    /// Decisions without a charge, for the metrics.
    pub(in crate::proxy) uncharged: SmallVec<[(u16, LimitDecision); 1]>,
    /// The request, once its limits were matched.
    pub(in crate::proxy) head: Option<&'a Head<'a>>,
    secret: &'r Secret,
    pub(in crate::proxy) now: Timestamp,
    pub(in crate::proxy) admission: &'a mut Admission,
}

/// Charges the request to all limits of its route or to none, in memory and without waiting.
///
/// # Errors
/// The request states no number where an enforced limit reads its cost. Nothing is charged then.
pub(in crate::proxy) fn admit(
    route: &Route,
    secret: &Secret,
    head: &Head<'_>,
    now: Timestamp,
) -> Result<Admission, InvalidCost> {
    let mut admission = Admission::default();
    let mut context = AdmissionContext::new(route, secret, now, &mut admission);
    if context.refuse_without_claims(head, None)? {
        return Ok(admission);
    }
    context.evaluate(head, None)?;
    let refused_unasked =
        |(_, decision): &(u16, LimitDecision)| *decision == LimitDecision::Shadowed;
    let is_shadowed = context.uncharged.iter().any(refused_unasked);
    context.decide(AcquiredPermits::default());
    admission.is_shadowed = is_shadowed;
    Ok(admission)
}

impl<'r, 'a> AdmissionContext<'r, 'a> {
    pub(in crate::proxy) fn new(
        route: &'r Route,
        secret: &'r Secret,
        now: Timestamp,
        admission: &'a mut Admission,
    ) -> Self {
        AdmissionContext {
            route,
            charge_set: ChargeSet::default(),
            binding: 0,
            limit_without_key: None,
            remote: Vec::new(),
            tags: Vec::new(),
            uncharged: SmallVec::new(),
            head: None,
            secret,
            now,
            admission,
        }
    }

    /// Matches the request against all limits of its route; without a `store`, in memory alone.
    ///
    /// # Errors
    /// As [`admit`].
    pub(in crate::proxy) fn evaluate(
        &mut self,
        head: &'a Head<'a>,
        store: Option<&Store>,
    ) -> Result<(), InvalidCost> {
        self.evaluate_limits(head, store, |_| true)?;
        if let Some(store) = store.filter(|_| self.limit_without_key.is_none()) {
            self.tags = pending_tag_charges(self.route, self.secret, head, store, self.now);
        }
        Ok(())
    }

    /// Matches the request against the limits that are `wanted`.
    pub(super) fn evaluate_limits(
        &mut self,
        head: &'a Head<'a>,
        store: Option<&Store>,
        wanted: impl Fn(&Limit) -> bool,
    ) -> Result<(), InvalidCost> {
        self.head = Some(head);
        let mut watching = Vec::new();
        for (place, limit) in (0_u16..).zip(self.route.limits_for(head)) {
            if !wanted(limit) {
                continue;
            }
            let stance = || limit.policy.mode.enforcement(&limit.spec.descriptor, head);
            match limit.evaluate(self.secret, head) {
                Applicability::Bucket(key, chosen) => {
                    let policy = limit.chosen(chosen);
                    if let Some(store) = store {
                        let remote =
                            RemoteBucket::of((place, limit), policy, store, head, self.now);
                        self.remote.extend(remote);
                    }
                    let charge = |cost| Charge {
                        table: &policy.table,
                        key,
                        cost,
                        window_end: policy.window_end(head, self.now),
                    };
                    let matched = MatchedLimit::new((place, limit), chosen, head, key);
                    match (stance(), limit.spec.cost.of(head)) {
                        (Enforcement::Enforced, cost) => {
                            self.charge_set.push(matched, charge(cost?))
                        }
                        (Enforcement::Shadowed, Ok(cost)) => watching.push((matched, charge(cost))),
                        (Enforcement::Shadowed, Err(InvalidCost)) => {
                            self.uncharged.push((place, LimitDecision::Shadowed));
                        }
                    }
                }
                Applicability::Elsewhere => {}
                Applicability::Exempt | Applicability::Skipped => {
                    self.uncharged.push((place, LimitDecision::Exempt));
                }
                Applicability::Keyless => match stance() {
                    Enforcement::Enforced => {
                        self.limit_without_key = self.limit_without_key.or(Some(place))
                    }
                    Enforcement::Shadowed => self.uncharged.push((place, LimitDecision::Shadowed)),
                },
            }
        }
        if self.limit_without_key.is_some() {
            self.charge_set = ChargeSet::default();
            self.remote.clear();
            return Ok(());
        }
        self.binding = self.charge_set.charges.len();
        for (matched, charge) in watching {
            self.charge_set.push(matched, charge);
        }
        Ok(())
    }

    /// True if a limit has its bucket in Redis.
    pub(in crate::proxy) fn asks_redis(&self) -> bool {
        !self.remote.is_empty() || !self.tags.is_empty()
    }

    /// True if an enforced limit has banned the key.
    pub(in crate::proxy) fn is_banned(&self) -> bool {
        !self
            .charge_set
            .bans(self.route, self.binding, self.now)
            .is_empty()
    }

    /// Charges all or none with the permits that the request holds; or returns the charge that
    /// Redis decides on.
    pub(in crate::proxy) fn decide(
        &mut self,
        acquired: AcquiredPermits,
    ) -> Option<Box<PendingRedisCharge>> {
        let bans = self.charge_set.bans(self.route, self.binding, self.now);
        if bans.is_empty() && self.asks_redis() {
            return self.ask(acquired);
        }
        let reserved_charges = match bans.is_empty() {
            true => self.charge(Refusals::Charged),
            false => {
                self.admission.verdict = self.charge_set.banned(&bans, self.binding, self.now);
                Vec::new()
            }
        };
        self.strike(&bans);
        self.finish(reserved_charges, acquired);
        None
    }

    /// Counts strikes for refusals, except of keys in `bans`.
    pub(in crate::proxy) fn strike(&mut self, bans: &[Ban]) {
        let verdict = &mut self.admission.verdict;
        self.charge_set.strike(self.route, bans, verdict, self.now);
    }

    /// Finishes a decision of memory, and keeps the units in use until the request ends.
    pub(in crate::proxy) fn finish(
        &mut self,
        reserved_charges: Vec<ReservedCharge>,
        acquired: AcquiredPermits,
    ) {
        let taken = self
            .charge_set
            .in_flight_guards(self.route, &self.admission.verdict);
        self.store_decision(reserved_charges, taken, acquired);
    }

    /// Charges the set, and returns the charges that the response settles.
    pub(in crate::proxy) fn charge(&mut self, last: Refusals) -> Vec<ReservedCharge> {
        let verdict = &mut self.admission.verdict;
        let mut reserved_charges =
            self.charge_set
                .charge(self.route, self.binding, self.now, last, verdict);
        if let Some(head) = self.head.filter(|_| self.route.is_synchronised) {
            let reserved = reserved_charges
                .iter_mut()
                .filter_map(|due| Some((due.place, due.reservation.here_mut()?)));
            let (rules, said) = ((self.route, head), (&*verdict, last));
            sync_charges::record(rules, &self.charge_set, said, self.now, reserved);
        }
        reserved_charges
    }

    /// The jitter of a refusal, by the policy that decides.
    fn jitter(&self) -> Duration {
        let verdict = &self.admission.verdict;
        let mut asked = self.charge_set.limits.iter().zip(&self.charge_set.charges);
        match asked.nth(verdict.deciding) {
            Some((matched, charge)) if !verdict.is_admitted() => {
                let policy = matched.policy(&self.route.limits);
                jitter::of(policy.retry_after_jitter, self.secret, charge.key, self.now)
            }
            _ => Duration::ZERO,
        }
    }

    /// Stores the decision in the admission, and counts it.
    pub(in crate::proxy) fn store_decision(
        &mut self,
        reserved_charges: Vec<ReservedCharge>,
        taken: Vec<InFlightGuard>,
        acquired: AcquiredPermits,
    ) {
        for &(place, decision) in &self.uncharged {
            self.route.limits[usize::from(place)]
                .metrics
                .record(decision);
        }
        let jitter = self.jitter();
        let admission = &mut *self.admission;
        admission.taken = taken;
        admission.reserved_charges = reserved_charges;
        admission.jitter = jitter;
        admission.acquired = acquired;
        admission.applied = mem::take(&mut self.charge_set.limits);
        admission.keyless = self.limit_without_key;
        admission.now = self.now;
        if admission.is_refused() {
            admission.acquired.give_back();
        }
        admission.count(self.route);
    }
}
