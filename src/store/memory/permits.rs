//! Units in use: what limits count whose units come back when requests end, and not with time; and what other limits
//! have still to settle.
//!
//! They are no cells of a [`Table`](crate::store::Table): nothing evicts them, and nothing expires. There are never more
//! entries than requests in flight, and that wait. What comes back is given to the next in line in the same step.

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Waker};

use parking_lot::{Mutex, MutexGuard};
use smallvec::SmallVec;

use crate::limiter::{Cell, Concurrency, Fingerprint};
use queue::{PermitQueue, Ticket};

/// So that requests of different keys rarely wait for each other.
const SHARDS: usize = 16;

/// The units in use of one policy, by key, and who waits for them. Tables that succeed each other share them.
#[derive(Debug, Default)]
pub(super) struct Permits {
    /// Up to how many units of a key those are let in who wait.
    max: AtomicU32,
    shards: [Shard; SHARDS],
}

/// Some of the keys: those of which any units are in use.
#[derive(Debug, Default)]
pub(super) struct Shard(Mutex<HashMap<u64, KeyUnits>>);

/// The units of a key.
#[derive(Debug, Default)]
struct KeyUnits {
    taken: u64,
    /// How often the bucket that they are taken from has begun anew since the first of them.
    generation: u64,
    queue: PermitQueue,
}

/// A shard that is locked.
#[derive(Debug)]
pub(super) struct LockedShard<'a>(MutexGuard<'a, HashMap<u64, KeyUnits>>);

/// Units that are in use as long as this lives, or a place in the line for them.
#[derive(Debug)]
#[must_use = "the units come back when it is dropped"]
pub struct Permit {
    permits: Arc<Permits>,
    key: Fingerprint,
    units: u32,
    /// The place in line that it had, or has.
    ticket: Option<Ticket>,
}

/// Whom to wake once nothing is locked any more.
type Wakers = SmallVec<[Waker; 4]>;

impl Permits {
    /// Those who wait are let in up to `max` units of a key.
    pub(super) fn new(max: u32) -> Self {
        Self {
            max: AtomicU32::new(max),
            shards: Default::default(),
        }
    }

    /// Lets those in who wait up to `max` units of a key from now on.
    pub(super) fn admit_up_to(&self, max: u32) {
        // Whoever gives something back either sees this, or has done so before his shard is looked at here.
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

    /// The shard of a key.
    pub(super) fn shard(&self, key: Fingerprint) -> &Shard {
        &self.shards[(key.bits() % SHARDS as u64) as usize]
    }

    /// How many keys have units in use.
    pub(super) fn keys(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().0.len()).sum()
    }

    /// How many units are in use in all.
    pub(super) fn units(&self) -> u64 {
        let units = |shard: &Shard| {
            shard
                .lock()
                .0
                .values()
                .map(|units| units.taken)
                .sum::<u64>()
        };
        self.shards.iter().map(units).sum()
    }

    /// What gives back so many units of `key`, which have been taken.
    pub(super) fn permit(self: &Arc<Self>, key: Fingerprint, units: u32) -> Permit {
        Permit {
            permits: Arc::clone(self),
            key,
            units,
            ticket: None,
        }
    }

    /// Takes so many units of `key`, or a place in line for them; `None` where as many as `queue` wait.
    pub(super) fn acquire(
        self: &Arc<Self>,
        key: Fingerprint,
        units: u32,
        queue: u32,
    ) -> Option<Permit> {
        let mut in_use = self.shard(key).lock();
        let max = self.max.load(Ordering::Relaxed);
        let of_key = in_use.0.entry(key.bits()).or_default();
        let fits = of_key.taken + u64::from(units) <= u64::from(max);
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

    /// The same as the cell of a bucket, of which there are never more than such a cell holds, with those who wait
    /// for their turn where there are `max` units.
    pub(super) fn cell(&self, key: Fingerprint, max: u32) -> Cell {
        let Some(units) = self.0.get(&key.bits()) else {
            return Cell::EMPTY;
        };
        let waiting = match units.queue.has_waiter_within(max) {
            true => units.queue.len(),
            false => 0,
        };
        let whole = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        Concurrency::cell(whole(units.taken), whole(waiting as u64))
    }

    /// How often the bucket of a key has begun anew while units of it were in use.
    pub(super) fn generation(&self, key: Fingerprint) -> u64 {
        self.0.get(&key.bits()).map_or(0, |units| units.generation)
    }

    /// Tells those who have units of a key that nothing of them is in its bucket any more.
    pub(super) fn start_generation(&mut self, key: Fingerprint) {
        if let Some(units) = self.0.get_mut(&key.bits()) {
            units.generation += 1;
        }
    }

    /// Takes units that were found to be there.
    pub(super) fn take(&mut self, key: Fingerprint, units: u32) {
        if units > 0 {
            self.0.entry(key.bits()).or_default().taken += u64::from(units);
        }
    }

    /// Gives back units that were taken.
    pub(super) fn give_back(&mut self, key: Fingerprint, units: u32) {
        if let Some(in_use) = self.0.get_mut(&key.bits()) {
            in_use.taken = in_use.taken.saturating_sub(u64::from(units));
            self.remove_if_idle(key);
        }
    }

    /// Gives up a place in line; whether there was one still.
    fn leave_queue(&mut self, key: Fingerprint, ticket: Ticket) -> bool {
        let of_key = self.0.get_mut(&key.bits());
        let left = of_key.is_some_and(|units| units.queue.leave(ticket));
        self.remove_if_idle(key);
        left
    }

    /// Gives what is free of a key to those who wait, in their order.
    fn admit_waiters(&mut self, key: Fingerprint, max: u32) -> Wakers {
        let mut woken = Wakers::new();
        let Some(of_key) = self.0.get_mut(&key.bits()) else {
            return woken;
        };
        loop {
            let free = u64::from(max).saturating_sub(of_key.taken);
            let Some((units, waker)) = of_key.queue.admit(free, max) else {
                return woken;
            };
            of_key.taken += u64::from(units);
            woken.extend(waker);
        }
    }

    /// Has no entry where nothing is in use, and nobody waits.
    fn remove_if_idle(&mut self, key: Fingerprint) {
        let of_key = self.0.get(&key.bits());
        if of_key.is_some_and(|units| units.taken == 0 && units.queue.len() == 0) {
            self.0.remove(&key.bits());
        }
    }
}

impl Permit {
    /// Whether it was a place in line at first.
    pub fn has_to_wait(&self) -> bool {
        self.ticket.is_some()
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
        match of_key.is_some_and(|units| units.queue.set_waker(ticket, cx.waker())) {
            true => Poll::Pending,
            false => Poll::Ready(()),
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
