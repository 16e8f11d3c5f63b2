//! The inputs of one admission, and the charges that they make.

use super::Admission;
use super::acquired_permits::AcquiredPermits;
use super::applicability::Applicability;
use super::mode::Enforcement;
use super::permit_queue::{Pending, PermitsResult};
use crate::clock::Timestamp;
use crate::limiter::{Fingerprint, KeyParts, Secret};
use crate::proxy::ruleset::{Limit, Route};
use crate::rules::{Head, InvalidCost};
use crate::store::{ChargeId, ChargeSet, ChargeSource, Payer, PolicyCharge, Store};
use crate::telemetry::metrics::LimitDecision;

/// The inputs of an admission at one instant.
#[derive(Clone, Copy)]
pub(in crate::proxy) struct AdmissionInputs<'a> {
    pub(in crate::proxy) route: &'a Route,
    pub(in crate::proxy) secret: &'a Secret,
    pub(in crate::proxy) head: &'a Head<'a>,
    /// The store of the buckets; memory decides for all in a dry run.
    pub(in crate::proxy) store: &'a Store,
    pub(in crate::proxy) now: Timestamp,
}

/// Charges the request to all limits of its route or to none, in memory and without waiting.
///
/// # Errors
/// The request states no number where an enforced limit reads its cost. Nothing is charged then.
pub(in crate::proxy) fn admit_in_memory(
    inputs: &AdmissionInputs<'_>,
    admission: &mut Admission,
) -> Result<(), InvalidCost> {
    if inputs.refuse_without_claims(admission)? {
        return Ok(());
    }
    let mut set = inputs.empty_set();
    inputs.add_limits(&mut set, admission, |_| true)?;
    let is_shadowed = |(_, decision): &(u16, LimitDecision)| *decision == LimitDecision::Shadowed;
    admission.is_shadowed = admission.uncharged.iter().any(is_shadowed);
    set.charge(&mut admission.result);
    admission.conclude(inputs);
    Ok(())
}

impl<'a> AdmissionInputs<'a> {
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
        if acquired.is_empty() && self.refuse_without_claims(admission)? {
            return Ok(None);
        }
        let mut set = self.empty_set();
        self.add_limits(&mut set, admission, |_| true)?;
        self.add_tags(&mut set, admission);
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
        let pending = set.charge(&mut admission.result);
        if let Some(pending) = pending {
            return Ok(Some(Pending::Store(pending)));
        }
        let doubt = admission.doubt(self.now);
        if doubt.is_none() {
            admission.conclude(self);
        }
        Ok(doubt)
    }

    /// An empty set of charges. It is large, and is never moved.
    pub(super) fn empty_set(&'a self) -> ChargeSet<'a> {
        ChargeSet::new(self.store, self, self.now)
    }

    /// Adds the charges of limits that tag and decide later.
    fn add_tags(&'a self, set: &mut ChargeSet<'a>, admission: &Admission) {
        if admission.keyless.is_some() {
            return;
        }
        for (number, limit) in self.route.tags_for(self.head) {
            if set.decides_later(&limit.policy.buckets)
                && let Applicability::Bucket(key, place) = limit.evaluate(self.secret, self.head)
                && let Ok(cost) = limit.spec.cost.of(self.head)
            {
                set.push_tag(&self.charge((number, limit), (key, place), cost));
            }
        }
    }

    /// Adds the charges of the limits that apply and are `wanted`; none if a limit refuses because
    /// the request lacks its key.
    ///
    /// # Errors
    /// As [`admit_in_memory`].
    pub(super) fn add_limits(
        &'a self,
        set: &mut ChargeSet<'a>,
        admission: &mut Admission,
        wanted: impl Fn(&Limit) -> bool,
    ) -> Result<(), InvalidCost> {
        admission.uncharged.clear();
        admission.keyless = None;
        for (number, limit) in (0_u16..).zip(self.route.limits_for(self.head)) {
            if !wanted(limit) {
                continue;
            }
            let enforcement = || {
                let descriptor = &limit.spec.descriptor;
                limit
                    .policy
                    .mode
                    .current()
                    .enforcement(descriptor, self.head)
            };
            match limit.evaluate(self.secret, self.head) {
                Applicability::Bucket(key, place) => {
                    let charge = |cost| self.charge((number, limit), (key, place), cost);
                    match (enforcement(), limit.spec.cost.of(self.head)) {
                        (Enforcement::Enforced, cost) => set.push(&charge(cost?), true),
                        (Enforcement::Shadowed, Ok(cost)) => set.push(&charge(cost), false),
                        (Enforcement::Shadowed, Err(InvalidCost)) => {
                            admission.uncharged.push((number, LimitDecision::Shadowed));
                        }
                    }
                }
                Applicability::Elsewhere => {}
                Applicability::Exempt | Applicability::Skipped => {
                    admission.uncharged.push((number, LimitDecision::Exempt));
                }
                Applicability::Keyless => match enforcement() {
                    Enforcement::Enforced => {
                        admission.keyless = admission.keyless.or(Some(number));
                    }
                    Enforcement::Shadowed => {
                        admission.uncharged.push((number, LimitDecision::Shadowed));
                    }
                },
            }
        }
        if admission.keyless.is_some() {
            set.clear();
        }
        Ok(())
    }

    /// The charge of a limit to the bucket of `key`, under the quota at `place`.
    pub(super) fn charge(
        &self,
        (number, limit): (u16, &'a Limit),
        (key, place): (Fingerprint, Option<u32>),
        cost: u32,
    ) -> PolicyCharge<'a> {
        let policy = limit.quota(place);
        let penalties = limit.policy.penalties.as_ref();
        PolicyCharge {
            id: ChargeId {
                limit: number,
                place,
                tier: 0,
                payer: Payer::Quota,
            },
            buckets: &policy.buckets,
            key,
            cost,
            window_end: policy.window_end(self.head, self.now),
            settles: limit.spec.settlement.is_some(),
            penalties: penalties.map(|one| (one, limit.ban_key(one, self.head, key))),
            steered: limit.steered(key, &policy.buckets, self.head, self.now),
        }
    }
}

impl ChargeSource for AdmissionInputs<'_> {
    fn write_key(&self, id: ChargeId, mut parts: &mut dyn KeyParts) -> bool {
        let descriptor = &self.route.limit(id.limit).spec.descriptor;
        descriptor.feed(self.head, &mut parts).is_ok()
    }

    fn period(&self, id: ChargeId, now: Timestamp) -> Option<(Timestamp, Timestamp)> {
        let limit = self.route.limit(id.limit);
        limit.chosen(id).period(self.head, now)
    }
}
