//! Buckets of one policy that other machines charge too. Requests record their charges here; `sync`
//! exchanges them.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;

use super::epoch::{Epochs, SyncInstant};
use super::tracked::{RemoteDelta, RemoteUnits, SyncRequest, Totals, Tracked};
use crate::clock::Timestamp;
use crate::limiter::algorithms::{FixedWindow, WindowEnd};
use crate::limiter::{Algorithm, Cell, Fingerprint};
use crate::store::bounded_map::BoundedMap;
use crate::store::redis::client::random;
use crate::store::{Charge, Table};
use crate::telemetry::metrics::{TrackedKeys, TrackingMetrics};

/// Enough shards that requests for different keys rarely wait for each other, or long for a round.
pub(super) const SHARDS: usize = 64;
/// A charge below this fraction of the bucket's capacity waits some rounds.
const THRESHOLD_FRACTION: u64 = 256;
/// The most keys whose resets are known.
const MOST_RESETS: usize = 65_536;
/// The default bytes for keys: some 380 and the name for each.
const DEFAULT_MEMORY: usize = 16 << 20;
/// The fraction of these bytes for the charges of others, which outlast the keys.
const REMOTE_FRACTION: usize = 8;

/// The units that synchronised buckets were charged for, by the name of their totals and the fingerprint
/// of the key: for each of two epochs its end in microseconds, and the units.
pub type KnownUnits = HashMap<String, HashMap<u64, [(u64, u64); 2]>>;

/// The recently charged buckets of one policy.
#[derive(Debug)]
pub struct Tracker {
    /// The table's label on all machines.
    pub(in crate::store) label: Box<str>,
    /// An id that no other tracker has, nor an earlier one of the same policy: their totals are
    /// separate.
    pub(super) node: Box<str>,
    epochs: Epochs,
    /// The middle of the names of totals: `:sync:LENGTH:`, in microseconds.
    epoch_infix: Box<[u8]>,
    /// The interval of rounds, in microseconds.
    interval: AtomicU64,
    rounds: AtomicU64,
    /// The start of the last round, in microseconds.
    last_round: AtomicU64,
    table: ArcSwap<Table>,
    /// The units of a bucket that are reported at once.
    threshold: AtomicU64,
    /// How far the server's clock is ahead, in microseconds, as far as is known.
    clock_offset: AtomicI64,
    keys: BoundedMap<Tracked, SHARDS>,
    /// Charges of others, also for evicted keys.
    remote_units: BoundedMap<RemoteUnits, SHARDS>,
    /// The keys that operators have reset lately, and when, in the server's time.
    resets: Mutex<HashMap<Fingerprint, u64>>,
    /// Their number: requests look no further while it is 0.
    reset_count: AtomicUsize,
    /// The last instant at which a key may have been evicted, in microseconds.
    last_eviction: AtomicU64,
    untracked: AtomicU64,
}

impl Tracker {
    /// A tracker of this table, empty at first. `None` for algorithms whose buckets machines cannot
    /// charge for each other
    /// ([`Algorithm::can_charge_remote`](crate::limiter::Algorithm::can_charge_remote)).
    ///
    /// All machines use this label for the table.
    pub fn new(label: &str, table: Arc<Table>) -> Option<Self> {
        let epochs = Epochs::of(table.algorithm())?;
        Some(Self {
            label: label.into(),
            node: format!("{:016x}", random()).into(),
            epochs,
            epoch_infix: format!(":sync:{}:", epochs.length()).into_bytes().into(),
            interval: AtomicU64::new(0),
            rounds: AtomicU64::new(0),
            last_round: AtomicU64::new(0),
            threshold: AtomicU64::new(threshold(table.algorithm())),
            table: ArcSwap::new(table),
            clock_offset: AtomicI64::new(0),
            keys: BoundedMap::new(DEFAULT_MEMORY - DEFAULT_MEMORY / REMOTE_FRACTION),
            remote_units: BoundedMap::new(DEFAULT_MEMORY / REMOTE_FRACTION),
            resets: Mutex::default(),
            reset_count: AtomicUsize::new(0),
            last_eviction: AtomicU64::new(0),
            untracked: AtomicU64::new(0),
        })
    }

    /// Adds the units that the buckets were charged for, here and by others, for a process that takes over
    /// the buckets. In Redis it finds them as those of others.
    pub fn add_known(&self, all: &mut KnownUnits) {
        let known = all.entry(self.totals_name()).or_default();
        let remote = self.remote_units.copy_shards().flatten();
        known.extend(remote.map(|(key, units)| (key.bits(), units.0)));
        self.keys.retain_all(|key, tracked| {
            known.insert(key.bits(), tracked.all_units().0);
            true
        });
    }

    /// Takes over what another process has known of the buckets, which are restored at `now`. Without
    /// room, a bucket is full again: what Redis has would be charged twice.
    pub fn know(&self, all: &KnownUnits, now: Timestamp) {
        let mut has_room = true;
        for (key, units) in all.get(&self.totals_name()).into_iter().flatten() {
            let key = Fingerprint::from_bits(*key);
            if !has_room {
                self.table.load().reset(key);
                continue;
            }
            let inserted = self
                .remote_units
                .lock(key)
                .insert(RemoteUnits(*units), |_| false);
            has_room = !inserted.has_evicted;
            // As after an eviction, requests look there.
            self.last_eviction.fetch_max(now.as_micros(), Relaxed);
        }
    }

    /// The part of the names of totals that all keys have in common.
    fn totals_name(&self) -> String {
        format!(
            "{}{}",
            self.label,
            String::from_utf8_lossy(&self.epoch_infix)
        )
    }

    /// Counts evicted keys in these metrics.
    pub fn count_evictions(&mut self, metrics: &TrackingMetrics) {
        self.keys.evictions = Some(metrics.evictions(TrackedKeys::Sync));
    }

    /// Sets the bytes for keys.
    pub fn set_room(&self, bytes: usize) {
        self.keys.set_capacity(bytes - bytes / REMOTE_FRACTION);
        self.remote_units.set_capacity(bytes / REMOTE_FRACTION);
    }

    /// True if it can continue for a table of this algorithm that takes over the buckets.
    pub fn can_continue_with(&self, algorithm: &Algorithm) -> bool {
        Epochs::of(algorithm) == Some(self.epochs)
    }

    /// Records a charge of `cost` units to `key` at `now`, which left `cell` (of the
    /// [decision](crate::limiter::Decision::cell)). `name` is the bucket's name on all machines. It
    /// is called for the first charge only; later ones allocate nothing.
    ///
    /// Recorded charges are reported; units given back are not. Without room, the least-charged key
    /// is evicted: its unreported charges are lost to others. Their charges to it are kept.
    pub fn note(
        &self,
        key: Fingerprint,
        cost: u32,
        cell: Cell,
        now: Timestamp,
        name: impl FnOnce() -> Vec<u8>,
    ) {
        if cost == 0 {
            return;
        }
        let now = self.instant(now);
        let mut keys = self.keys.lock(key);
        let note = |tracked: &mut Tracked| tracked.note(self.epochs, cost, cell, now);
        if keys.change(note).is_some() {
            return;
        }
        let Some(end) = self.epochs.end(cell, now) else {
            self.untracked.fetch_add(1, Relaxed);
            return;
        };
        let table = self.table.load();
        let alone = table
            .algorithm()
            .decide(Cell::EMPTY, now.local, cost.into())
            .cell;
        let full_until = (alone.expires == cell.expires).then_some(now.local);
        let reset = self.last_reset(key);
        let mut tracked = Tracked::new(name(), self.epochs, end, full_until, reset);
        if self.may_have_evicted(now) {
            tracked.mark_incomplete(
                self.remote_units
                    .read(key, |remote_units| Some(*remote_units)),
            );
        }
        tracked.note(self.epochs, cost, cell, now);
        let forgets = keys.insert(tracked, |_| false).has_evicted;
        if forgets {
            self.last_eviction.fetch_max(now.local.as_micros(), Relaxed);
        }
    }

    /// The last reset of a key, in the server's time; 0 without one.
    fn last_reset(&self, key: Fingerprint) -> u64 {
        match self.reset_count.load(Relaxed) {
            0 => 0,
            _ => self.resets.lock().get(&key).copied().unwrap_or(0),
        }
    }

    /// Counts the charges of a key from zero, since an operator has reset its bucket at `at`, in the
    /// server's time. Totals from before count for no machine any more. False if that is known.
    pub(in crate::store) fn restart(
        &self,
        key: Fingerprint,
        at: Timestamp,
        now: Timestamp,
    ) -> bool {
        let (at, now) = (at.as_micros(), self.instant(now));
        // Locked before the key, as for a new one.
        let mut keys = self.keys.lock(key);
        let mut resets = self.resets.lock();
        if resets.get(&key).is_some_and(|known| at <= *known) {
            return false;
        }
        if resets.len() < MOST_RESETS || resets.contains_key(&key) {
            resets.insert(key, at);
            self.reset_count.store(resets.len(), Relaxed);
        }
        drop(resets);
        self.remote_units.lock(key).remove();
        keys.change_without_credit(|tracked| tracked.restart(at, now))
            .unwrap_or(true)
    }

    /// Resets the bucket of a key, of whose reset this machine has not heard.
    pub(super) fn hear_reset(&self, key: Fingerprint, at: Timestamp) {
        if self.restart(
            key,
            at,
            Timestamp::from_micros(self.last_round.load(Relaxed)),
        ) {
            self.table.load().reset(key);
        }
    }

    /// The time for which machines have to know of a reset.
    pub(in crate::store) fn reset_kept(&self) -> Duration {
        Duration::from_micros(self.epochs.reset_kept())
    }

    /// True if an unknown key may have been charged here in an epoch that still counts.
    fn may_have_evicted(&self, now: SyncInstant) -> bool {
        let counts = self.epochs.length().saturating_mul(2);
        let last_eviction = self.last_eviction.load(Relaxed);
        last_eviction > 0 && now.local.as_micros() < last_eviction.saturating_add(counts)
    }

    /// Records a charge of an earlier instant `at`, which left `cell` then; nothing if its window
    /// is over.
    pub(in crate::store) fn record_late(
        &self,
        key: Fingerprint,
        cost: u32,
        (cell, at): (Cell, Timestamp),
        name: Vec<u8>,
    ) {
        let now = at.max(Timestamp::from_micros(self.last_round.load(Relaxed)));
        // A request that reserved nothing may have found no window: its cost is in the bucket's now.
        let cell = if cell == Cell::EMPTY && cost > 0 {
            self.table.load().peek(key, 0, now).cell
        } else {
            cell
        };
        let is_over =
            self.epochs.depends_on_bucket() && self.epochs.end(cell, self.instant(now)).is_none();
        if !is_over {
            self.note(key, cost, cell, now, || name);
        }
    }

    /// The number of keys.
    pub fn keys(&self) -> usize {
        self.keys.keys()
    }

    /// Charges that were not reported because the table had no room for their bucket.
    pub fn untracked(&self) -> u64 {
        self.untracked.load(Relaxed)
    }

    #[cfg(test)]
    pub(super) fn knows(&self, key: Fingerprint) -> bool {
        self.keys.lock(key).is_known()
    }

    /// Charges others' units to this table from now on. Call it once the table has taken over the
    /// [place](Table::migrate_to).
    pub fn set_table(&self, table: Arc<Table>) {
        self.threshold.store(threshold(table.algorithm()), Relaxed);
        self.table.store(table);
    }

    /// Reports every charge at once from now on.
    pub(super) fn report_all(&self) {
        self.threshold.store(1, Relaxed);
    }

    pub(super) fn interval(&self) -> Duration {
        Duration::from_micros(self.interval.load(Relaxed))
    }

    pub(super) fn set_interval(&self, interval: Duration) {
        self.interval.store(interval.as_micros() as u64, Relaxed);
    }

    pub(super) fn set_clock_offset(&self, clock_offset: i64) {
        self.clock_offset.store(clock_offset, Relaxed);
    }

    pub(super) fn begin_round(&self, now: Timestamp) {
        self.last_round.store(now.as_micros(), Relaxed);
        self.rounds.fetch_add(1, Relaxed);
        if self.reset_count.load(Relaxed) > 0 {
            let (now, kept) = (self.instant(now).server_micros(), self.epochs.reset_kept());
            let mut resets = self.resets.lock();
            resets.retain(|_, at| now < at.saturating_add(kept));
            self.reset_count.store(resets.len(), Relaxed);
        }
    }

    /// Adds the due requests of a shard in this round. Drops keys that no longer count.
    pub(super) fn due(&self, shard: usize, now: Timestamp, into: &mut impl Extend<SyncRequest>) {
        let (now, round) = (self.instant(now), self.rounds.load(Relaxed));
        let threshold = self.threshold.load(Relaxed);
        let table = self.table.load();
        self.remote_units.retain(shard, |_, remote_units| {
            !remote_units.is_over(self.epochs, now)
        });
        self.keys.retain(shard, |key, tracked| {
            // A key in debt may meet other machines before it is admitted here again.
            let is_in_use =
                tracked.is_in_use(self.epochs, now) || !table.peek(key, 1, now.local).is_admitted();
            if is_in_use {
                let due = tracked.due(self.epochs, round, threshold, now);
                into.extend(due.map(|epoch| SyncRequest {
                    key,
                    end: epoch.end,
                    name: self.name(&tracked.name, epoch.end),
                    own: epoch.total(),
                    ttl_millis: self.epochs.ttl_millis(epoch.end, now),
                    reset: tracked.reset_in(self.epochs, epoch.end),
                }));
            }
            is_in_use
        });
    }

    /// Charges the bucket of a request for the new units of others.
    pub(super) fn apply_totals(&self, request: &SyncRequest, totals: Totals, now: Timestamp) {
        let key = request.key;
        let (now, epochs) = (self.instant(now), self.epochs);
        let round = (self.rounds.load(Relaxed), self.threshold.load(Relaxed));
        let answered = |tracked: &mut Tracked| {
            let news = tracked.apply_totals(request, totals, round, now, epochs)?;
            Some((news, tracked.remote_units()))
        };
        let mut keys = self.keys.lock(key);
        let Some((RemoteDelta { units, at }, remote_units)) =
            keys.change_without_credit(answered).flatten()
        else {
            return;
        };
        let is_over = |remote_units: &RemoteUnits| remote_units.is_over(epochs, now);
        self.remote_units.lock(key).change_or_insert(
            || remote_units,
            is_over,
            |known| *known = remote_units,
        );
        let table = self.table.load();
        let window_end = matches!(epochs, Epochs::Windows(_)).then_some(WindowEnd {
            at: Timestamp::from_micros(request.end),
            length: 0,
        });
        let mut left = units.min(FixedWindow::MOST);
        // The key stays locked: a reset comes before the question, or after the charge.
        while left > 0 {
            let cost = u32::try_from(left).unwrap_or(u32::MAX);
            let charge = Charge {
                window_end,
                ..Charge::new(&table, key, cost)
            };
            charge.charge_remote(at, now.local);
            left -= u64::from(cost);
        }
        drop(keys);
    }

    fn instant(&self, now: Timestamp) -> SyncInstant {
        SyncInstant {
            local: now,
            clock_offset: self.clock_offset.load(Relaxed),
        }
    }

    /// The Redis key of an epoch's totals: `NAME:sync:LENGTH:END`, both in microseconds.
    fn name(&self, bucket: &[u8], end: u64) -> Vec<u8> {
        let mut last = itoa::Buffer::new();
        [bucket, &self.epoch_infix, last.format(end).as_bytes()].concat()
    }
}

fn threshold(algorithm: &Algorithm) -> u64 {
    if matches!(algorithm, Algorithm::Grant(_)) {
        // Grants differ in their units.
        return 1;
    }
    (algorithm.capacity() / THRESHOLD_FRACTION).max(1)
}
