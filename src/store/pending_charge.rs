//! A charge that Redis decides. Memory was charged before; if Redis refuses, the charges in memory
//! are given back.

mod entry;

use std::sync::Arc;

use smallvec::SmallVec;

use super::charge_list::{ChargeList, ReserveScope, Reserved};
use super::memory::Refusals;
use super::redis::{self, BucketReplies, ChargeError, ChargedRefusals, Store};
use super::{ChargeResult, InUse, OnStoreError, QueuePlace, Reservation};
use crate::clock::Timestamp;
use crate::limiter::{Decision, Verdict};
pub(super) use entry::{EntryHome, PendingEntry};

/// A request that waits for Redis. If it is dropped, the charges in memory stay.
#[derive(Debug)]
pub struct PendingCharge {
    pub(super) store: Arc<Store>,
    pub(super) now: Timestamp,
    /// All charges; enforced ones come first.
    pub(super) entries: SmallVec<[PendingEntry; 4]>,
    pub(super) enforced: usize,
    /// The limits that ban the key, and the ends of the bans: then nothing is charged.
    pub(super) banned: Vec<(u16, Timestamp)>,
    /// The charges that tag. Redis decides them as shadowed ones.
    pub(super) tags: Vec<PendingEntry>,
    /// True if memory refuses the request. Redis then only charges refusals.
    pub(super) is_refused: bool,
    /// Reservations in memory, by the indices of the entries.
    pub(super) reserved: Reserved,
    pub(super) in_use: Vec<InUse>,
    pub(super) queue_places: Vec<(u16, QueuePlace)>,
}

/// The decision of Redis on a charge that tags.
#[derive(Debug)]
pub struct TagReply {
    /// The number of the limit.
    pub limit: u16,
    /// The decision, or the treatment of the request without one.
    pub decision: Result<Decision, OnStoreError>,
    /// Units in use, returned when the request ends.
    pub in_use: Option<InUse>,
    /// The charge that the response settles.
    pub reservation: Option<Reservation>,
}

/// The error of a request that a policy refuses because its store does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the store of a policy does not answer")]
pub struct Undecided;

impl PendingCharge {
    /// Calls Redis from this worker, and writes the decision to `result`.
    ///
    /// If this is dropped, leases that Redis may have given are given back.
    ///
    /// # Errors
    /// A policy refuses because its store does not answer. All charges in memory are given back.
    pub async fn decide(
        mut self: Box<Self>,
        worker: usize,
        result: &mut ChargeResult,
    ) -> Result<(), Undecided> {
        if !self.banned.is_empty() {
            self.peek(worker).await;
            self.merge(worker, result);
            return Ok(());
        }
        let lease = self.take_leases(worker);
        let answer = {
            let (buckets, enforced) = self.bucket_charges();
            let lease = lease.as_deref().unwrap_or_default();
            let charge = self
                .store
                .charge(worker, &buckets, enforced, lease, self.now);
            charge.await
        };
        self.finish(worker, answer, result)
    }

    /// Reads the buckets of a request with a banned key. Without Redis, memory decides whatever the
    /// policy says: the request is refused anyway.
    async fn peek(&mut self, worker: usize) {
        let now = self.now;
        let replies = {
            let (buckets, _) = self.bucket_charges();
            self.store.peek(worker, &buckets, now).await
        };
        let entries = self.entries.iter_mut();
        let in_redis = entries.filter(|entry| entry.redis().is_some());
        for (entry, reply) in in_redis.zip(replies) {
            let decision = match reply {
                Ok(decision) => {
                    entry.remember(&decision, now);
                    decision
                }
                Err(error) => {
                    entry.on_error(&error, now);
                    entry.entry().peek_payer(&entry.charge(), now)
                }
            };
            if let EntryHome::Redis(redis) = &mut entry.home {
                redis.decision = Some(decision);
            }
        }
    }

    /// Takes leases for the units in use. If the request ends now, they are given back.
    fn take_leases(&mut self, worker: usize) -> Option<Arc<str>> {
        let mut lease = None;
        for entry in self.entries.iter_mut().chain(&mut self.tags) {
            if entry.buckets.table.algorithm().is_concurrency() && entry.cost > 0 {
                let id = lease.get_or_insert_with(|| self.store.new_lease());
                let place = entry.place(&self.store, worker);
                if let EntryHome::Redis(redis) = &mut entry.home {
                    redis.lease = place.map(|place| place.lease(id));
                }
            }
        }
        lease
    }

    /// The charges for Redis, enforced ones first, and the number of enforced ones.
    fn bucket_charges(&self) -> (Vec<redis::BucketCharge<'_>>, usize) {
        let mut buckets = Vec::new();
        let mut enforced = 0;
        for (index, entry) in self.entries.iter().enumerate() {
            if let EntryHome::Redis(redis) = &entry.home {
                // Charges of a refused request are independent of each other.
                enforced += usize::from(index < self.enforced && !self.is_refused);
                let settles = entry.settles && !self.is_refused;
                entry.push_charges(&mut buckets, redis, settles, ChargedRefusals::All);
            }
        }
        for tag in &self.tags {
            if let EntryHome::Redis(redis) = &tag.home {
                tag.push_charges(&mut buckets, redis, tag.settles, ChargedRefusals::Own);
            }
        }
        (buckets, enforced)
    }

    /// Decides by the answer of Redis, or without it.
    fn finish(
        mut self: Box<Self>,
        worker: usize,
        answer: Result<BucketReplies, ChargeError>,
        result: &mut ChargeResult,
    ) -> Result<(), Undecided> {
        let error = match answer {
            Ok(replies) => {
                self.apply_replies(replies);
                None
            }
            Err(error) => {
                self.decide_in_memory(&error, result)?;
                Some(error)
            }
        };
        self.merge(worker, result);
        if result.verdict.is_admitted() {
            let now = self.now;
            let tags = std::mem::take(&mut self.tags).into_iter();
            let error = error.as_ref();
            let replies = tags.map(|tag| tag.tag_reply(&self.store, worker, error, now));
            result.tags = replies.collect();
        }
        Ok(())
    }

    /// Applies the replies of Redis.
    fn apply_replies(&mut self, replies: BucketReplies) {
        let (now, decided_by) = (self.now, self.store.decided_by(self.now));
        let entries = self.entries.iter_mut().chain(&mut self.tags);
        let in_redis = entries.filter(|entry| entry.redis().is_some());
        for (entry, mut reply) in in_redis.zip(replies) {
            if let Some(reply) = &mut reply {
                entry.move_on(reply.tier);
                if reply.is_doubted {
                    reply.decision.doubt(decided_by);
                } else {
                    entry.remember(&reply.decision, now);
                }
            }
            if let EntryHome::Redis(redis) = &mut entry.home {
                (redis.reply, redis.decision) = (reply, reply.map(|reply| reply.decision));
            }
        }
    }

    /// Decides without Redis, as each policy's `on_store_error` says.
    fn decide_in_memory(
        &mut self,
        error: &ChargeError,
        result: &mut ChargeResult,
    ) -> Result<(), Undecided> {
        let now = self.now;
        let mut list = ChargeList::default();
        let mut indices: SmallVec<[usize; 4]> = SmallVec::new();
        let mut is_undecided = false;
        for (index, entry) in self.entries.iter().enumerate() {
            let Some(on_error) = entry.on_error(error, now) else {
                continue;
            };
            let is_enforced = index < self.enforced && !self.is_refused;
            if on_error == OnStoreError::Local {
                indices.push(index);
                list.push(entry.entry(), entry.charge(), is_enforced);
            } else {
                result.without_store.push(entry.id.limit);
                is_undecided |= on_error == OnStoreError::Refuse && is_enforced;
            }
        }
        if is_undecided {
            for (_, reservation) in self.reserved.drain(..) {
                reservation.give_back(now);
            }
            return Err(Undecided);
        }
        let verdict = &mut result.verdict;
        let reserved = list.charge(ReserveScope::Settled, Refusals::Charged, now, verdict, None);
        let reserved = reserved.into_iter();
        self.reserved
            .extend(reserved.map(|(place, one)| (indices[place], one)));
        list.hold(result);
        let tiers = list.entries.iter();
        let tiers: Vec<_> = tiers
            .map(|tier| (tier.id, Arc::clone(tier.buckets)))
            .collect();
        drop(list);
        let decided = indices
            .into_iter()
            .zip(tiers)
            .zip(&result.verdict.decisions);
        for ((index, (id, buckets)), decision) in decided {
            let entry = &mut self.entries[index];
            (entry.id, entry.buckets) = (id, buckets);
            if let EntryHome::Redis(redis) = &mut entry.home {
                redis.decision = Some(*decision);
            }
        }
        Ok(())
    }

    /// Merges the decisions of memory and Redis. If Redis refuses, gives the charges in memory
    /// back.
    fn merge(&mut self, worker: usize, result: &mut ChargeResult) {
        let now = self.now;
        let mut enforced = self.entries[..self.enforced].iter();
        let is_refused = enforced.any(PendingEntry::is_refused_by_redis);
        let is_admitted = !self.is_refused && !is_refused;
        let mut enforced = self.entries[..self.enforced].iter();
        let is_certain = enforced.any(PendingEntry::is_certain_refusal)
            || self
                .entries
                .iter()
                .any(|entry| entry.charge().is_charged_if_refused());
        let is_in_doubt = is_refused && !self.is_refused && !is_certain;
        let decided_by = self.store.decided_by(now);
        result.doubted_until = is_in_doubt.then_some(decided_by);
        self.settle_reserved(is_admitted, result);
        match is_admitted {
            true => self.hold(worker, result),
            false => result.in_use.clear(),
        }
        let mut known = ChargeList {
            banned: std::mem::take(&mut self.banned),
            ..ChargeList::default()
        };
        let mut decisions: SmallVec<[Decision; 4]> = SmallVec::new();
        for entry in &mut self.entries {
            entry.end_lease();
        }
        for (index, entry) in self.entries.iter().enumerate() {
            let is_kept = is_admitted || self.is_refused;
            if let Some(decision) = entry.decision(is_kept, decided_by, now) {
                known.push(entry.entry(), entry.charge(), index < self.enforced);
                decisions.push(decision);
            }
        }
        result.verdict = Verdict::of(decisions, known.enforced);
        if !is_in_doubt {
            known.punish(&mut result.verdict, now);
        }
        known.describe(result);
    }

    /// Keeps the reservations in memory that the response settles. The others stay charged, or are
    /// given back.
    fn settle_reserved(&mut self, is_admitted: bool, result: &mut ChargeResult) {
        for (index, mut reservation) in self.reserved.drain(..) {
            let entry = &self.entries[index];
            if is_admitted && entry.settles {
                reservation.decide();
                let reservation = Reservation::Memory(reservation);
                result.reservations.push((entry.id.limit, reservation));
            } else if !is_admitted && !entry.charge().is_charged_if_refused() {
                reservation.give_back(self.now);
            }
        }
    }

    /// Keeps what an admitted request holds until it ends.
    fn hold(&mut self, worker: usize, result: &mut ChargeResult) {
        result.in_use.append(&mut self.in_use);
        result.queue_places.append(&mut self.queue_places);
        for entry in &mut self.entries {
            let limit = entry.id.limit;
            result.in_use.extend(entry.in_use());
            let reservation = entry.reservation(&self.store, worker);
            result
                .reservations
                .extend(reservation.map(|one| (limit, one)));
            let place = entry.queue_place(&self.store, worker);
            result.queue_places.extend(place.map(|one| (limit, one)));
        }
    }
}
