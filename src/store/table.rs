//! The buckets of one policy: a fixed number of them, made as keys first touch them, and their move
//! to a table of another size or quota. Deciding and charging is in `memory`.

mod in_use;
mod kept;
mod room;

use std::fmt;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use super::bucket::{Bucket, ENTRIES, Entry, FLOOR, Loss, Seat, Slots};
use super::memory::Charge;
use super::permits::Permits;
use super::rules::{Rings, Rules, no_room};
use super::slab::Slab;
use crate::clock::Timestamp;
use crate::limiter::{Algorithm, Cell, Decision, Fingerprint, State};
pub(super) use kept::Legacy;

/// The fewest buckets that are allocated together: 8 KiB.
const SEGMENT: usize = 64;
/// About the most segments that a table has, so that their list stays in a fast cache.
const SEGMENTS: usize = 1024;

/// The buckets of one policy.
///
/// Its size is fixed: 1.5 entries a key, 38 bytes. An untouched table costs next to nothing, and
/// one that has been touched everywhere never allocates again. Nothing sweeps it: an entry that has
/// expired is free space.
pub struct Table {
    policy: Box<str>,
    algorithm: Algorithm,
    on_full: OnFull,
    refusals: Refusals,
    keys: usize,
    buckets: usize,
    /// Buckets in a segment, a power of two; the last may have fewer.
    segment: usize,
    /// Each made on first use. An empty one was moved to the successor before it was ever used.
    segments: Box<[OnceLock<Box<[Bucket]>>]>,
    /// Where the rings are, for algorithms that have any.
    slab: Option<Slab>,
    /// What is counted instead of cells, for an algorithm whose units come back when requests end.
    permits: Option<Arc<Permits>>,
    /// Whether charges are settled by what comes afterwards.
    settles: bool,
    /// The units of charges that may still be settled, or given back.
    unsettled: Arc<Permits>,
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
    /// They are, into debt where nothing is left ([`Algorithm::indebted`]).
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
        let segment = Self::segment_for(buckets);
        let shape = algorithm.shape();
        Self {
            policy: policy.into(),
            slab: shape.map(|shape| Slab::new(shape, ring_bytes)),
            permits: algorithm
                .is_permits()
                .then(|| Arc::new(Permits::new(algorithm.capacity()))),
            settles: false,
            unsettled: Arc::default(),
            ring_bytes,
            hand: AtomicUsize::new(0),
            algorithm,
            on_full,
            refusals: Refusals::Free,
            keys,
            buckets,
            segment,
            segments: (0..buckets.div_ceil(segment))
                .map(|_| OnceLock::new())
                .collect(),
            successor: OnceLock::new(),
            evictions: AtomicU64::new(0),
            unrecorded: AtomicU64::new(0),
        }
    }

    /// The bytes that a table for `keys` keys has when every part of it has been touched.
    pub const fn bytes_for(keys: usize) -> usize {
        let buckets = Self::buckets_for(keys);
        let segments = buckets.div_ceil(Self::segment_for(buckets));
        size_of::<Self>()
            + buckets * size_of::<Bucket>()
            + segments * size_of::<OnceLock<Box<[Bucket]>>>()
    }

    /// The bytes of a full ring; 0 for algorithms that have none.
    pub const fn ring_bytes_for(algorithm: &Algorithm) -> u64 {
        match algorithm.shape() {
            Some(shape) => shape.most_chunks() as u64 * shape.chunk_bytes() as u64,
            None => 0,
        }
    }

    const fn buckets_for(keys: usize) -> usize {
        let slots = keys.saturating_add(keys.div_ceil(2));
        let buckets = slots.div_ceil(ENTRIES);
        if buckets == 0 { 1 } else { buckets }
    }

    const fn segment_for(buckets: usize) -> usize {
        let segment = buckets.div_ceil(SEGMENTS).next_power_of_two();
        if segment < SEGMENT { SEGMENT } else { segment }
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
            let new = rules.opened(Cell::EMPTY, key.bits(), now);
            return self.algorithm.decide(new, now, cost);
        };
        match segment.get(offset).and_then(Bucket::lock) {
            Some(slots) => {
                let seat = slots.seat(key.bits(), rules, now);
                let decision = rules.decide(seat.cell, now, cost);
                if seat.has_no_room() {
                    return no_room(decision, seat.cell, now);
                }
                seat.release(rules);
                decision
            }
            None => self.next().peek_at(charge, now),
        }
    }

    /// Moves every bucket to `successor`, which [can succeed](Self::can_succeed) this one and from then on is
    /// charged in its place, also through it: whoever still holds it follows.
    ///
    /// Used units are kept ([`Algorithm::convert`]), and no charge is lost, whatever is charged
    /// meanwhile. Publish `successor` only afterwards: a charge that reaches it directly before its
    /// bucket was moved would find it whole. A table has one successor; a later one succeeds that.
    ///
    /// Units in use are shared already: who waits for them is let in up to the bound of the successor.
    pub fn replaced_by(&self, successor: Arc<Table>, now: Timestamp) {
        if let Some(permits) = &successor.permits {
            return permits.admit_up_to(successor.algorithm.capacity());
        }
        if let Err(successor) = self.successor.set(successor) {
            return self.next().replaced_by(successor, now);
        }
        for (index, segment) in self.segments.iter().enumerate() {
            let segment = segment.get_or_init(Box::default);
            for (offset, bucket) in segment.iter().enumerate() {
                while !self.try_move(index * self.segment + offset, bucket, now) {
                    std::thread::yield_now();
                }
            }
        }
    }

    /// Moves one bucket; `false` when a bucket of the successor was locked.
    ///
    /// It never waits for a lock while it holds one, since charges lock buckets of several tables
    /// in the order of their addresses. What it has copied by then is copied again: until this
    /// bucket is marked nobody charges the copies.
    fn try_move(&self, index: usize, bucket: &Bucket, now: Timestamp) -> bool {
        let Some(mut slots) = bucket.lock() else {
            return true;
        };
        let copied = slots
            .live(now)
            .all(|entry| self.next().try_adopt(&self.legacy(index, entry), now));
        if copied {
            slots.leave(self.rules());
        }
        copied
    }

    /// Takes over an entry of another table; `false` when a bucket was locked.
    fn try_adopt(&self, legacy: &Legacy<'_>, now: Timestamp) -> bool {
        let [first, last] = legacy.keys;
        for index in self.index(first)..=self.index(last) {
            let Some(bucket) = self.bucket(index) else {
                return self.next().try_adopt(legacy, now);
            };
            let Some(mut slots) = bucket.try_lock() else {
                return false;
            };
            if slots.has_moved() {
                drop(slots);
                return self.next().try_adopt(legacy, now);
            }
            let tag = legacy.tag;
            let loss = match self.carry(legacy.from, legacy.state, &mut slots, now) {
                Some(cell) => slots.adopt(Entry { tag, cell }, self.rules(), now),
                None => Loss::Evicted(1),
            };
            self.count(loss);
        }
        true
    }

    /// What a cell of another table becomes here; `None` when there is no room for its ring.
    fn carry(
        &self,
        from: &Algorithm,
        state: State<'_>,
        slots: &mut Slots,
        now: Timestamp,
    ) -> Option<Cell> {
        let rules = self.rules();
        let carried = self.algorithm.carry(from, state, now);
        let Some(rings) = rules.rings else {
            return Some(carried.write(None, &mut std::iter::empty()));
        };
        let chunks = loop {
            if let Some(chunks) = rings.take(carried.chunks(), now) {
                break chunks;
            }
            match slots.give_up(rules, now) {
                Loss::None | Loss::Unrecorded => return None,
                loss => self.count(loss),
            }
        };
        Some(carried.write(Some(rings.slab.words()), &mut chunks.into_iter()))
    }

    /// The bucket of a key, made if it is the first there; `None` when it was moved before it was
    /// made.
    pub(super) fn bucket_of(&self, key: Fingerprint) -> Option<&Bucket> {
        self.bucket(self.index(key.bits()))
    }

    /// Who counts in this table's place once a bucket has moved.
    pub(super) fn next(&self) -> &Self {
        self.successor
            .get()
            .expect("the successor is set before a bucket is marked as moved")
    }

    /// The rules by which the buckets are filled.
    pub(super) const fn rules(&self) -> Rules<'_> {
        Rules {
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

    /// Writes a key's cell where its seat said, and returns what is kept of it: nothing if there was no room.
    pub(super) fn take(
        &self,
        slots: &mut Slots,
        seat: Seat,
        key: Fingerprint,
        cell: Cell,
        rules: Rules<'_>,
    ) -> Cell {
        let loss = slots.take(seat, key.bits(), cell, rules);
        self.count(loss);
        match loss {
            Loss::Unrecorded => Cell::EMPTY,
            Loss::None | Loss::Evicted(_) => cell,
        }
    }

    /// Counts what a charge cost other keys.
    pub(super) fn count(&self, loss: Loss) {
        match loss {
            Loss::None => {}
            Loss::Evicted(entries) => {
                self.evictions.fetch_add(entries, Ordering::Relaxed);
            }
            Loss::Unrecorded => {
                self.unrecorded.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    fn bucket(&self, index: usize) -> Option<&Bucket> {
        let (segment, offset) = self.place(index);
        let buckets = self.segments[segment].get_or_init(|| {
            let rest = self.buckets - segment * self.segment;
            (0..rest.min(self.segment))
                .map(|_| Bucket::default())
                .collect()
        });
        buckets.get(offset)
    }

    /// The segment of a bucket, and where it is there.
    fn place(&self, index: usize) -> (usize, usize) {
        (
            index >> self.segment.trailing_zeros(),
            index & (self.segment - 1),
        )
    }

    /// The bucket that a key belongs to: the key's place among all keys, scaled to the buckets, so
    /// that a bucket has the keys of one range.
    fn index(&self, key: u64) -> usize {
        ((u128::from(key) * self.buckets as u128) >> 64) as usize
    }

    /// The keys that belong to a bucket: the inverse of `index`.
    fn keys_of(&self, index: usize) -> RangeInclusive<u64> {
        let first = |index: usize| ((index as u128) << 64).div_ceil(self.buckets as u128);
        first(index) as u64..=(first(index + 1) - 1) as u64
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
