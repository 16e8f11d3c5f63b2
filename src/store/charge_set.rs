//! The set of buckets that a request charges, all or none, wherever they live.
//!
//! Memory decides at once. If a bucket is in Redis, memory is charged first and Redis decides; a
//! [`PendingCharge`] is the rest of such a decision.

mod refusal;

use std::sync::Arc;

use smallvec::SmallVec;

use super::charge_list::{ChargeList, ListedCharge};
use super::in_use::Acquired;
use super::memory::Ask;
use super::pending_charge::{PendingCharge, PendingEntry};
use super::{
    ChargeId, ChargeResult, ChargeSource, DecidedBucket, PolicyCharge, Reservation, Store, redis,
};
use crate::clock::Timestamp;
use crate::limiter::{Outcome, Verdict};

/// The charges of one request at one instant.
pub struct ChargeSet<'a> {
    store: &'a Store,
    source: &'a dyn ChargeSource,
    now: Timestamp,
    list: ChargeList<'a>,
    /// The charges in Redis, also part of the list.
    in_redis: Vec<PendingEntry>,
    /// Other machines learn of a charge.
    is_synchronised: bool,
}

impl<'a> ChargeSet<'a> {
    /// An empty set, to be charged at `now`. With [`Store::Memory`], memory decides for Redis.
    pub fn new(store: &'a Store, source: &'a dyn ChargeSource, now: Timestamp) -> Self {
        ChargeSet {
            store,
            source,
            now,
            list: ChargeList::new(source.limits()),
            in_redis: Vec::new(),
            is_synchronised: false,
        }
    }

    /// Adds a charge. Those that tag come last.
    pub fn push(&mut self, mut charge: PolicyCharge) {
        if charge.role.is_tag() && charge.banned_until.is_some() {
            // The ban tags without a charge.
            charge.demand = charge.demand.of_nothing();
        }
        let listed = self.list.resolve(charge);
        self.is_synchronised |= listed.buckets.is_synchronised();
        if let Some(store) = self.store.redis() {
            let entry = PendingEntry::in_redis(store, listed, self.source, self.now);
            self.in_redis.extend(entry);
        }
        self.list.push(listed);
    }

    /// Removes all charges.
    pub fn clear(&mut self) {
        *self = Self::new(self.store, self.source, self.now);
    }

    /// True if Redis is to be asked.
    pub fn is_remote(&self) -> bool {
        !self.in_redis.is_empty()
    }

    /// True if an enforced policy has banned the key.
    pub fn is_banned(&self) -> bool {
        self.list.bans().next().is_some()
    }

    /// Charges all, or none if one refuses or bans the key. Memory decides at once, and `None` is
    /// returned. Otherwise Redis is still to decide.
    pub fn charge(&mut self, result: &mut ChargeResult) -> Option<Box<PendingCharge>> {
        let is_known_tag =
            |charge: &PolicyCharge| charge.role.is_tag() && charge.banned_until.is_some();
        self.in_redis.retain(|entry| !is_known_tag(&entry.charge));
        if self.is_remote() && self.recall(result) {
            return None;
        }
        if self.is_remote() && self.is_banned() {
            self.drop_tags();
        }
        self.decide(Ask::Charge, result)
    }

    /// Decides as [`charge`](Self::charge) does, and charges nothing.
    pub fn peek(&mut self, result: &mut ChargeResult) -> Option<Box<PendingCharge>> {
        self.decide(Ask::Peek, result)
    }

    fn decide(&mut self, ask: Ask, result: &mut ChargeResult) -> Option<Box<PendingCharge>> {
        if let Store::Redis(store) = self.store
            && self.is_remote()
        {
            return self.ask_redis(store, ask, result);
        }
        match self.effective(ask) {
            Ask::Charge => self.charge_memory(Ask::Charge, result),
            ask => self.list.decide(ask, self.now, &mut result.verdict),
        }
        if !self.is_banned() {
            result.doubted_until = self.doubt(&self.list, &mut result.verdict);
        }
        self.list.conclude(ask, result, self.now);
        if ask == Ask::Charge {
            self.list.hold(result);
        }
        None
    }

    /// The question for memory: a request with a banned key is charged nothing.
    fn effective(&self, ask: Ask) -> Ask {
        if self.is_banned() { Ask::Banned } else { ask }
    }

    /// Charges memory if it admits the request; otherwise the set is as before. Refusals are not
    /// charged.
    pub fn try_charge(&mut self, result: &mut ChargeResult) -> bool {
        let before = self.list.clone();
        self.charge_memory(Ask::ChargeIfAdmitted, result);
        let is_admitted = result.verdict.is_admitted();
        if is_admitted {
            self.list.conclude(Ask::Charge, result, self.now);
            self.list.hold(result);
        } else {
            self.list.name_buckets(result);
            self.list = before;
        }
        is_admitted
    }

    /// Refuses the request if a ban, a cached refusal of Redis, or memory refuses it for sure, and
    /// then charges refusals to policies that ask for it. Charges nothing otherwise.
    pub fn refuse(&mut self, result: &mut ChargeResult) -> bool {
        if self.is_remote() && self.recall(result) {
            return true;
        }
        (self.list, _) = self.memory_part();
        if self.is_banned() {
            self.list.decide(Ask::Banned, self.now, &mut result.verdict);
        } else {
            if self.is_sure_to_refuse() {
                // Units may come back meanwhile: then nothing is charged.
                self.charge_memory(Ask::ChargeIfRefused, result);
            }
            if result.verdict.is_admitted() || self.doubt(&self.list, &mut result.verdict).is_some()
            {
                result.verdict.clear();
                return false;
            }
        }
        self.list.conclude(Ask::Charge, result, self.now);
        true
    }

    fn charge_memory(&mut self, ask: Ask, result: &mut ChargeResult) {
        let (source, now) = (self.sync_source(), self.now);
        let verdict = &mut result.verdict;
        let reserved = self.list.charge(false, ask, now, verdict, source);
        for (index, reservation) in reserved {
            let limit = self.id(index).limit;
            let reservations = &mut result.held_mut().reservations;
            reservations.push((limit, Reservation::Memory(reservation)));
        }
    }

    /// Shortens refusals of memory that are in doubt; the end of the doubt, if no other refuses.
    fn doubt(&self, list: &ChargeList<'_>, verdict: &mut Verdict) -> Option<Timestamp> {
        let until = self.store.redis()?.decided_by(self.now);
        list.doubt(verdict, self.now, until).then_some(until)
    }

    fn sync_source(&self) -> Option<&'a dyn ChargeSource> {
        self.is_synchronised.then_some(self.source)
    }

    /// True if one policy refuses by each of its buckets and lets no request wait.
    fn is_sure_to_refuse(&self) -> bool {
        let mut all = self.list.charges.iter();
        all.any(|charge| {
            let waits = |tier: ListedCharge<'_>| tier.buckets.algorithm().queueing().is_some();
            let refuses = || !charge.peek(Ask::Peek, self.now).1.is_admitted();
            charge.can_refuse() && !charge.tiers().any(waits) && refuses()
        })
    }

    /// Has memory decide and charge its part, and returns the charge for Redis; `None` if the
    /// request is decided.
    fn ask_redis(
        &mut self,
        store: &Arc<redis::Store>,
        ask: Ask,
        result: &mut ChargeResult,
    ) -> Option<Box<PendingCharge>> {
        let (mut local, indices) = self.memory_part();
        let (source, verdict) = (self.sync_source(), &mut result.verdict);
        let mut reserved = Vec::new();
        match self.effective(ask) {
            Ask::Charge => {
                reserved = local.charge(true, ask, self.now, verdict, source);
                local.hold(result);
            }
            ask => local.decide(ask, self.now, verdict),
        }
        for (charge, &place) in local.charges.iter().zip(&indices) {
            self.list.charges[place] = *charge;
        }
        let (is_banned, is_refused) = (self.is_banned(), !result.verdict.is_admitted());
        if is_refused && !is_banned {
            let doubted_until = self.doubt(&local, &mut result.verdict);
            if !self.keep_owed() {
                result.doubted_until = doubted_until;
                local.conclude(ask, result, self.now);
                return None;
            }
        }
        let decided = std::mem::take(&mut result.verdict);
        let reserved = reserved.into_iter();
        Some(Box::new(PendingCharge {
            store: Arc::clone(store),
            now: self.now,
            entries: self.entries(decided),
            enforced: self.list.enforced,
            ask,
            is_refused: is_banned || is_refused,
            reserved: reserved.map(|(index, one)| (indices[index], one)).collect(),
        }))
    }

    /// All charges, those in memory as decided.
    fn entries(&mut self, decided: Verdict) -> SmallVec<[PendingEntry; 4]> {
        let mut decisions = decided.decisions.into_iter();
        let mut in_redis = std::mem::take(&mut self.in_redis);
        let entries = self.list.charges.iter().map(|listed| {
            let (charge, limit) = (listed.charge, listed.charge.id.limit);
            let mut entries = in_redis.iter();
            match entries.position(|entry| entry.charge.id.limit == limit) {
                Some(index) => {
                    let mut entry = in_redis.swap_remove(index);
                    // Permits that the request has are not charged again.
                    entry.charge = charge;
                    entry
                }
                None => {
                    let decision = decisions.next();
                    let decision = decision.expect("memory decided on all that is its");
                    PendingEntry::in_memory(charge, decision)
                }
            }
        });
        entries.collect()
    }

    /// Keeps only the charges that count refusals in Redis, for a request that memory refuses.
    /// False if there are none.
    fn keep_owed(&mut self) -> bool {
        let mut kept = ChargeList::new(self.source.limits());
        let mut is_owed = false;
        for listed in &self.list.charges {
            let is_remote = self.find_redis(listed).is_some();
            if !is_remote || listed.is_charged_if_refused() {
                kept.push(*listed);
                is_owed |= is_remote;
            }
        }
        self.list = kept;
        is_owed
    }

    /// Removes the charges that tag, from a request that is refused.
    fn drop_tags(&mut self) {
        self.list
            .charges
            .retain(|listed| !listed.charge.role.is_tag());
        self.in_redis.retain(|entry| !entry.charge.role.is_tag());
    }

    fn find_redis(&self, listed: &ListedCharge<'_>) -> Option<&PendingEntry> {
        let limit = listed.charge.id.limit;
        let mut entries = self.in_redis.iter();
        entries.find(|entry| entry.charge.id.limit == limit)
    }

    /// The charges in memory, and their indices in the whole list.
    fn memory_part(&self) -> (ChargeList<'a>, SmallVec<[usize; 4]>) {
        let mut local = ChargeList::new(self.source.limits());
        let mut indices = SmallVec::new();
        for (index, listed) in self.list.charges.iter().enumerate() {
            if self.find_redis(listed).is_none() {
                local.push(*listed);
                indices.push(index);
            }
        }
        (local, indices)
    }
}

/// Permits that requests wait for.
impl ChargeSet<'_> {
    /// The indices of the enforced charges with a queue, by the names of their policies: the same
    /// order on all routes, so that no two requests wait for each other.
    pub fn queues(&self) -> Vec<usize> {
        let enforced = &self.list.charges[..self.list.enforced];
        let has_queue = |index: &usize| enforced[*index].buckets.algorithm().queueing().is_some();
        let mut queues: Vec<_> = (0..enforced.len()).filter(has_queue).collect();
        queues.sort_unstable_by_key(|&index| enforced[index].buckets.table.policy());
        queues
    }

    /// The buckets of the charges that can refuse.
    pub fn enforced(&self) -> impl Iterator<Item = DecidedBucket> {
        let enforced = self.list.charges[..self.list.enforced].iter();
        enforced.map(ListedCharge::bucket)
    }

    /// The number of the charge at `index`.
    pub fn id(&self, index: usize) -> ChargeId {
        self.list.charges[index].charge.id
    }

    /// Charges nothing to these limits any more: the request has their permits.
    pub fn skip(&mut self, is_paid: impl Fn(u16) -> bool) {
        for listed in &mut self.list.charges {
            if is_paid(listed.charge.id.limit) {
                listed.charge.demand.cost = 0;
            }
        }
    }

    /// Lets a request that would wait in queues for permits be decided as if it had them. Returns the
    /// numbers of their limits.
    pub fn skip_queues(&mut self) -> Vec<u16> {
        let waits = |listed: &ListedCharge<'_>| {
            let charge = listed.in_memory();
            let refusal = charge.peek(self.now).outcome;
            matches!(refusal, Outcome::Refuse { retry_at: Some(_) }) && charge.has_place_in_queue()
        };
        let mut waiting = self.queues();
        waiting.retain(|&index| !self.is_banned() && waits(&self.list.charges[index]));
        let waiting: Vec<_> = waiting
            .into_iter()
            .map(|index| self.id(index).limit)
            .collect();
        self.skip(|limit| waiting.contains(&limit));
        waiting
    }

    /// Takes the permits of the charge at `index`, or a place in the queue for them, once.
    pub fn acquire(&mut self, index: usize) -> Acquired {
        let listed = &mut self.list.charges[index];
        let acquired = Acquired::of(listed.buckets, &listed.in_memory());
        if let Acquired::Permits(_) = acquired {
            listed.charge.demand.cost = 0;
        }
        acquired
    }
}

#[cfg(test)]
mod tests;
