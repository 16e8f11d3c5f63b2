//! The short way of most requests: each limit of the route is enforced in memory, and has one bucket
//! for the request, which nothing but the charge changes. The decision is that of the long way.

use smallvec::SmallVec;

use super::Admission;
use super::applicability::Applicability;
use super::context::AdmissionInputs;
use super::mode::{Enforcement, Mode};
use crate::limiter::Algorithm;
use crate::proxy::ruleset::{Limit, Policy, Preflight, Quota, Route};
use crate::store::{Charge, ChargeId, DecidedBucket, Home, Role, Store, charge_into};

impl Policy {
    /// True for an enforced policy whose one bucket in memory decides alone.
    fn is_plain(&self) -> bool {
        let is_plain = |quota: &Quota| {
            // A request holds a permit or a place in the queue until it ends.
            let holds = matches!(
                quota.algorithm(),
                Algorithm::Concurrency(_) | Algorithm::LeakyBucket(_)
            );
            let ends_by_request = quota.local_periods.is_some();
            let is_in_memory = quota.buckets.home == Home::Memory;
            is_in_memory && !holds && !ends_by_request && quota.overflow.is_none()
        };
        self.mode.configured == Mode::Enforce
            && self.quotas().all(is_plain)
            && self.penalties.is_none()
            && self.soft_limits.is_empty()
            && self.turns.is_none()
    }
}

impl Limit {
    fn is_plain(&self) -> bool {
        self.policy.is_plain() && self.spec.settlement.is_none() && !self.reads_token
    }
}

impl Route {
    /// True if each of these limits, the first `refusing` of which can refuse, is plain.
    pub(in crate::proxy) fn has_plain_limits(
        limits: &[Limit],
        refusing: usize,
        preflight: Preflight,
    ) -> bool {
        limits.len() == refusing
            && preflight == Preflight::Limited
            && limits.iter().all(Limit::is_plain)
    }
}

impl AdmissionInputs<'_> {
    /// Charges all limits of the request or none, if each is enforced and charges one bucket of its
    /// policy. Returns `false` otherwise; then nothing is charged.
    pub(super) fn admit_plainly(&self, admission: &mut Admission) -> bool {
        // Charges of memory are in doubt while Redis decides on their requests.
        if !self.route.is_plain || !matches!(self.store, Store::Memory) {
            return false;
        }
        let mut charges: SmallVec<[Charge<'_>; 4]> = SmallVec::new();
        let result = &mut admission.result;
        result.buckets.clear();
        for (number, limit) in (0..).zip(&self.route.limits) {
            let (key, place) = match limit.evaluate(self.head) {
                Applicability::Bucket(key, place) => (key, place),
                Applicability::Elsewhere => continue,
                _ => return false,
            };
            let (cost, buckets) = (limit.spec.cost.of(self.head), &limit.quota(place).buckets);
            let is_enforced = limit.enforcement(place, self.head) == Enforcement::Enforced;
            let is_steered = limit.steered(key, buckets, self.head, self.now).is_some();
            let (Ok(cost), true, false) = (cost, is_enforced, is_steered) else {
                return false;
            };
            let demand = limit.demand(place, Some(self.head), cost);
            charges.push(buckets.charge(key, demand, None));
            let id = ChargeId::new(number, place);
            result.buckets.push(DecidedBucket {
                id,
                role: Role::Refuses,
                key,
                cost,
            });
        }
        charge_into(&mut result.verdict, &charges, self.now);
        admission.records.clear();
        admission.now = self.now;
        admission.jitter = admission.jitter(self);
        admission.record_decisions(self.route);
        true
    }
}
