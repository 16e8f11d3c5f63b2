//! The buckets of one policy: a fixed number of them, made as keys first touch them. Deciding and charging is in
//! `memory`; where a key's bucket is, in `layout`; its move to a table of another size or quota in `succession`.

mod in_use;
mod export;
mod layout;
mod reclaim;
mod migrate;

use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, OnceLock};

use super::bucket::{Bucket, Eviction, FLOOR, SlotChoice, Slots};
use super::charge::Charge;
use super::permits::Permits;
use super::slab::Slab;
use super::table_rules::{Rings, TableRules, refuse_for_memory};
use crate::clock::Timestamp;
use crate::limiter::{Algorithm, Cell, Decision, Fingerprint, Segments};
pub(super) use export::ExportedEntry;

/// The buckets of one policy.
///
/// Its size is fixed: 1.5 entries a key, 38 bytes, of which hashing leaves some unused ([`Table::size_keeping`]). An untouched table costs next to nothing, and
/// one that has been touched everywhere never allocates again. Nothing sweeps it: an entry that has
/// expired is free space.
pub struct Table {
    policy: Box<str>,
    algorithm: Algorithm,
    on_full: OnFull,
    refusals: Refusals,
    keys: usize,
    buckets: usize,
    cut: Segments,
    /// Each made on first use. An empty one was moved to the successor before it was ever used.
    segments: Box<[OnceLock<Box<[Bucket]>>]>,
    /// Where the rings are, for algorithms that have any.
    slab: Option<Slab>,
    /// What is counted instead of cells, for an algorithm whose units come back when requests end.
    permits: Option<Arc<Permits>>,
    /// Whether charges are settled by what comes afterwards.
    settles: bool,
    /// The units of charges that may still be settled, or given back.
    /// Made on first use: few policies have any, and they are large.
    unsettled: Arc<LazyLock<Box<Permits>>>,
    ring_bytes: u64,
    /// The bucket that has to give up a ring next.
    hand: AtomicUsize,
    /// Set before the first bucket is marked as moved.
    successor: OnceLock<Arc<Table>>,
    evictions: AtomicU64,
    unrecorded: AtomicU64,
}

/// What happens to a new key when every entry it could have still counts.
///
/// Either way an entry that would refuse is never dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnFull {
    /// The key that has used least is forgotten; when all refuse, the new one is admitted
    /// unrecorded.
    #[default]
    Forget,
    /// The new key starts with at least what any forgotten one had used: no key ever exceeds its
    /// limit, and new keys pay for it while the table is full.
    Strict,
}

/// Whether refused requests are charged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Refusals {
    /// They are not.
    #[default]
    Free,
    /// They are, into debt where nothing is left ([`Algorithm::charge_refused`]).
    Charged,
}

impl Table {
    /// The table of a policy, for about `keys` keys (at least one), with room for as many full rings
    /// if the algorithm has any.
    pub fn new(
        policy: impl Into<Box<str>>,
        algorithm: Algorithm,
        keys: usize,
        on_full: OnFull,
    ) -> Self {
        let ring_bytes = (keys as u64).saturating_mul(Self::ring_bytes_for(&algorithm));
        Self::with_rings(policy, algorithm, keys, ring_bytes, on_full)
    }

    /// The same with room for rings in about so many bytes.
    pub fn with_rings(
        policy: impl Into<Box<str>>,
        algorithm: Algorithm,
        keys: usize,
        ring_bytes: u64,
        on_full: OnFull,
    ) -> Self {
        let buckets = Self::buckets_for(keys);
        let cut = Self::segments_for(buckets);
        let shape = algorithm.shape();
        Self {
            policy: policy.into(),
            slab: shape.map(|shape| Slab::new(shape, ring_bytes)),
            permits: algorithm
                .is_concurrency()
                .then(|| Arc::new(Permits::new(algorithm.capacity()))),
            settles: false,
            unsettled: Arc::new(LazyLock::new(Box::default)),
            ring_bytes,
            hand: AtomicUsize::new(0),
            algorithm,
            on_full,
            refusals: Refusals::Free,
            keys,
            buckets,
            cut,
            segments: (0..cut.count()).map(|_| OnceLock::new()).collect(),
            successor: OnceLock::new(),
            evictions: AtomicU64::new(0),
            unrecorded: AtomicU64::new(0),
        }
    }

    /// The bytes of a full ring; 0 for algorithms that have none.
    pub const fn ring_bytes_for(algorithm: &Algorithm) -> u64 {
        match algorithm.shape() {
            Some(shape) => shape.max_chunks() as u64 * shape.chunk_bytes() as u64,
            None => 0,
        }
    }

    /// The policy's name.
    pub fn policy(&self) -> &str {
        &self.policy
    }

    /// How the policy decides.
    pub const fn algorithm(&self) -> &Algorithm {
        &self.algorithm
    }

    /// The same table, still empty, that charges refused requests or does not.
    #[must_use]
    pub fn with_refusals(self, refusals: Refusals) -> Self {
        Self { refusals, ..self }
    }

    /// Whether refused requests are charged.
    pub const fn refusals(&self) -> Refusals {
        self.refusals
    }

    /// What happens when the table is full.
    pub const fn on_full(&self) -> OnFull {
        self.on_full
    }

    /// For how many keys the table was made.
    pub const fn keys(&self) -> usize {
        self.keys
    }

    /// In about how many bytes its rings have room.
    pub const fn ring_bytes(&self) -> u64 {
        self.ring_bytes
    }

    /// Entries dropped, or merged into others, though they still counted.
    pub fn evictions(&self) -> u64 {
        self.evictions.load(Ordering::Relaxed)
    }

    /// Charges admitted without a record because every entry they could have refuses.
    pub fn unrecorded(&self) -> u64 {
        self.unrecorded.load(Ordering::Relaxed)
    }

    /// How many keys have an entry that still counts. Looks at every touched bucket, one at a time
    /// (some 3 ms for a million keys): for a metric, not for a request.
    pub fn live(&self, now: Timestamp) -> usize {
        if let Some(permits) = &self.permits {
            return permits.keys();
        }
        let buckets = self.segments.iter().filter_map(OnceLock::get).flatten();
        let keys = |bucket: &Bucket| {
            let slots = bucket.lock()?;
            Some(slots.live(now).filter(|entry| entry.tag != FLOOR).count())
        };
        buckets.filter_map(keys).sum()
    }

    /// What [`Charge::peek`] says of so many units of this key.
    pub fn peek(&self, key: Fingerprint, cost: u32, now: Timestamp) -> Decision {
        let charge = Charge {
            table: self,
            key,
            cost,
            window_end: None,
        };
        charge.peek(now)
    }

    pub(super) fn peek_at(&self, charge: &Charge<'_>, now: Timestamp) -> Decision {
        let &Charge { key, cost, .. } = charge;
        let rules = charge.rules(self);
        if let Some(permits) = &self.permits {
            let max = self.algorithm.capacity();
            let cell = permits.shard(key).lock().cell(key, max);
            return self.algorithm.decide(cell, now, cost);
        }
        let index = self.index(key.bits());
        let (segment, offset) = self.place(index);
        let Some(segment) = self.segments[segment].get() else {
            let new = rules.open(Cell::EMPTY, key.bits(), now);
            return self.algorithm.decide(new, now, cost);
        };
        match segment.get(offset).and_then(Bucket::lock) {
            Some(slots) => {
                let slot = slots.choose_slot(key.bits(), rules, now);
                let decision = rules.decide(slot.cell, now, cost);
                if slot.has_no_memory() {
                    return refuse_for_memory(decision, slot.cell, now);
                }
                slot.release(rules);
                decision
            }
            None => self.next().peek_at(charge, now),
        }
    }

    /// The rules by which the buckets are filled.
    pub(super) const fn rules(&self) -> TableRules<'_> {
        TableRules {
            algorithm: &self.algorithm,
            on_full: self.on_full,
            refusals: self.refusals,
            rings: match &self.slab {
                None => None,
                Some(slab) => Some(Rings { slab, table: self }),
            },
            window_end: None,
        }
    }

    /// Writes a key's cell where its slot said, and returns what is kept of it: nothing if there was no room.
    pub(super) fn write(
        &self,
        slots: &mut Slots,
        slot: SlotChoice,
        key: Fingerprint,
        cell: Cell,
        rules: TableRules<'_>,
    ) -> Cell {
        let eviction = slots.write(slot, key.bits(), cell, rules);
        self.count_eviction(eviction);
        match eviction {
            Eviction::Unrecorded => Cell::EMPTY,
            Eviction::None | Eviction::Entries(_) => cell,
        }
    }

    /// Counts what a charge cost other keys.
    pub(super) fn count_eviction(&self, eviction: Eviction) {
        match eviction {
            Eviction::None => {}
            Eviction::Entries(entries) => {
                self.evictions.fetch_add(entries, Ordering::Relaxed);
            }
            Eviction::Unrecorded => {
                self.unrecorded.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table")
            .field("policy", &self.policy)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
