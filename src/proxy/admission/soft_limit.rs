//! Soft limits: they answer requests that a bucket has paid for, once it has used more than they
//! allow. Such a request stays charged to all its policies, so that the quota is reached.

use super::Admission;
use crate::clock::Timestamp;
use crate::limiter::{Cell, Decision, Demand, Fingerprint, Outcome, Verdict};
use crate::proxy::ruleset::{Limit, Route, SoftLimit};
use crate::store::{ChargeId, Payer, Reservation};

impl Limit {
    /// The soft limit that a charge exceeds.
    pub(in crate::proxy) fn soft_limit(&self, id: ChargeId) -> Option<&SoftLimit> {
        self.policy.soft_limits.get(usize::from(id.soft?))
    }

    /// The place of the highest soft limit that an admitted request of `cost` units exceeds. Only
    /// the policy's own buckets have soft limits.
    pub(in crate::proxy) fn exceeded(&self, id: ChargeId, decision: &Decision) -> Option<u8> {
        let is_own = std::ptr::eq(self.quota(id.place), &self.policy.quota);
        let used = decision.capacity.saturating_sub(decision.remaining);
        let used = used.saturating_add(self.unreserved().into());
        let mut soft = self.policy.soft_limits.iter();
        let place = soft.rposition(|soft| used > soft.above)?;
        let is_paid = is_own && id.payer == Payer::Quota && decision.is_admitted();
        is_paid.then_some(place as u8)
    }

    /// The decision of the soft limit that the charge `id` exceeds: a refusal, unless it forwards. It
    /// lasts until the bucket, whose cell is `charged` unless the table has it, lets pass another
    /// request of `cost` units; for a ring in Redis, until it is surely full.
    pub(in crate::proxy) fn decide_softly(
        &self,
        id: ChargeId,
        key: Fingerprint,
        decision: Decision,
        charged: Option<Cell>,
        cost: u32,
        now: Timestamp,
    ) -> Decision {
        let Some(soft) = self.soft_limit(id) else {
            return decision;
        };
        let (action, _) = &soft.refusal;
        if action.forwards() {
            return decision;
        }
        let buckets = &self.policy.quota.buckets;
        let algorithm = buckets.algorithm();
        let charged = charged.filter(|_| algorithm.shape().is_none());
        let is_in_redis = buckets.is_in_redis();
        let demand = Demand {
            cost,
            required: 0,
            kept: algorithm.capacity().saturating_sub(soft.above),
        };
        let again = match charged {
            Some(cell) => {
                // In Redis it is in the time of the server, the decision in that of this machine.
                let (end, reset) = (cell.expires, decision.reset.as_micros());
                let ahead = end.wrapping_sub(reset) * u64::from(is_in_redis);
                let shifted =
                    |at: Timestamp, by| Timestamp::from_micros(at.as_micros().wrapping_add(by));
                let again = algorithm.decide_keeping(cell, shifted(now, ahead), demand);
                match again.outcome {
                    Outcome::Refuse { retry_at } => Outcome::Refuse {
                        retry_at: retry_at.map(|at| shifted(at, ahead.wrapping_neg())),
                    },
                    admitted => admitted,
                }
            }
            None if is_in_redis => Outcome::Refuse {
                retry_at: Some(decision.reset),
            },
            None => (buckets.charge(key, demand, None).peek(now)).outcome,
        };
        decision.limited_until(match again {
            Outcome::Refuse { retry_at } => retry_at,
            Outcome::Admit | Outcome::Delay { .. } => Some(now),
        })
    }
}

impl Admission {
    /// Lets soft limits answer a request that all limits admit.
    pub(super) fn apply_soft_limits(&mut self, route: &Route) {
        let (result, now) = (&mut self.result, self.now);
        if !result.verdict.is_admitted() {
            return;
        }
        let enforced = result.verdict.enforced();
        let decided = result.buckets.iter_mut().zip(&mut result.verdict.decisions);
        for (charge, decision) in decided {
            let limit = route.limit(charge.id.limit);
            if !limit.soft_metrics.is_empty() && !charge.role.is_tag() {
                charge.id.soft = limit.exceeded(charge.id, decision);
                let (charged, cost) = (Some(decision.cell), charge.cost);
                *decision =
                    limit.decide_softly(charge.id, charge.key, *decision, charged, cost, now);
            }
        }
        let mut decisions = result.verdict.decisions[..enforced].iter();
        if decisions.all(Decision::is_admitted) {
            return;
        }
        let decisions = std::mem::take(&mut result.verdict.decisions);
        result.verdict = Verdict::of(decisions, enforced);
        result.release();
        let verdict = &result.verdict;
        let limited = result.buckets.iter().zip(&verdict.decisions);
        let limited = limited.filter(|(_, decision)| !decision.is_admitted());
        let limited: Vec<_> = limited.map(|(charge, _)| charge.id.limit).collect();
        if let Some(held) = result.held() {
            // Whatever the answer, what was charged stays: no upstream has seen the request.
            let units = |place: u16, charged: u32| {
                let limit = route.limit(place);
                if limited.contains(&place) {
                    return Some(limit.unreserved().max(charged));
                }
                limit.spec.settlement.as_ref()?.of_own_answer(charged)
            };
            let is_known = |(limit, reservation): &mut (u16, Reservation)| {
                units(*limit, reservation.units()).is_some()
            };
            for (limit, reservation) in held.reservations.extract_if(.., is_known) {
                if let Some(units) = units(limit, reservation.units()) {
                    reservation.settle(units, now);
                }
            }
        }
    }
}
