//! Memory is charged, and the rest is prepared for Redis.

use smallvec::SmallVec;

use super::{BucketHome, PendingCharge, PendingRedisCharge, peek_spared};
use crate::limiter::{Decision, Verdict};
use crate::proxy::admission::acquired_permits::AcquiredPermits;
use crate::proxy::admission::charge_set::{ChargeSet, MatchedLimit};
use crate::proxy::admission::context::AdmissionContext;
use crate::proxy::admission::remote_bucket::RemoteBucket;
use crate::proxy::admission::sync_charges;
use crate::store::{Charge, Refusals};

impl<'r> AdmissionContext<'r, '_> {
    /// Charges memory, and returns the charge for Redis; `None` if the request is decided.
    pub(in crate::proxy) fn ask(
        &mut self,
        acquired: AcquiredPermits,
    ) -> Option<Box<PendingRedisCharge>> {
        if self.recall() {
            self.store_decision(Vec::new(), Vec::new(), acquired);
            return None;
        }
        let (mut local, places, binding) = self.in_memory();
        let settled = local.settleable(self.route, |_| true);
        let verdict = &mut self.admission.verdict;
        let last = Refusals::Charged;
        let mut reserved =
            local.charge_reserving(self.route, &settled, binding, self.now, last, verdict);
        if let Some(head) = self.head.filter(|_| self.route.is_synchronised) {
            let of_limits = reserved
                .iter_mut()
                .map(|(index, its)| (usize::from(local.limits[*index].place), its));
            let (rules, said) = ((self.route, head), (&*verdict, last));
            sync_charges::record(rules, &local, said, self.now, of_limits);
        }
        let is_refused = !verdict.is_admitted();
        let taken = local.in_flight_guards(self.route, verdict);
        for (index, &place) in places.iter().enumerate() {
            self.charge_set.limits[place] = local.limits[index];
        }
        if is_refused && !self.is_owed_in_redis() {
            (self.charge_set, self.binding) = (local, binding);
            self.strike(&[]);
            self.store_decision(Vec::new(), Vec::new(), acquired);
            return None;
        }
        let mut decisions = self.admission.verdict.decisions.drain(..);
        let mut remote = std::mem::take(&mut self.remote);
        let entries = self.charge_set.limits.iter().zip(&self.charge_set.charges);
        let entries = entries.map(|(&matched, charge)| PendingCharge {
            matched,
            key: charge.key,
            cost: charge.cost,
            window_end: charge.window_end,
            home: match remote
                .iter()
                .position(|remote| remote.place == matched.place)
            {
                Some(index) => BucketHome::Redis(remote.swap_remove(index).into()),
                None => {
                    BucketHome::Memory(decisions.next().expect("memory decided on all that is its"))
                }
            },
        });
        Some(Box::new(PendingRedisCharge {
            entries: entries.collect(),
            binding: self.binding,
            tags: match is_refused {
                true => Vec::new(),
                false => std::mem::take(&mut self.tags),
            },
            is_refused,
            reserved: reserved
                .into_iter()
                .map(|(index, reservation)| (places[index], reservation))
                .collect(),
            taken,
            acquired,
            noted: std::mem::take(&mut self.uncharged),
            through: None,
            answer: None,
        }))
    }

    /// Keeps only the limits that charge refusals in Redis, for a request that memory refuses.
    /// False if there are none.
    fn is_owed_in_redis(&mut self) -> bool {
        let mut kept = ChargeSet::default();
        let mut binding = 0;
        let all = self.charge_set.limits.iter().zip(&self.charge_set.charges);
        for (place, (&matched, &charge)) in all.enumerate() {
            if !self.is_remote(matched) || charge.is_charged_if_refused() {
                kept.push(matched, charge);
                binding += usize::from(place < self.binding);
            }
        }
        (self.charge_set, self.binding) = (kept, binding);
        let applied = &self.charge_set.limits;
        applied.iter().any(|&matched| self.is_remote(matched))
    }

    fn is_remote(&self, matched: MatchedLimit) -> bool {
        self.remote
            .iter()
            .any(|remote| remote.place == matched.place)
    }

    /// The charges in memory, their indices in the whole set, and the number of enforced ones.
    pub(in crate::proxy::admission) fn in_memory(
        &self,
    ) -> (ChargeSet<'r>, SmallVec<[usize; 4]>, usize) {
        let mut local = ChargeSet::default();
        let mut places = SmallVec::new();
        let mut binding = 0;
        let all = self.charge_set.limits.iter().zip(&self.charge_set.charges);
        for (place, (&matched, &charge)) in all.enumerate() {
            if !self.is_remote(matched) {
                local.push(matched, charge);
                places.push(place);
                binding += usize::from(place < self.binding);
            }
        }
        (local, places, binding)
    }

    /// Refuses by a cached refusal of Redis: nothing is charged, and other limits in Redis tell no
    /// remaining units. Limits that charge refusals always call Redis.
    pub(in crate::proxy::admission) fn recall(&mut self) -> bool {
        if self
            .charge_set
            .charges
            .iter()
            .any(Charge::is_charged_if_refused)
        {
            return false;
        }
        let mut recalled: SmallVec<[(MatchedLimit, Decision); 1]> = SmallVec::new();
        let binding = self.charge_set.limits[..self.binding].iter();
        for (&matched, charge) in binding.zip(&self.charge_set.charges) {
            let its = |remote: &&RemoteBucket| remote.place == matched.place;
            let Some(remote) = self.remote.iter().find(its) else {
                continue;
            };
            let limit = matched.limit(&self.route.limits);
            // The cached refusal is of one of its buckets.
            let mut tiers = std::iter::successors(Some(matched.chosen), |tier| limit.after(*tier));
            let told = tiers.find_map(|tier| {
                let shared = limit.chosen(tier).shared.as_ref()?;
                let told = shared
                    .refusals
                    .get(remote.name.key, charge.cost, self.now)?;
                let chosen = tier;
                Some((MatchedLimit { chosen, ..matched }, told))
            });
            recalled.extend(told);
        }
        if recalled.is_empty() {
            return false;
        }
        let mut known = ChargeSet::default();
        let mut decisions: SmallVec<[Decision; 4]> = SmallVec::new();
        let mut known_binding = 0;
        for (index, (&matched, &charge)) in self
            .charge_set
            .limits
            .iter()
            .zip(&self.charge_set.charges)
            .enumerate()
        {
            let told = recalled
                .iter()
                .find(|(told, _)| told.place == matched.place);
            let (matched, decision) = match told {
                Some(told) => *told,
                None if self.is_remote(matched) => continue,
                None => (matched, peek_spared(&charge, self.now)),
            };
            known.push(matched, charge);
            decisions.push(decision);
            known_binding += usize::from(index < self.binding);
        }
        self.admission.verdict = Verdict::of(decisions, known_binding);
        (self.charge_set, self.binding) = (known, known_binding);
        self.strike(&[]);
        true
    }
}
