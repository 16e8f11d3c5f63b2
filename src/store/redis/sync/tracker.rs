//! The buckets of one policy that are charged on other machines too. Requests note what they charge; who tells the others, and
//! hears of them, is `sync`.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use arc_swap::ArcSwap;

use super::epoch::{Epochs, SyncInstant};
use super::tracked::{RemoteDelta, RemoteUnits, Totals, Tracked};
use crate::clock::Timestamp;
use crate::limiter::{Algorithm, Cell, Fingerprint, FixedWindow, WindowEnd};
use crate::store::bounded_map::BoundedMap;
use crate::store::redis::client::random;
use crate::store::redis::naming::BucketName;
use crate::store::{Charge, Table};
use crate::telemetry::metrics::{TrackedKeys, TrackingMetrics};

/// So that requests of different keys rarely wait for each other, nor long for a round.
pub(super) const SHARDS: usize = 64;
/// What is charged waits to be told, for some rounds, while it is less than this part of what the bucket has at most.
const WORTH: u32 = 256;
/// The bytes for keys unless set otherwise, some 380 and the name for each.
const ROOM: usize = 16 << 20;
/// The part of these bytes for what others have charged to keys, which outlasts the keys.
const HEARD: usize = 8;

/// The buckets of one policy that were charged here lately.
#[derive(Debug)]
pub struct Tracker {
    label: Box<str>,
    /// What tells it from all others, also from earlier ones of the same policy here: their totals are not its own.
    node: Box<str>,
    epochs: Epochs,
    /// What names of totals have between the bucket's and the end of their epoch: `:sync:LENGTH:`, in microseconds.
    of_epochs: Box<[u8]>,
    /// How often it is synchronised, in microseconds.
    interval: AtomicU64,
    rounds: AtomicU64,
    /// When the last round began, in microseconds.
    latest: AtomicU64,
    table: ArcSwap<Table>,
    /// So many units of a bucket are told at once.
    worth: AtomicU64,
    /// By how many microseconds the server's clock is ahead, as far as is known.
    ahead: AtomicI64,
    keys: BoundedMap<Tracked, SHARDS>,
    /// Of keys that others charge too, also where they were forgotten.
    heard: BoundedMap<RemoteUnits, SHARDS>,
    /// When a key may have been forgotten last, in microseconds.
    forgot: AtomicU64,
    untracked: AtomicU64,
}

/// What a node tells of one bucket in one epoch, and asks about it.
#[derive(Clone, Debug)]
pub(super) struct SyncRequest {
    pub(super) key: Fingerprint,
    /// When the epoch ends.
    pub(super) end: u64,
    /// What the totals are called in Redis.
    pub(super) name: Vec<u8>,
    /// What the node has charged in all.
    pub(super) own: u64,
    /// For how many milliseconds the totals are of interest.
    pub(super) lasts: u64,
}

impl Tracker {
    /// What notes the charges to this table, none of which it has yet; `None` for algorithms whose buckets machines cannot
    /// charge for each other ([`Algorithm::can_charge_elsewhere`](crate::limiter::Algorithm::can_charge_elsewhere)).
    ///
    /// The label is what all machines call the table.
    pub fn new(label: &str, table: Arc<Table>) -> Option<Self> {
        let epochs = Epochs::of(table.algorithm())?;
        Some(Self {
            label: label.into(),
            node: format!("{:016x}", random()).into(),
            epochs,
            of_epochs: format!(":sync:{}:", epochs.length()).into_bytes().into(),
            interval: AtomicU64::new(0),
            rounds: AtomicU64::new(0),
            latest: AtomicU64::new(0),
            worth: AtomicU64::new(worth(table.algorithm())),
            table: ArcSwap::new(table),
            ahead: AtomicI64::new(0),
            keys: BoundedMap::new(ROOM - ROOM / HEARD),
            heard: BoundedMap::new(ROOM / HEARD),
            forgot: AtomicU64::new(0),
            untracked: AtomicU64::new(0),
        })
    }

    /// Counts keys there that are forgotten for want of room.
    #[must_use]
    pub fn counting(mut self, metrics: &TrackingMetrics) -> Self {
        self.keys = self.keys.counting(metrics.evictions(TrackedKeys::Sync));
        self
    }

    /// Has room for so many bytes of keys.
    pub fn set_room(&self, bytes: usize) {
        self.keys.set_room(bytes - bytes / HEARD);
        self.heard.set_room(bytes / HEARD);
    }

    /// Whether it can go on for a table of this algorithm that takes over its table's buckets.
    pub fn goes_on_with(&self, algorithm: &Algorithm) -> bool {
        Epochs::of(algorithm) == Some(self.epochs)
    }

    /// Notes that `cost` units of `key` were charged at `now` to the table's bucket, which left `cell` (of the
    /// [decision](crate::limiter::Decision::cell)). `name` is what all machines call the bucket; asked for at the first charge
    /// only, after which this allocates nothing.
    ///
    /// What is noted is told: give-backs are not. Where there is no room for another key, the key that is charged least is
    /// forgotten: what it was charged and not told is lost to others. What they have charged to it is not.
    pub fn note(
        &self,
        key: Fingerprint,
        cost: u32,
        cell: Cell,
        now: Timestamp,
        name: impl FnOnce() -> BucketName,
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
        let alone = table.algorithm().decide(Cell::EMPTY, now.here, cost).cell;
        let whole_at = (alone.expires == cell.expires).then_some(now.here);
        let mut tracked = Tracked::new(name().bytes, self.epochs, end, whole_at);
        if self.may_have_forgotten(now) {
            tracked.expect_own_units(self.heard.read(key, |heard| Some(*heard)));
        }
        tracked.note(self.epochs, cost, cell, now);
        let forgets = keys.insert(tracked, |_| false).has_evicted;
        if forgets {
            self.forgot.fetch_max(now.here.as_micros(), Relaxed);
        }
    }

    /// Whether a key of which nothing is known may have been charged here in an epoch that counts.
    fn may_have_forgotten(&self, now: SyncInstant) -> bool {
        let counts = self.epochs.length().saturating_mul(2);
        let forgot = self.forgot.load(Relaxed);
        forgot > 0 && now.here.as_micros() < forgot.saturating_add(counts)
    }

    /// The same for a charge that was made at `at`, a while ago, and left `cell` then: nothing where its window is over.
    pub(in crate::store) fn note_late(
        &self,
        key: Fingerprint,
        cost: u32,
        (cell, at): (Cell, Timestamp),
        name: BucketName,
    ) {
        let now = at.max(Timestamp::from_micros(self.latest.load(Relaxed)));
        let is_over = matches!(self.epochs, Epochs::Windows(_))
            && FixedWindow::end_of(cell) <= now.as_micros();
        if !is_over {
            self.note(key, cost, cell, now, || name);
        }
    }

    /// What all machines call the table.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// How many keys are known.
    pub fn keys(&self) -> usize {
        self.keys.keys()
    }

    /// Charges of which nobody was told because the table had no room for their bucket.
    pub fn untracked(&self) -> u64 {
        self.untracked.load(Relaxed)
    }

    #[cfg(test)]
    pub(super) fn knows(&self, key: Fingerprint) -> bool {
        self.keys.lock(key).is_known()
    }

    /// Others' units are charged to this table from now on: to be called when it has taken the other's
    /// [place](Table::replaced_by).
    pub fn set_table(&self, table: Arc<Table>) {
        self.worth.store(worth(table.algorithm()), Relaxed);
        self.table.store(table);
    }

    /// Nothing waits to be told from now on.
    pub(super) fn tell_all(&self) {
        self.worth.store(1, Relaxed);
    }

    pub(super) fn node(&self) -> &str {
        &self.node
    }

    pub(super) fn interval(&self) -> Duration {
        Duration::from_micros(self.interval.load(Relaxed))
    }

    pub(super) fn set_interval(&self, interval: Duration) {
        self.interval.store(interval.as_micros() as u64, Relaxed);
    }

    pub(super) fn set_ahead(&self, ahead: i64) {
        self.ahead.store(ahead, Relaxed);
    }

    /// Another round begins.
    pub(super) fn begin_round(&self, now: Timestamp) {
        self.latest.store(now.as_micros(), Relaxed);
        self.rounds.fetch_add(1, Relaxed);
    }

    /// What there is to tell and to ask of the keys of a shard in this round. Forgets those of which nothing counts any more.
    pub(super) fn due(&self, shard: usize, now: Timestamp, into: &mut impl Extend<SyncRequest>) {
        let (now, round) = (self.instant(now), self.rounds.load(Relaxed));
        let worth = self.worth.load(Relaxed);
        self.heard
            .retain(shard, |_, heard| !heard.is_over(self.epochs, now));
        self.keys.retain(shard, |key, tracked| {
            let is_in_use = tracked.is_in_use(self.epochs, now);
            if is_in_use {
                let due = tracked.due(self.epochs, round, worth, now);
                into.extend(due.map(|term| SyncRequest {
                    key,
                    end: term.end,
                    name: self.name(&tracked.name, term.end),
                    own: term.total(),
                    lasts: self.epochs.lasts(term.end, now),
                }));
            }
            is_in_use
        });
    }

    /// Charges the bucket of a question for what the others have charged in all, as far as that is new.
    pub(super) fn answered(&self, question: &SyncRequest, totals: Totals, now: Timestamp) {
        let &SyncRequest { key, end, own, .. } = question;
        let (now, epochs) = (self.instant(now), self.epochs);
        let round = (self.rounds.load(Relaxed), self.worth.load(Relaxed));
        let answered = |tracked: &mut Tracked| {
            let news = tracked.answered((end, own), totals, round, now, epochs)?;
            Some((news, tracked.heard()))
        };
        let mut keys = self.keys.lock(key);
        let Some((RemoteDelta { units, at }, heard)) = keys.change_unused(answered).flatten()
        else {
            return;
        };
        let is_over = |heard: &RemoteUnits| heard.is_over(epochs, now);
        self.heard
            .lock(key)
            .change_or_insert(|| heard, is_over, |known| *known = heard);
        drop(keys);
        let charge = Charge {
            table: &self.table.load(),
            key,
            cost: u32::try_from(units).unwrap_or(u32::MAX),
            window_end: match self.epochs {
                Epochs::Windows(_) => Some(WindowEnd {
                    at: Timestamp::from_micros(end),
                    length: 0,
                }),
                Epochs::Grid(_) => None,
            },
        };
        charge.owe_elsewhere(at, now.here);
    }

    fn instant(&self, now: Timestamp) -> SyncInstant {
        SyncInstant {
            here: now,
            ahead: self.ahead.load(Relaxed),
        }
    }

    /// What the totals of an epoch are called: `NAME:sync:LENGTH:END`, both in microseconds.
    fn name(&self, bucket: &[u8], end: u64) -> Vec<u8> {
        let mut last = itoa::Buffer::new();
        [bucket, &self.of_epochs, last.format(end).as_bytes()].concat()
    }
}

fn worth(algorithm: &Algorithm) -> u64 {
    u64::from(algorithm.capacity() / WORTH).max(1)
}
