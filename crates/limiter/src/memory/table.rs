//! The buckets of one policy: a fixed number, allocated as keys first touch them. `layout` finds a
//! key's bucket, `charge` decides and charges, and `migrate` moves buckets to a table of another
//! size or quota.

mod census;
mod in_use;
mod layout;
mod read;
mod reclaim;
mod migrate;

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, OnceLock};

use super::bucket::{Bucket, Eviction, FLOOR, SlotChoice, Slots};
use super::charge::{Charge, charge_all};
use super::permits::Permits;
use super::slab::Slab;
use super::table_rules::{TableRules, refuse_for_memory};
use crate::segments::Segments;
use crate::{Algorithm, Cell, Decision, Demand, Fingerprint, Timestamp};
pub use census::TableCensus;
pub use migrate::{EntryKeys, ExportedBucket, ExportedEntry};

/// The buckets of one policy.
///
/// Its size is fixed: 1.5 entries for each key, 38 bytes, of which hashing leaves some unused
/// ([`Table::size_keeping`]). An untouched table costs almost nothing, and a fully touched one
/// never allocates. No task sweeps it: an expired entry is free space.
#[derive(derive_more::Debug)]
#[debug("Table({policy})")]
pub struct Table {
    policy: Box<str>,
    algorithm: Algorithm,
    /// The treatment of new keys if the table is full.
    pub on_full: OnFull,
    /// The treatment of refused requests.
    pub refusals: Refusals,
    /// The number of keys that the table was made for.
    pub keys: usize,
    buckets: usize,
    cut: Segments,
    /// Allocated on first use. An empty one has moved to the successor unused.
    segments: Box<[OnceLock<Box<[Bucket]>>]>,
    /// The memory of rings, for algorithms that have any.
    slab: Option<Slab>,
    /// The units in use of a concurrency limit, which has no cells.
    permits: Option<Arc<Permits>>,
    /// True if charges are settled after the response.
    pub settles: bool,
    /// The units of charges that may still be settled or given back. Allocated on first use: few
    /// policies need it, and it is large.
    unsettled: Arc<LazyLock<Box<Permits>>>,
    /// The approximate bytes for rings.
    pub ring_bytes: u64,
    /// The next bucket to reclaim a ring from.
    hand: AtomicUsize,
    /// Set before any bucket is marked as moved.
    successor: OnceLock<Arc<Table>>,
    evictions: AtomicU64,
    unrecorded: AtomicU64,
}

/// Handling of new keys when memory for buckets is full.
// Full: all possible entries of a new key are live. An entry that would refuse is never dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnFull {
    /// The least used bucket is forgotten.
    // If all entries refuse, the new key is admitted unrecorded.
    #[default]
    Forget,
    /// The newcomer inherits the used share of the bucket it replaces.
    // New keys pay while the table is full, so that dropped ones come back to what they have used.
    Strict,
}

/// The treatment of refused requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Refusals {
    /// Refused requests are not charged.
    #[default]
    Free,
    /// Refused requests are charged, into debt if the bucket lacks the units
    /// ([`Algorithm::owe`]).
    Charged,
}

impl Table {
    /// A policy's table for about `keys` keys (at least one), with memory for as many full rings if
    /// the algorithm has rings.
    pub fn new(
        policy: impl Into<Box<str>>,
        algorithm: Algorithm,
        keys: usize,
        on_full: OnFull,
    ) -> Self {
        let ring_bytes = (keys as u64).saturating_mul(Self::ring_bytes_for(&algorithm));
        Self::with_rings(policy, algorithm, keys, ring_bytes, on_full)
    }

    /// A policy's table for about `keys` keys, with about `ring_bytes` bytes for rings.
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

    /// The bytes of a full ring; 0 for algorithms without rings.
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

    /// The policy's algorithm.
    pub const fn algorithm(&self) -> &Algorithm {
        &self.algorithm
    }

    /// Sets the treatment of refused requests, for a table that is still empty.
    #[must_use]
    pub fn with_refusals(self, refusals: Refusals) -> Self {
        Self { refusals, ..self }
    }

    /// The number of live entries that were dropped or merged.
    pub fn evictions(&self) -> u64 {
        self.evictions.load(Ordering::Relaxed)
    }

    /// The number of admissions without a record, because every possible entry refuses.
    pub fn unrecorded(&self) -> u64 {
        self.unrecorded.load(Ordering::Relaxed)
    }

    /// The decision of [`Charge::peek`] for `cost` units of this key.
    pub fn peek(&self, key: Fingerprint, cost: u32, now: Timestamp) -> Decision {
        Charge::new(self, key, cost).peek(now)
    }

    /// Charges `cost` units of this key if the bucket has them.
    pub fn charge(&self, key: Fingerprint, cost: u32, now: Timestamp) -> Decision {
        charge_all(&[Charge::new(self, key, cost)], now).decisions[0]
    }

    /// The rules by which buckets are filled.
    pub(super) fn rules(&self) -> TableRules<'_> {
        TableRules {
            table: self,
            algorithm: &self.algorithm,
            slab: self.slab.as_ref(),
            window_end: None,
            demand: Demand::default(),
        }
    }

    /// Writes a key's cell to the chosen entry, and returns the recorded cell; an empty one if it
    /// was not recorded.
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

#[cfg(test)]
mod tests;
