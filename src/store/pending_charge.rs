//! A charge that Redis decides. Memory was charged before; if Redis refuses, the charges in memory
//! are given back.

mod entry;

use std::sync::{Arc, OnceLock};

use smallvec::SmallVec;

use super::charge_list::{ChargeList, ListedCharge, Reserved};
use super::memory::Ask;
use super::redis::{self, BucketReplies, ChargeError, Store};
use super::{Caller, ChargeResult, ChargedLimits, OnStoreError, Reservation};
use crate::clock::Timestamp;
use crate::limiter::{Decision, Verdict};
pub(super) use entry::PendingEntry;

/// A request that waits for Redis. If it is dropped, the charges in memory stay.
#[derive(Debug)]
pub struct PendingCharge {
    pub(super) store: Arc<Store>,
    pub(super) now: Timestamp,
    /// All charges; enforced ones come first. If one is banned, nothing is charged.
    pub(super) entries: SmallVec<[PendingEntry; 4]>,
    pub(super) enforced: usize,
    /// Whether the request is charged, or only looked at.
    pub(super) ask: Ask,
    /// True if memory refuses the request. Redis then only charges refusals.
    pub(super) is_refused: bool,
    /// Reservations in memory, by the indices of the entries.
    pub(super) reserved: Reserved,
}

/// The cached refusals of enforced charges, by their places.
type KnownRefusals<'a> = SmallVec<[Option<(ListedCharge<'a>, Decision)>; 4]>;

/// The error of a request that a policy refuses because its store does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the store of a policy does not answer")]
pub struct Undecided;

impl PendingCharge {
    /// Has the request decided at `now`, after a wait.
    pub fn decide_at(&mut self, now: Timestamp) {
        self.now = now;
    }

    /// Calls Redis for this caller, and writes the decision to `result`, which has what the
    /// request holds in memory.
    ///
    /// If this is dropped, leases that Redis may have given are given back.
    ///
    /// # Errors
    /// A policy refuses because its store does not answer. All charges in memory are given back.
    pub async fn decide(
        mut self: Box<Self>,
        caller: Caller,
        limits: &dyn ChargedLimits,
        result: &mut ChargeResult,
    ) -> Result<(), Undecided> {
        let worker = caller.worker;
        let mut enforced = self.entries[..self.enforced].iter();
        let is_banned = enforced.any(|entry| entry.charge.banned_until.is_some());
        if is_banned || self.ask == Ask::Peek {
            let decided = self.peek(caller, is_banned, limits, result).await;
            self.merge(worker, limits, result);
            return decided;
        }
        let lease = self.take_leases(worker, limits);
        let known = OnceLock::new();
        let answer = {
            let (buckets, enforced) = self.bucket_charges(limits);
            let lease = lease.as_deref().unwrap_or_default();
            // What waits for a place may be refused by the answer to another request.
            let is_over = || {
                let found = self.known_refusals(limits);
                lease.is_empty()
                    && self.is_known_refusal(&found, limits)
                    && known.set(found).is_ok()
            };
            let ask = if self.is_refused {
                Ask::RefusedElsewhere
            } else {
                Ask::Charge
            };
            let charge =
                (self.store).charge(caller, (&buckets, enforced), ask, lease, self.now, is_over);
            charge.await
        };
        match answer {
            Ok(replies) => self.apply_replies(replies, limits),
            Err(error) => self.decide_in_memory(&error, known.into_inner(), limits, result)?,
        }
        self.merge(worker, limits, result);
        Ok(())
    }

    /// Reads the buckets of a request that is charged nothing. Without Redis, memory decides on one
    /// with a banned key whatever the policy says: it is refused anyway.
    ///
    /// # Errors
    /// As [`decide`](Self::decide).
    async fn peek(
        &mut self,
        caller: Caller,
        is_banned: bool,
        limits: &dyn ChargedLimits,
        result: &mut ChargeResult,
    ) -> Result<(), Undecided> {
        let now = self.now;
        let ask = if is_banned { Ask::Banned } else { Ask::Peek };
        let replies = {
            let (buckets, _) = self.bucket_charges(limits);
            self.store.peek(caller, &buckets, ask, now).await
        };
        let (mut is_undecided, decided_by) = (false, self.store.decided_by(now));
        let entries = self.entries.iter_mut();
        let in_redis = entries.filter(|entry| entry.redis.is_some());
        for (entry, reply) in in_redis.zip(replies) {
            let listed = ListedCharge::new(limits, entry.charge);
            match reply {
                Ok(reply) => {
                    // A look at the buckets is no decision to remember, unless the key is banned.
                    entry.apply_reply(listed, reply, is_banned, decided_by, now);
                }
                Err(error) => {
                    let on_error = entry.on_error(listed, &error, now).unwrap_or_default();
                    if is_banned || on_error == OnStoreError::Local {
                        let (decided, decision) = listed.peek(ask, now);
                        (entry.charge, entry.decision) = (decided.charge, Some(decision));
                    }
                    is_undecided |= on_error == OnStoreError::Refuse && listed.can_refuse();
                    entry.note_error(on_error, &error, result);
                }
            }
        }
        if is_undecided && !is_banned {
            Err(Undecided)
        } else {
            Ok(())
        }
    }

    /// Takes leases for the units in use. If the request ends now, they are given back.
    fn take_leases(&mut self, worker: usize, limits: &dyn ChargedLimits) -> Option<Arc<str>> {
        let mut lease = None;
        let to = (&self.store, worker);
        for entry in &mut self.entries {
            let listed = ListedCharge::new(limits, entry.charge);
            if listed.buckets.algorithm().is_concurrency() && entry.charge.demand.cost > 0 {
                let id = lease.get_or_insert_with(|| self.store.new_lease());
                let bucket = entry.bucket(listed, 0, to);
                if let Some(redis) = &mut entry.redis {
                    redis.lease = bucket.map(|bucket| bucket.lease(id));
                }
            }
        }
        lease
    }

    /// The charges for Redis, enforced ones first, and the number of enforced ones.
    fn bucket_charges<'a>(
        &'a self,
        limits: &'a dyn ChargedLimits,
    ) -> (Vec<redis::BucketCharge<'a>>, usize) {
        let mut buckets = Vec::new();
        for entry in &self.entries {
            let listed = ListedCharge::new(limits, entry.charge);
            entry.push_charges(&mut buckets, listed);
        }
        if self.is_refused {
            // Charges of a refused request are independent of each other.
            buckets.iter_mut().for_each(|bucket| bucket.settles = false);
            return (buckets, 0);
        }
        let enforced = self.entries[..self.enforced].iter();
        let enforced = enforced.filter(|entry| entry.redis.is_some());
        (buckets, enforced.count())
    }

    /// Applies the replies of Redis.
    fn apply_replies(&mut self, replies: BucketReplies, limits: &dyn ChargedLimits) {
        let (now, decided_by) = (self.now, self.store.decided_by(self.now));
        let entries = self.entries.iter_mut();
        let in_redis = entries.filter(|entry| entry.redis.is_some());
        for (entry, reply) in in_redis.zip(replies) {
            if let Some(reply) = reply {
                let listed = ListedCharge::new(limits, entry.charge);
                entry.apply_reply(listed, reply, true, decided_by, now);
            }
        }
    }

    /// What Redis has refused to other requests meanwhile, which holds for this one, too, for each
    /// enforced charge.
    fn known_refusals<'a>(&self, limits: &'a dyn ChargedLimits) -> KnownRefusals<'a> {
        let enforced = self.entries[..self.enforced].iter();
        let listed = |entry: &PendingEntry| ListedCharge::new(limits, entry.charge);
        let known = |entry: &PendingEntry| entry.cached_refusal(listed(entry), self.now);
        enforced.filter(|_| !self.is_refused).map(known).collect()
    }

    /// True if one of them refuses the request. Policies that charge refusals always call Redis.
    fn is_known_refusal(&self, known: &KnownRefusals<'_>, limits: &dyn ChargedLimits) -> bool {
        let listed = |entry: &PendingEntry| ListedCharge::new(limits, entry.charge);
        let charges = |entry: &PendingEntry| listed(entry).is_charged_if_refused();
        known.iter().any(Option::is_some) && !self.entries.iter().any(charges)
    }

    /// Decides without Redis, as each policy's `on_store_error` says, unless refusals are `known`.
    fn decide_in_memory<'a>(
        &mut self,
        error: &ChargeError,
        known: Option<KnownRefusals<'a>>,
        limits: &'a dyn ChargedLimits,
        result: &mut ChargeResult,
    ) -> Result<(), Undecided> {
        let now = self.now;
        let mut list = ChargeList::new(limits);
        let mut indices: SmallVec<[usize; 4]> = SmallVec::new();
        let mut is_undecided = false;
        // Looked up once: answers to other requests come meanwhile.
        let refusals = known.unwrap_or_else(|| self.known_refusals(limits));
        let (is_known, mut is_refused) = (self.is_known_refusal(&refusals, limits), false);
        for (index, entry) in self.entries.iter_mut().enumerate() {
            let mut listed = ListedCharge::new(limits, entry.charge);
            let is_enforced = listed.can_refuse() && !self.is_refused;
            if let Some((tier, decision)) = refusals.get(index).copied().flatten() {
                (entry.charge, entry.decision) = (tier.charge, Some(decision));
                is_refused = true;
                continue;
            }
            // Nothing is charged to the others then, nor to tags.
            if is_known && entry.redis.is_some() || is_refused && entry.charge.role.is_tag() {
                continue;
            }
            let Some(on_error) = entry.on_error(listed, error, now) else {
                continue;
            };
            if on_error == OnStoreError::Local {
                if self.is_refused {
                    let owed = entry.charge.owed();
                    entry.charge.demand = owed.demand;
                    listed = ListedCharge::new(limits, owed);
                }
                indices.push(index);
                list.push(listed);
            } else {
                entry.note_error(on_error, error, result);
                is_undecided |= on_error == OnStoreError::Refuse && is_enforced;
            }
        }
        if is_undecided && !is_refused {
            for (_, reservation) in self.reserved.drain(..) {
                reservation.give_back(now);
            }
            result.release();
            return Err(Undecided);
        }
        let verdict = &mut result.verdict;
        let reserved = list.charge(false, self.ask, now, verdict, None);
        let reserved = reserved.into_iter();
        self.reserved
            .extend(reserved.map(|(place, one)| (indices[place], one)));
        list.hold(result);
        let decided = list.charges.iter().zip(&result.verdict.decisions);
        for (index, (listed, decision)) in indices.into_iter().zip(decided) {
            let entry = &mut self.entries[index];
            entry.charge.id = listed.charge.id;
            entry.decision = Some(*decision);
        }
        Ok(())
    }

    /// Merges the decisions of memory and Redis. If Redis refuses, gives the charges in memory
    /// back.
    fn merge(&mut self, worker: usize, limits: &dyn ChargedLimits, result: &mut ChargeResult) {
        let now = self.now;
        let enforced = &self.entries[..self.enforced];
        let is_refused = enforced.iter().any(PendingEntry::is_refused_by_redis);
        let is_certain = enforced.iter().any(PendingEntry::is_certain_refusal)
            || self
                .entries
                .iter()
                .any(|entry| ListedCharge::new(limits, entry.charge).is_charged_if_refused());
        let is_admitted = !self.is_refused && !is_refused;
        let is_in_doubt = is_refused && !self.is_refused && !is_certain;
        let decided_by = self.store.decided_by(now);
        result.doubted_until = is_in_doubt.then_some(decided_by);
        self.settle_reserved(is_admitted, limits, result);
        if !is_admitted {
            result.release();
        }
        let mut known = ChargeList::new(limits);
        let mut decisions: SmallVec<[Decision; 4]> = SmallVec::new();
        for entry in &mut self.entries {
            let listed = ListedCharge::new(limits, entry.charge);
            if is_admitted && self.ask != Ask::Peek {
                entry.hold(listed, (&self.store, worker), result);
            }
            entry.end_lease();
            let Some(decision) = entry.decision else {
                continue;
            };
            // A charge that was given back, or that is not made, tells what is left without it.
            let spared = entry
                .spared()
                .filter(|_| !is_admitted && decision.is_admitted());
            let is_kept = is_admitted
                || self.is_refused
                || entry.redis.is_some()
                || !decision.is_admitted()
                || listed.is_charged_if_refused();
            let (listed, decision) = if is_kept {
                (listed, spared.unwrap_or(decision))
            } else {
                listed.first(limits).peek_spared(decided_by, now)
            };
            decisions.push(decision);
            known.push(listed);
        }
        result.verdict = Verdict::of(decisions, known.enforced);
        known.conclude(self.ask, result, now);
    }

    /// Keeps the reservations in memory that the response settles. The others stay charged, or are
    /// given back.
    fn settle_reserved(
        &mut self,
        is_admitted: bool,
        limits: &dyn ChargedLimits,
        result: &mut ChargeResult,
    ) {
        for (index, mut reservation) in self.reserved.drain(..) {
            let charge = self.entries[index].charge;
            let is_owed = || ListedCharge::new(limits, charge).is_charged_if_refused();
            if is_admitted && charge.settles {
                reservation.decide();
                let reservation = Reservation::Memory(reservation);
                result
                    .held_mut()
                    .reservations
                    .push((charge.id.limit, reservation));
            } else if !is_admitted && is_owed() {
                // Without a response, a refused request is charged what it needs.
                let units = reservation.units().saturating_add(charge.demand.required);
                if units > reservation.units() {
                    reservation.settle(units, self.now);
                }
            } else if !is_admitted {
                reservation.give_back(self.now);
            }
        }
    }
}
