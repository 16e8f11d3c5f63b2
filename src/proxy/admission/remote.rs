//! What of an inquiry is asked of Redis.

use smallvec::SmallVec;

use super::charge_set::{ChargeSet, MatchedLimit};
use super::context::AdmissionContext;
use super::permit_queue::AcquiredPermits;
use super::redis_charge::{BucketHome, Entry, PendingRedisCharge, spared};
use super::sync_recorder;
use crate::clock::Timestamp;
use crate::limiter::{Decision, Verdict};
use crate::proxy::ruleset::{Limit, Policy};
use crate::rules::Head;
use crate::store::redis::{BucketName, BucketReply, LeaseGuard, Store};
use crate::store::{Charge, Refusals};

/// What is asked of Redis for one limit.
#[derive(Debug)]
pub(in crate::proxy) struct Remote {
    /// The place of the limit among those of the route.
    pub place: u16,
    pub name: BucketName,
    /// The names of the buckets that it may overflow into.
    further: Vec<Vec<u8>>,
    /// The period that a window is which this opens, where the request says that.
    pub period: Option<(Timestamp, Timestamp)>,
    /// What Redis said.
    pub said: Option<BucketReply>,
    /// What it said, or memory in its place; `None` where nobody says anything, and the limit admits.
    pub decision: Option<Decision>,
    /// The units in use that are asked for.
    pub lending: Option<LeaseGuard>,
}

impl Remote {
    /// What this limit asks of the store for a request that it meets; `None` where its buckets are in memory.
    pub(in crate::proxy) fn of(
        (place, limit): (u16, &Limit),
        policy: &Policy,
        store: &Store,
        head: &Head<'_>,
        now: Timestamp,
    ) -> Option<Self> {
        let shared = policy.shared.as_ref()?;
        let mut namer = store.naming().namer();
        limit.spec.descriptor.feed(head, &mut namer).ok()?;
        let name = namer.name(&shared.label);
        let tiers = std::iter::successors(policy.overflow.as_ref(), |tier| {
            tier.policy.overflow.as_ref()
        });
        let further = tiers.filter_map(|tier| tier.policy.shared.as_ref());
        Some(Self {
            place,
            further: further
                .map(|shared| namer.name(&shared.label).bytes)
                .collect(),
            name,
            period: policy.period(head, store.time_at(now)),
            said: None,
            decision: None,
            lending: None,
        })
    }

    /// The names of its bucket, and of those that it may overflow into.
    pub(in crate::proxy) fn names(&self) -> impl Iterator<Item = &[u8]> {
        let further = self.further.iter().map(Vec::as_slice);
        std::iter::once(self.name.bytes.as_slice()).chain(further)
    }
}

impl<'r> AdmissionContext<'r, '_> {
    /// Charges memory, and says what is to be asked of Redis; `None` where it is decided without.
    pub(in crate::proxy) fn ask(
        &mut self,
        stood: AcquiredPermits,
    ) -> Option<Box<PendingRedisCharge>> {
        if self.recall() {
            self.conclude(Vec::new(), Vec::new(), stood);
            return None;
        }
        let (mut local, places, binding) = self.in_memory();
        let settled = local.settled(self.route, |_| true);
        let verdict = &mut self.admission.verdict;
        let last = Refusals::Charged;
        let mut reserved =
            local.charge_reserving(self.route, &settled, binding, self.now, last, verdict);
        if let Some(head) = self.head.filter(|_| self.route.is_synchronised) {
            let of_limits = reserved
                .iter_mut()
                .map(|(index, its)| (usize::from(local.applied[*index].place), its));
            let (rules, said) = ((self.route, head), (&*verdict, last));
            sync_recorder::note(rules, &local, said, self.now, of_limits);
        }
        let is_refused = !verdict.is_admitted();
        let taken = local.taken(self.route, verdict);
        for (index, &place) in places.iter().enumerate() {
            self.asked.applied[place] = local.applied[index];
        }
        if is_refused && !self.is_owed_in_redis() {
            (self.asked, self.binding) = (local, binding);
            self.strike(&[]);
            self.conclude(Vec::new(), Vec::new(), stood);
            return None;
        }
        let mut decisions = self.admission.verdict.decisions.drain(..);
        let mut remote = std::mem::take(&mut self.remote);
        let entries = self.asked.applied.iter().zip(&self.asked.charges);
        let entries = entries.map(|(&met, charge)| Entry {
            met,
            key: charge.key,
            cost: charge.cost,
            window_end: charge.window_end,
            home: match remote.iter().position(|remote| remote.place == met.place) {
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
            stood,
            noted: std::mem::take(&mut self.noted),
            through: None,
            answer: None,
        }))
    }

    /// Of a request that memory refuses: has Redis asked by those only that charge refusals there. Whether there are any.
    fn is_owed_in_redis(&mut self) -> bool {
        let mut kept = ChargeSet::default();
        let mut binding = 0;
        let all = self.asked.applied.iter().zip(&self.asked.charges);
        for (place, (&met, &charge)) in all.enumerate() {
            if !self.is_remote(met) || charge.is_owed() {
                kept.push(met, charge);
                binding += usize::from(place < self.binding);
            }
        }
        (self.asked, self.binding) = (kept, binding);
        let applied = &self.asked.applied;
        applied.iter().any(|&met| self.is_remote(met))
    }

    fn is_remote(&self, met: MatchedLimit) -> bool {
        self.remote.iter().any(|remote| remote.place == met.place)
    }

    /// What is asked of memory, the places of that among all, and how many of it may refuse.
    pub(super) fn in_memory(&self) -> (ChargeSet<'r>, SmallVec<[usize; 4]>, usize) {
        let mut local = ChargeSet::default();
        let mut places = SmallVec::new();
        let mut binding = 0;
        let all = self.asked.applied.iter().zip(&self.asked.charges);
        for (place, (&met, &charge)) in all.enumerate() {
            if !self.is_remote(met) {
                local.push(met, charge);
                places.push(place);
                binding += usize::from(place < self.binding);
            }
        }
        (local, places, binding)
    }

    /// Whether Redis has refused as much lately, for which nothing is charged, and nobody is asked. What others have
    /// remaining in Redis is not said then. Where refusals are charged, each is.
    pub(super) fn recall(&mut self) -> bool {
        if self.asked.charges.iter().any(Charge::is_owed) {
            return false;
        }
        let mut recalled: SmallVec<[(MatchedLimit, Decision); 1]> = SmallVec::new();
        let binding = self.asked.applied[..self.binding].iter();
        for (&met, charge) in binding.zip(&self.asked.charges) {
            let its = |remote: &&Remote| remote.place == met.place;
            let Some(remote) = self.remote.iter().find(its) else {
                continue;
            };
            let limit = met.limit(&self.route.limits);
            // By the one of its buckets that said so.
            let mut tiers = std::iter::successors(Some(met.chosen), |tier| limit.after(*tier));
            let told = tiers.find_map(|tier| {
                let shared = limit.chosen(tier).shared.as_ref()?;
                let told = shared
                    .refusals
                    .recall(remote.name.key, charge.cost, self.now)?;
                let chosen = tier;
                Some((MatchedLimit { chosen, ..met }, told))
            });
            recalled.extend(told);
        }
        if recalled.is_empty() {
            return false;
        }
        let mut known = ChargeSet::default();
        let mut decisions: SmallVec<[Decision; 4]> = SmallVec::new();
        let mut known_binding = 0;
        for (index, (&met, &charge)) in self
            .asked
            .applied
            .iter()
            .zip(&self.asked.charges)
            .enumerate()
        {
            let told = recalled.iter().find(|(told, _)| told.place == met.place);
            let (met, decision) = match told {
                Some(told) => *told,
                None if self.is_remote(met) => continue,
                None => (met, spared(&charge, self.now)),
            };
            known.push(met, charge);
            decisions.push(decision);
            known_binding += usize::from(index < self.binding);
        }
        self.admission.verdict = Verdict::of(decisions, known_binding);
        (self.asked, self.binding) = (known, known_binding);
        self.strike(&[]);
        true
    }
}
