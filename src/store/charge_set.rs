//! The set of buckets that a request charges, all or none, wherever they live.
//!
//! Memory decides at once. If a bucket is in Redis, memory is charged first and Redis decides; a
//! [`PendingCharge`] is the rest of such a decision.

use std::sync::Arc;

use smallvec::SmallVec;

use super::charge_list::{ChargeEntry, ChargeList, Granted, ReserveScope};
use super::in_use::Acquired;
use super::memory::{Charge, Refusals};
use super::pending_charge::{EntryHome, PendingCharge, PendingEntry, TagReply};
use super::redis_entry::RedisEntry;
use super::{Buckets, InUse, Penalties, QueuePlace, Reservation, Steered, Store, redis};
use crate::clock::Timestamp;
use crate::limiter::{Decision, Fingerprint, KeyParts, Verdict, WindowEnd};

/// The payer of a charge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Payer {
    /// A bucket of the policy.
    #[default]
    Quota,
    /// Units that an operator has granted, because no bucket of the policy can pay.
    Grant,
}

/// The number of a charge, as the caller counts, and the bucket that decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChargeId {
    /// The number of the limit.
    pub limit: u16,
    /// The number of the override; `None` for the policy's own quota.
    pub place: Option<u32>,
    /// The overflow tier; 0 is the first bucket.
    pub tier: u8,
    /// The payer.
    pub payer: Payer,
}

/// The request's side of charges, read only if a store needs it.
pub trait ChargeSource {
    /// Writes the parts of the charged key; false if the request lacks it.
    fn write_key(&self, id: ChargeId, parts: &mut dyn KeyParts) -> bool;

    /// The start and end of a window that the request opens at `now`, if requests decide them.
    fn period(&self, id: ChargeId, now: Timestamp) -> Option<(Timestamp, Timestamp)>;
}

/// A charge to the buckets of one policy.
#[derive(Clone, Copy, Debug)]
pub struct PolicyCharge<'a> {
    /// The number of the charge.
    pub id: ChargeId,
    /// The policy's buckets.
    pub buckets: &'a Arc<Buckets>,
    /// The key of the bucket.
    pub key: Fingerprint,
    /// Units; 0 decides and charges nothing.
    pub cost: u32,
    /// The end of a window in memory that this charge opens, if requests decide it.
    pub window_end: Option<WindowEnd>,
    /// The response settles the charge.
    pub settles: bool,
    /// The policy's penalties, and the key that they ban.
    pub penalties: Option<(&'a Arc<Penalties>, Fingerprint)>,
    /// The ban and the grant of operators to the key.
    pub steered: Option<Steered<'a>>,
}

impl<'a> PolicyCharge<'a> {
    /// The granted units of the key.
    pub(super) fn granted(&self) -> Option<Granted<'a>> {
        let (buckets, _) = self.steered.as_ref()?.granted?;
        Some(Granted {
            buckets,
            quota: self.buckets,
        })
    }

    /// The end of the key's ban, by a penalty or an operator.
    pub(super) fn banned_until(&self, now: Timestamp) -> Option<Timestamp> {
        let (penalties, key) = self.penalties.unzip();
        let penalty = penalties.and_then(|penalties| penalties.banned_until(key?, now));
        penalty.max(self.steered.and_then(|steered| steered.banned_until))
    }

    /// The charge without granted units that end before a ban of the key.
    pub(super) fn after_ban(mut self, banned_until: Option<Timestamp>) -> Self {
        if let Some(steered) = &mut self.steered {
            steered
                .granted
                .take_if(|(_, until)| Some(*until) <= banned_until);
        }
        self
    }

    /// The charge to the bucket in memory.
    pub(super) fn in_memory(&self) -> Charge<'a> {
        Charge {
            table: &self.buckets.table,
            key: self.key,
            cost: self.cost,
            window_end: self.window_end,
        }
    }
}

/// The decision on a request, and all that the request holds until it ends.
#[derive(Debug, Default)]
pub struct ChargeResult {
    /// A decision for each charge that has one: enforced ones first, then shadowed ones.
    pub verdict: Verdict,
    /// The charges, in the order of the decisions.
    pub ids: SmallVec<[ChargeId; 4]>,
    /// The keys of their buckets, in the same order.
    pub keys: SmallVec<[Fingerprint; 4]>,
    /// Units in use, returned on drop.
    pub in_use: Vec<InUse>,
    /// The charges that the response settles, by the numbers of their limits.
    pub reservations: Vec<(u16, Reservation)>,
    /// The places of a delayed request in queues, by the numbers of their limits.
    pub queue_places: Vec<(u16, QueuePlace)>,
    /// The decisions of Redis on charges that tag an admitted request.
    pub tags: Vec<TagReply>,
    /// The numbers of the limits without a decision, since their store does not answer.
    pub without_store: Vec<u16>,
    /// The request is refused only because of charges that may be given back, since another store
    /// may refuse their requests: those are decided by this instant. No strike is counted.
    pub doubted_until: Option<Timestamp>,
}

impl ChargeResult {
    /// The key of the deciding bucket.
    pub fn deciding_key(&self) -> Option<Fingerprint> {
        self.keys.get(self.verdict.deciding).copied()
    }
}

/// The charges of one request at one instant.
pub struct ChargeSet<'a> {
    store: &'a Store,
    source: &'a dyn ChargeSource,
    now: Timestamp,
    list: ChargeList<'a>,
    /// The charges in Redis, also part of the list.
    in_redis: Vec<RedisEntry>,
    /// The charges in Redis that only tag the request.
    tags: Vec<PendingEntry>,
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
            list: ChargeList::default(),
            in_redis: Vec::new(),
            tags: Vec::new(),
            is_synchronised: false,
        }
    }

    /// Adds a charge that may refuse the request, or a shadowed one.
    pub fn push(&mut self, charge: &PolicyCharge<'a>, is_enforced: bool) {
        self.is_synchronised |= charge.buckets.is_synchronised();
        let banned_until = charge.banned_until(self.now).filter(|_| is_enforced);
        let charge = &charge.after_ban(banned_until);
        if self.decides_later(charge.buckets)
            && let Some(mut entry) = self.redis_entry(charge)
        {
            entry.known.banned_until = banned_until;
            self.in_redis.push(entry);
        }
        let banned = banned_until.map(|until| (charge.id.limit, until));
        self.list.banned.extend(banned);
        self.list
            .push(ChargeEntry::from(charge), charge.in_memory(), is_enforced);
    }

    /// Removes all charges.
    pub fn clear(&mut self) {
        *self = Self::new(self.store, self.source, self.now);
    }

    /// True if these buckets decide only after a wait.
    pub fn decides_later(&self, buckets: &Buckets) -> bool {
        self.store.redis().is_some() && buckets.is_in_redis()
    }

    /// Adds a charge that only tags the request, and decides later: it is made if the other charges
    /// admit the request.
    pub fn push_tag(&mut self, charge: &PolicyCharge<'a>) {
        let home = self.redis_entry(charge).map(EntryHome::from);
        let tag = |home| PendingEntry::new(ChargeEntry::from(charge), &charge.in_memory(), home);
        self.tags.extend(home.map(tag));
    }

    fn redis_entry(&self, charge: &PolicyCharge<'_>) -> Option<RedisEntry> {
        let Store::Redis(store) = self.store else {
            return None;
        };
        RedisEntry::new(store, charge, self.source, self.now)
    }

    /// True if Redis is to be asked.
    pub fn is_remote(&self) -> bool {
        !self.in_redis.is_empty() || !self.tags.is_empty()
    }

    /// True if an enforced policy has banned the key.
    pub fn is_banned(&self) -> bool {
        !self.list.banned.is_empty()
    }

    /// Charges all, or none if one refuses or bans the key. Memory decides at once, and `None` is
    /// returned. Otherwise Redis is still to decide.
    pub fn charge(&mut self, result: &mut ChargeResult) -> Option<Box<PendingCharge>> {
        if let Store::Redis(store) = self.store
            && self.is_remote()
        {
            return match self.is_banned() {
                _ if self.recall(result) => None,
                true => Some(self.peek_redis(store)),
                false => self.charge_redis(store, result),
            };
        }
        if self.is_banned() {
            result.verdict = self.list.peek(self.now);
        } else {
            self.charge_memory(Refusals::Charged, result);
            result.doubted_until = self.doubt(&self.list, &mut result.verdict);
        }
        if result.doubted_until.is_none() {
            self.list.punish(&mut result.verdict, self.now);
        }
        self.finish(result);
        None
    }

    /// Charges memory if it admits the request; otherwise the set is as before. Refusals are not
    /// charged.
    pub fn try_charge(&mut self, result: &mut ChargeResult) -> bool {
        let before = self.list.clone();
        self.charge_memory(Refusals::Free, result);
        let is_admitted = result.verdict.is_admitted();
        match is_admitted {
            true => self.finish(result),
            false => self.list = before,
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
        if !self.list.bans().is_empty() {
            result.verdict = self.list.peek(self.now);
        } else if !self.is_sure_to_refuse()
            || !self.charge_refusal(result)
            || self.doubt(&self.list, &mut result.verdict).is_some()
        {
            result.verdict.clear();
            return false;
        }
        self.list.punish(&mut result.verdict, self.now);
        self.finish(result);
        true
    }

    fn charge_memory(&mut self, last: Refusals, result: &mut ChargeResult) {
        let (source, now) = (self.sync_source(), self.now);
        let verdict = &mut result.verdict;
        let reserved = self
            .list
            .charge(ReserveScope::Settled, last, now, verdict, source);
        let reserved = reserved.into_iter().map(|(index, reservation)| {
            let limit = self.list.entries[index].id.limit;
            (limit, Reservation::Memory(reservation))
        });
        result.reservations.extend(reserved);
    }

    /// Shortens refusals of memory that are in doubt; the end of the doubt, if no other refuses.
    fn doubt(&self, list: &ChargeList<'_>, verdict: &mut Verdict) -> Option<Timestamp> {
        let Store::Redis(store) = self.store else {
            return None;
        };
        let until = store.decided_by(self.now);
        list.doubt(verdict, self.now, until).then_some(until)
    }

    fn sync_source(&self) -> Option<&'a dyn ChargeSource> {
        self.is_synchronised.then_some(self.source)
    }

    fn finish(&self, result: &mut ChargeResult) {
        self.list.describe(result);
        self.list.hold(result);
    }

    /// True if one policy refuses by each of its buckets and lets no request wait.
    fn is_sure_to_refuse(&self) -> bool {
        let mut all = self.list.iter();
        all.any(|(entry, charge, is_enforced)| {
            let refuses = |tier: ChargeEntry<'_>| {
                let table = &*tier.buckets.table;
                let charge = Charge { table, ..*charge };
                table.algorithm().queueing().is_none() && !charge.peek(self.now).is_admitted()
            };
            is_enforced && entry.tiers().all(refuses)
        })
    }

    /// Decides by the policies that were about to refuse. If units came back meanwhile and they
    /// admit, gives everything back and returns `false`.
    fn charge_refusal(&mut self, result: &mut ChargeResult) -> bool {
        let (last, now) = (Refusals::Charged, self.now);
        let verdict = &mut result.verdict;
        // Nothing is reported of charges that are given back.
        let mut reserved = self
            .list
            .charge(ReserveScope::All, last, now, verdict, None);
        if verdict.is_admitted() {
            self.list.hold(result);
            result.in_use.clear();
            result.queue_places.clear();
            for (_, reservation) in reserved {
                reservation.give_back(now);
            }
            return false;
        }
        if let Some(source) = self.sync_source() {
            self.list
                .record(source, (&*verdict, last), now, &mut reserved);
        }
        true
    }

    /// Charges memory, and returns the charge for Redis; `None` if the request is decided.
    fn charge_redis(
        &mut self,
        store: &Arc<redis::Store>,
        result: &mut ChargeResult,
    ) -> Option<Box<PendingCharge>> {
        let (mut local, indices) = self.memory_part();
        let (source, last) = (self.sync_source(), Refusals::Charged);
        let verdict = &mut result.verdict;
        let reserved = local.charge(ReserveScope::All, last, self.now, verdict, source);
        let is_refused = !verdict.is_admitted();
        local.hold(result);
        for (index, &place) in indices.iter().enumerate() {
            self.list.entries[place] = local.entries[index];
        }
        let doubted_until = self.doubt(&local, &mut result.verdict);
        if is_refused && !self.keep_owed() {
            result.doubted_until = doubted_until;
            if doubted_until.is_none() {
                local.punish(&mut result.verdict, self.now);
            }
            local.describe(result);
            return None;
        }
        let decided = std::mem::take(&mut result.verdict);
        let reserved = reserved.into_iter();
        Some(Box::new(PendingCharge {
            store: Arc::clone(store),
            now: self.now,
            entries: self.pending_entries(decided),
            enforced: self.list.enforced,
            banned: Vec::new(),
            tags: match is_refused {
                true => Vec::new(),
                false => std::mem::take(&mut self.tags),
            },
            is_refused,
            reserved: reserved.map(|(index, one)| (indices[index], one)).collect(),
            in_use: std::mem::take(&mut result.in_use),
            queue_places: std::mem::take(&mut result.queue_places),
        }))
    }

    /// Returns the look at Redis for a request with a key that a limit there bans.
    fn peek_redis(&mut self, store: &Arc<redis::Store>) -> Box<PendingCharge> {
        let (local, _) = self.memory_part();
        Box::new(PendingCharge {
            store: Arc::clone(store),
            now: self.now,
            entries: self.pending_entries(local.peek(self.now)),
            enforced: self.list.enforced,
            banned: std::mem::take(&mut self.list.banned),
            tags: Vec::new(),
            is_refused: true,
            reserved: Vec::new(),
            in_use: Vec::new(),
            queue_places: Vec::new(),
        })
    }

    /// All charges, those in memory as decided.
    fn pending_entries(&mut self, decided: Verdict) -> SmallVec<[PendingEntry; 4]> {
        let mut decisions = decided.decisions.into_iter();
        let mut in_redis = std::mem::take(&mut self.in_redis);
        let entries = self.list.iter().map(|(entry, charge, _)| {
            let its = |redis: &RedisEntry| redis.limit == entry.id.limit;
            let home = match in_redis.iter().position(its) {
                Some(index) => EntryHome::from(in_redis.swap_remove(index)),
                None => {
                    EntryHome::Memory(decisions.next().expect("memory decided on all that is its"))
                }
            };
            PendingEntry::new(*entry, charge, home)
        });
        entries.collect()
    }

    /// Keeps only the charges that count refusals in Redis, for a request that memory refuses.
    /// False if there are none.
    fn keep_owed(&mut self) -> bool {
        let mut kept = ChargeList::default();
        let mut is_owed = false;
        for (entry, charge, is_enforced) in self.list.iter() {
            let is_remote = self.find_redis(entry).is_some();
            if !is_remote || charge.is_charged_if_refused() {
                kept.push(*entry, *charge, is_enforced);
                is_owed |= is_remote;
            }
        }
        self.list = kept;
        is_owed
    }

    fn find_redis(&self, entry: &ChargeEntry<'_>) -> Option<&RedisEntry> {
        self.in_redis
            .iter()
            .find(|redis| redis.limit == entry.id.limit)
    }

    /// The charges in memory, and their indices in the whole list.
    fn memory_part(&self) -> (ChargeList<'a>, SmallVec<[usize; 4]>) {
        let mut local = ChargeList {
            banned: self.list.banned.clone(),
            ..ChargeList::default()
        };
        let mut indices = SmallVec::new();
        for (index, (entry, charge, is_enforced)) in self.list.iter().enumerate() {
            if self.find_redis(entry).is_none() {
                local.push(*entry, *charge, is_enforced);
                indices.push(index);
            }
        }
        (local, indices)
    }

    /// Refuses by a cached refusal of Redis, or by bans if all of them in Redis have a cached
    /// decision: nothing is charged, and other policies in Redis tell no remaining units. Policies
    /// that charge refusals always call Redis, except for banned keys.
    fn recall(&self, result: &mut ChargeResult) -> bool {
        let is_banned = self.is_banned();
        if !is_banned && self.list.charges.iter().any(Charge::is_charged_if_refused) {
            return false;
        }
        let refusal = |(entry, charge, is_enforced): (&ChargeEntry<'a>, &Charge<'a>, bool)| {
            let redis = self.find_redis(entry).filter(|_| is_enforced)?;
            redis.cached_refusal(*entry, charge.cost, self.now)
        };
        let refusals: SmallVec<[_; 4]> = self.list.iter().map(refusal).collect();
        let has_cached = |(index, _): (usize, _)| {
            let is_remote = self.find_redis(&self.list.entries[index]).is_some();
            refusals[index].is_some() || !is_remote
        };
        let is_known = match is_banned {
            true => self.list.bans().into_iter().all(has_cached),
            false => refusals.iter().any(Option::is_some),
        };
        if !is_known {
            return false;
        }
        let decided_by = match self.store {
            Store::Redis(store) => store.decided_by(self.now),
            Store::Memory => self.now,
        };
        let mut known = ChargeList {
            banned: self.list.banned.clone(),
            ..ChargeList::default()
        };
        let mut decisions: SmallVec<[Decision; 4]> = SmallVec::new();
        for ((entry, charge, is_enforced), refusal) in self.list.iter().zip(refusals) {
            let (entry, decision) = match refusal {
                Some(refusal) => refusal,
                None if self.find_redis(entry).is_some() => continue,
                None if is_banned => (*entry, entry.peek_payer(charge, self.now)),
                None => (*entry, entry.peek_spared(charge, decided_by, self.now)),
            };
            known.push(entry, *charge, is_enforced);
            decisions.push(decision);
        }
        result.verdict = Verdict::of(decisions, known.enforced);
        known.punish(&mut result.verdict, self.now);
        known.describe(result);
        true
    }
}

/// Permits that requests wait for.
impl ChargeSet<'_> {
    /// The indices of the enforced charges with a queue, by the names of their policies: the same
    /// order on all routes, so that no two requests wait for each other.
    pub fn queues(&self) -> Vec<usize> {
        let enforced = &self.list.charges[..self.list.enforced];
        let has_queue = |index: &usize| enforced[*index].table.algorithm().queueing().is_some();
        let mut queues: Vec<_> = (0..enforced.len()).filter(has_queue).collect();
        queues.sort_unstable_by_key(|&index| enforced[index].table.policy());
        queues
    }

    /// The number of the charge at `index`.
    pub fn id(&self, index: usize) -> ChargeId {
        self.list.entries[index].id
    }

    /// Charges nothing to these limits any more: the request has their permits.
    pub fn skip(&mut self, is_paid: impl Fn(u16) -> bool) {
        let all = self.list.entries.iter().zip(&mut self.list.charges);
        for (_, charge) in all.filter(|(entry, _)| is_paid(entry.id.limit)) {
            charge.cost = 0;
        }
    }

    /// Takes the permits of the charge at `index`, or a place in the queue for them, once.
    pub fn acquire(&mut self, index: usize) -> Acquired {
        let charge = &mut self.list.charges[index];
        let acquired = Acquired::of(self.list.entries[index].buckets, charge);
        if let Acquired::Permits(_) = acquired {
            charge.cost = 0;
        }
        acquired
    }
}

#[cfg(test)]
mod tests;
