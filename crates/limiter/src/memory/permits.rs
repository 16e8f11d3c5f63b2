//! Units in use: those of concurrency limits, which requests return when they end, and the
//! unsettled units of other limits.
//!
//! They are not cells of a [`Table`](crate::Table): they are not evicted, and do not expire.
//! There are at most as many entries as requests in flight and waiting. A returned unit goes to the
//! next waiter in the same step.

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

use parking_lot::{Mutex, MutexGuard};
use smallvec::SmallVec;

use crate::algorithms::Concurrency;
use crate::{Cell, Fingerprint};
use queue::{PermitQueue, Ticket};

/// More than one, so that requests of different keys rarely wait for each other.
const SHARDS: usize = 16;

/// The units in use and the waiting requests of one policy, by key. A table shares them with its
/// successor.
#[derive(Debug, Default)]
pub(super) struct Permits {
    /// The units of a key up to which waiters are admitted.
    max: AtomicU64,
    shards: [Shard; SHARDS],
}

/// Some of the keys that have units in use.
#[derive(Debug, Default)]
pub(super) struct Shard(Mutex<HashMap<u64, KeyUnits>>);

#[derive(Debug, Default)]
struct KeyUnits {
    taken: u64,
    /// The units among them whose requests another store may still refuse.
    undecided: u64,
    /// The number of times that the bucket has started empty since the first of these units.
    generation: u64,
    queue: PermitQueue,
}

#[derive(Debug)]
pub(super) struct LockedShard<'a>(MutexGuard<'a, HashMap<u64, KeyUnits>>);

/// A guard of units in use, or of a place in the queue for them.
#[derive(Debug)]
#[must_use = "the units come back when it is dropped"]
pub struct Permit {
    permits: Arc<Permits>,
    key: Fingerprint,
    units: u32,
    /// The place in the queue that it has, or had.
    ticket: Option<Ticket>,
}

/// One turn for each key: its requests follow each other, first in first out. Clones are one.
#[derive(Clone, Debug)]
pub struct Turns(Arc<Permits>);

impl Default for Turns {
    fn default() -> Self {
        Self(Arc::new(Permits::new(1)))
    }
}

impl Turns {
    /// Takes the turn of `key`, or a place in the queue for it. `None` if `queue` requests wait there.
    pub fn take(&self, key: Fingerprint, queue: u32) -> Option<Permit> {
        self.0.acquire(key, 1, queue)
    }

    /// True if a request has the turn of `key`.
    pub fn is_taken(&self, key: Fingerprint) -> bool {
        self.0.shard(key).lock().units(key) > 0
    }

    /// The number of requests of `key`: the one that has the turn, and those behind it.
    pub fn requests(&self, key: Fingerprint) -> usize {
        let shard = self.0.shard(key).lock();
        let units = shard.0.get(&key.bits());
        units.map_or(0, |units| units.taken as usize + units.queue.len())
    }
}

/// Wakers to wake after unlocking.
type Wakers = SmallVec<[Waker; 4]>;

impl Permits {
    /// Permits whose waiters are admitted up to `max` units of a key.
    pub(super) fn new(max: u64) -> Self {
        Self {
            max: AtomicU64::new(max),
            shards: Default::default(),
        }
    }

    /// Sets the bound, and admits waiters up to it.
    pub(super) fn admit_up_to(&self, max: u64) {
        // A thread that returns units either sees the new bound, or has finished before its shard
        // is locked here.
        self.max.store(max, Ordering::Relaxed);
        for shard in &self.shards {
            let mut in_use = shard.lock();
            let waited_for = in_use.0.iter().filter(|(_, units)| units.queue.len() > 0);
            let keys: Vec<_> = waited_for.map(|(key, _)| *key).collect();
            let woken: Vec<_> = keys
                .into_iter()
                .flat_map(|key| in_use.admit_waiters(Fingerprint::from_bits(key), max))
                .collect();
            drop(in_use);
            woken.into_iter().for_each(Waker::wake);
        }
    }

    pub(super) fn shard(&self, key: Fingerprint) -> &Shard {
        &self.shards[(key.bits() % SHARDS as u64) as usize]
    }

    /// The number of keys with units in use, and of those that have at most 20 % of `max` left.
    pub(super) fn census(&self, max: u64) -> (usize, usize) {
        let is_near = |units: &&KeyUnits| units.taken * 5 >= max * 4;
        self.shards.iter().fold((0, 0), |(keys, near), shard| {
            let shard = shard.lock();
            let here = shard.0.values().filter(is_near).count();
            (keys + shard.0.len(), near + here)
        })
    }

    /// A guard of `units` units of `key`, which the caller has taken.
    pub(super) fn permit(self: &Arc<Self>, key: Fingerprint, units: u32) -> Permit {
        Permit {
            permits: Arc::clone(self),
            key,
            units,
            ticket: None,
        }
    }

    /// Takes units of `key`, or a place in its queue. `None` if `queue` requests wait already.
    pub(super) fn acquire(
        self: &Arc<Self>,
        key: Fingerprint,
        units: u32,
        queue: u32,
    ) -> Option<Permit> {
        let mut in_use = self.shard(key).lock();
        let max = self.max.load(Ordering::Relaxed);
        let of_key = in_use.0.entry(key.bits()).or_default();
        let fits = of_key.taken + u64::from(units) <= max;
        let ticket = if fits && !of_key.queue.has_waiter_within(max) {
            of_key.taken += u64::from(units);
            None
        } else if of_key.queue.len() < queue as usize {
            Some(of_key.queue.enter(units))
        } else {
            in_use.remove_if_idle(key);
            return None;
        };
        drop(in_use);
        let mut permit = self.permit(key, units);
        permit.ticket = ticket;
        Some(permit)
    }
}

impl Shard {
    pub(super) fn lock(&self) -> LockedShard<'_> {
        LockedShard(self.0.lock())
    }
}

impl LockedShard<'_> {
    /// The units in use of a key.
    pub(super) fn units(&self, key: Fingerprint) -> u64 {
        self.0.get(&key.bits()).map_or(0, |units| units.taken)
    }

    /// The units in use and the waiting requests of a key as a cell, each at most `u32::MAX`.
    /// Requests that can never fit `max` units do not count as waiting.
    pub(super) fn cell(&self, key: Fingerprint, max: u64) -> Cell {
        let Some(units) = self.0.get(&key.bits()) else {
            return Cell::EMPTY;
        };
        let waiting = if units.queue.has_waiter_within(max) {
            units.queue.len()
        } else {
            0
        };
        let whole = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        Concurrency::cell(whole(units.taken), whole(waiting as u64))
    }

    /// The number of times that the bucket of a key has started empty while units of it were
    /// unsettled.
    pub(super) fn generation(&self, key: Fingerprint) -> u64 {
        self.0.get(&key.bits()).map_or(0, |units| units.generation)
    }

    /// Marks the bucket of a key as started empty: earlier charges are no longer in it.
    pub(super) fn start_generation(&mut self, key: Fingerprint) {
        if let Some(units) = self.0.get_mut(&key.bits()) {
            units.generation += 1;
        }
    }

    /// True if units of a key may be given back because another store refuses their request.
    pub(super) fn is_undecided(&self, key: Fingerprint) -> bool {
        let units = self.0.get(&key.bits());
        units.is_some_and(|units| units.undecided > 0)
    }

    /// Counts units that have been taken as undecided.
    pub(super) fn add_undecided(&mut self, key: Fingerprint, units: u32) {
        if let Some(of_key) = self.0.get_mut(&key.bits()) {
            of_key.undecided += u64::from(units);
        }
    }

    /// Counts units as decided.
    pub(super) fn decide(&mut self, key: Fingerprint, units: u32) {
        if let Some(of_key) = self.0.get_mut(&key.bits()) {
            of_key.undecided = of_key.undecided.saturating_sub(u64::from(units));
        }
    }

    /// Takes units that the caller has found free.
    pub(super) fn take(&mut self, key: Fingerprint, units: u32) {
        if units > 0 {
            self.0.entry(key.bits()).or_default().taken += u64::from(units);
        }
    }

    /// Returns units.
    pub(super) fn give_back(&mut self, key: Fingerprint, units: u32) {
        if let Some(in_use) = self.0.get_mut(&key.bits()) {
            in_use.taken = in_use.taken.saturating_sub(u64::from(units));
            self.remove_if_idle(key);
        }
    }

    /// Leaves the queue; true if the place was still there.
    fn leave_queue(&mut self, key: Fingerprint, ticket: Ticket) -> bool {
        let of_key = self.0.get_mut(&key.bits());
        let left = of_key.is_some_and(|units| units.queue.leave(ticket));
        self.remove_if_idle(key);
        left
    }

    /// Gives the free units of a key to its waiters, in order.
    fn admit_waiters(&mut self, key: Fingerprint, max: u64) -> Wakers {
        let mut woken = Wakers::new();
        let Some(of_key) = self.0.get_mut(&key.bits()) else {
            return woken;
        };
        loop {
            let free = max.saturating_sub(of_key.taken);
            let Some((units, waker)) = of_key.queue.admit(free, max) else {
                return woken;
            };
            of_key.taken += u64::from(units);
            woken.extend(waker);
        }
    }

    /// Removes the entry of a key without units in use or waiters.
    fn remove_if_idle(&mut self, key: Fingerprint) {
        let of_key = self.0.get(&key.bits());
        if of_key.is_some_and(|units| units.taken == 0 && units.queue.len() == 0) {
            self.0.remove(&key.bits());
        }
    }
}

impl Permit {
    /// True if the request got a place in the queue instead of the units.
    pub fn has_to_wait(&self) -> bool {
        self.ticket.is_some()
    }

    /// True until the units are taken.
    pub fn is_waiting(&self) -> bool {
        let shard = self.permits.shard(self.key).lock();
        let queue = shard.0.get(&self.key.bits()).map(|units| &units.queue);
        let is_in = |ticket| queue.is_some_and(|queue| queue.contains(ticket));
        self.ticket.is_some_and(is_in)
    }

    /// Waits until the units are taken.
    pub async fn acquired(&self) {
        poll_fn(|cx| self.poll_acquired(cx)).await;
    }

    fn poll_acquired(&self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(ticket) = self.ticket else {
            return Poll::Ready(());
        };
        let mut in_use = self.permits.shard(self.key).lock();
        let of_key = in_use.0.get_mut(&self.key.bits());
        if of_key.is_some_and(|units| units.queue.set_waker(ticket, cx.waker())) {
            Poll::Pending
        } else {
            Poll::Ready(())
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut in_use = self.permits.shard(self.key).lock();
        let waited = self
            .ticket
            .is_some_and(|ticket| in_use.leave_queue(self.key, ticket));
        if !waited {
            in_use.give_back(self.key, self.units);
        }
        let woken = in_use.admit_waiters(self.key, self.permits.max.load(Ordering::Relaxed));
        drop(in_use);
        woken.into_iter().for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests;
pub(super) mod queue;
