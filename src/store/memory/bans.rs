//! The strikes and bans of a policy's keys.
//!
//! They are not cells: a full table must not drop a ban. Strikes and bans have half of the memory
//! each, so that no flood of refusals drops a ban. If the memory is full, the keys with the fewest
//! recent strikes, or the bans that end soonest, are dropped.

use std::collections::VecDeque;

use parking_lot::Mutex;

use crate::clock::Timestamp;
use crate::limiter::{Ban, BanHistory, Fingerprint, Penalty};
use crate::store::bounded_map::{BoundedMap, HeapSize};
use crate::telemetry::metrics::{TrackedKeys, TrackingMetrics};

/// The largest number of keys that wait for a report to other machines.
const MAX_UNREPORTED: usize = 65_536;
/// The default bytes for strikes and bans.
const ROOM: usize = 16 << 20;

/// The strikes and bans of one policy. A reload keeps them.
#[derive(Debug)]
pub struct Bans {
    /// Keys with strikes that were not banned lately.
    strikes_only: BoundedMap<KeyBans>,
    /// Keys with a ban that is in force, or makes the next one longer. Locked after the former.
    banned: BoundedMap<KeyBans>,
    /// Set if other machines share the bans.
    shared: Option<Sharing>,
}

/// The state of sharing bans with other machines.
#[derive(Debug)]
struct Sharing {
    /// The name of this node, unique among the machines.
    node: u64,
    /// The keys to report, each once.
    unreported: Mutex<VecDeque<Fingerprint>>,
    /// The last announcement read; `None` before the first answer.
    read: Mutex<Option<Vec<u8>>>,
}

/// The ban history of one key.
#[derive(Clone, Debug, Default)]
struct KeyBans {
    strikes: BanHistory,
    /// True if the key waits for a report.
    is_unreported: bool,
}

/// Keys in a report to other machines. Dropped without [`confirm`](BanBatch::confirm), it queues
/// them again.
#[derive(Debug)]
pub(in crate::store) struct BanBatch<'a> {
    bans: &'a Bans,
    pub(in crate::store) keys: Vec<(Fingerprint, BanHistory)>,
}

impl Default for Bans {
    fn default() -> Self {
        Self {
            strikes_only: BoundedMap::new(ROOM / 2),
            banned: BoundedMap::new(ROOM / 2),
            shared: None,
        }
    }
}

impl HeapSize for KeyBans {
    fn heap_bytes(&self) -> usize {
        self.strikes.heap_bytes()
    }

    /// The end of a ban: many short bans of other keys do not evict a long one.
    fn useful_until(&self) -> Option<Timestamp> {
        let last = self.strikes.last_ban();
        (last.number > 0).then_some(last.until)
    }
}

impl Bans {
    /// Bans that this node shares with other machines. `node` is unique among them.
    pub fn shared(node: u64) -> Self {
        let shared = Sharing {
            node,
            unreported: Mutex::default(),
            read: Mutex::default(),
        };
        Self {
            shared: Some(shared),
            ..Self::default()
        }
    }

    /// Counts keys that are dropped for lack of memory.
    #[must_use]
    pub fn with_metrics(mut self, metrics: &TrackingMetrics) -> Self {
        let (strikes, bans) = (TrackedKeys::Strikes, TrackedKeys::Bans);
        self.strikes_only = self.strikes_only.with_metrics(metrics.evictions(strikes));
        self.banned = self.banned.with_metrics(metrics.evictions(bans));
        self
    }

    /// Sets the memory to `bytes` bytes, half of them for bans.
    pub fn set_capacity(&self, bytes: usize) {
        self.strikes_only.set_capacity(bytes / 2);
        self.banned.set_capacity(bytes / 2);
    }

    /// The name of this node; 0 if bans are not shared.
    pub(in crate::store) fn node(&self) -> u64 {
        self.shared.as_ref().map_or(0, |shared| shared.node)
    }

    /// The end of the ban of `key` that is in force at `now`.
    pub fn banned_until(
        &self,
        penalty: &Penalty,
        key: Fingerprint,
        now: Timestamp,
    ) -> Option<Timestamp> {
        self.banned
            .read(key, |known| penalty.banned_until(&known.strikes, now))
    }

    /// The number of keys whose ban is in force at `now`.
    pub fn banned_keys(&self, penalty: &Penalty, now: Timestamp) -> usize {
        let is_banned = |known: &KeyBans| penalty.banned_until(&known.strikes, now).is_some();
        self.banned.count(is_banned)
    }

    /// Counts a refusal of `key` unless it is banned, and returns the end of the ban that it
    /// causes.
    pub fn strike(&self, penalty: &Penalty, key: Fingerprint, now: Timestamp) -> Option<Timestamp> {
        let strike = |known: &mut KeyBans| match penalty.banned_until(&known.strikes, now) {
            Some(_) => None,
            None => {
                self.mark_unreported(key, known);
                penalty.strike(&mut known.strikes, now)
            }
        };
        self.change(penalty, key, now, strike)
    }

    /// The end of the ban that a refusal of `key`, which is not banned, would cause.
    pub fn next_ban(
        &self,
        penalty: &Penalty,
        key: Fingerprint,
        now: Timestamp,
    ) -> Option<Timestamp> {
        let history = |known: &KeyBans| Some(known.strikes.clone());
        let struck = self.strikes_only.read(key, history);
        let known = struck.or_else(|| self.banned.read(key, history));
        penalty.strike(&mut known.unwrap_or_default(), now)
    }

    /// Merges a ban from another machine. True if it is in force and outlasts the known one.
    pub fn merge_ban(&self, penalty: &Penalty, key: Fingerprint, ban: Ban, now: Timestamp) -> bool {
        let hear = |known: &mut KeyBans| penalty.merge_ban(&mut known.strikes, ban, now);
        self.change(penalty, key, now, hear)
    }

    /// Forgets the strikes and bans of a key.
    pub fn lift(&self, key: Fingerprint) {
        let mut struck = self.strikes_only.lock(key);
        let mut banned = self.banned.lock(key);
        struck.remove();
        banned.remove();
    }

    /// Forgets the strikes and bans of a key, which were lifted at `at`, unless it has been banned since.
    pub(in crate::store) fn lift_before(
        &self,
        penalty: &Penalty,
        key: Fingerprint,
        at: Timestamp,
        now: Timestamp,
    ) {
        let began = |known: &KeyBans| Some(penalty.last_ban_began(&known.strikes));
        // By the lengths of another rule, before a reload, a ban may seem to begin later than now.
        let is_later = |began: Timestamp| at <= began && began <= now;
        if !self.banned.read(key, began).is_some_and(is_later) {
            self.lift(key);
        }
    }

    /// The last ban of a key, if it is in force at `now`.
    pub fn ban_of(&self, penalty: &Penalty, key: Fingerprint, now: Timestamp) -> Option<Ban> {
        let is_banned = |known: &KeyBans| penalty.banned_until(&known.strikes, now).is_some();
        self.banned.read(key, |known| {
            is_banned(known).then(|| known.strikes.last_ban())
        })
    }

    /// Copies of all strikes and bans that count at `now`, some keys at a time.
    pub(super) fn saved(
        &self,
        penalty: &Penalty,
        now: Timestamp,
    ) -> impl Iterator<Item = Vec<(Fingerprint, BanHistory)>> {
        let all = self
            .strikes_only
            .copy_shards()
            .chain(self.banned.copy_shards());
        all.map(move |known| {
            let strikes = known.into_iter().map(|(key, known)| (key, known.strikes));
            let counting = strikes.filter(|(_, strikes)| !penalty.is_forgotten(strikes, now));
            counting.collect()
        })
    }

    /// Restores the history of a key from a snapshot. False if nothing of it counts at `now`.
    ///
    /// Shared bans come back without strikes: Redis still has the reported ones, and would count
    /// them twice.
    pub(super) fn restore(
        &self,
        penalty: &Penalty,
        key: Fingerprint,
        strikes: BanHistory,
        now: Timestamp,
    ) -> bool {
        let strikes = match self.shared {
            Some(_) => strikes.without_strikes(),
            None => strikes,
        };
        if strikes == BanHistory::default() || penalty.is_forgotten(&strikes, now) {
            return false;
        }
        self.change(penalty, key, now, |known| known.strikes = strikes);
        true
    }

    /// Takes up to `most` keys to report. Keys with nothing that counts at `now` are dropped.
    pub(in crate::store) fn take_report(
        &self,
        penalty: &Penalty,
        now: Timestamp,
        most: usize,
    ) -> BanBatch<'_> {
        let next = |shared: &Sharing| {
            let mut keys = shared.unreported.lock();
            let most = keys.len().min(most);
            keys.drain(..most).collect()
        };
        let keys: Vec<_> = self.shared.as_ref().map_or_else(Vec::new, next);
        let known = keys.into_iter().filter_map(|key| {
            let take = |known: &mut KeyBans| {
                known.is_unreported = false;
                let counts = !penalty.is_forgotten(&known.strikes, now);
                counts.then(|| (key, known.strikes.clone()))
            };
            self.change_known(key, take).flatten()
        });
        BanBatch {
            bans: self,
            keys: known.collect(),
        }
    }

    /// The number of keys to report.
    pub(in crate::store) fn unreported(&self) -> usize {
        let shared = self.shared.as_ref();
        shared.map_or(0, |shared| shared.unreported.lock().len())
    }

    /// The last announcement that was read; empty before the first answer.
    pub(in crate::store) fn last_read(&self) -> Vec<u8> {
        let shared = self.shared.as_ref();
        let read = shared.and_then(|shared| shared.read.lock().clone());
        read.unwrap_or_default()
    }

    /// Records the last announcement that was read, and returns the one before; `None` before the
    /// first answer.
    pub(in crate::store) fn record_read(&self, read: &[u8]) -> Option<Vec<u8>> {
        let shared = self.shared.as_ref()?;
        shared.read.lock().replace(read.to_vec())
    }

    /// Queues all bans in force for another report.
    pub(in crate::store) fn report_again(&self, penalty: &Penalty, now: Timestamp) {
        self.banned.change_all(|key, known| {
            if penalty.banned_until(&known.strikes, now).is_some() {
                self.mark_unreported(key, known);
            }
        });
    }

    /// Queues the key for a report, if the queue has room. Some queued keys may have been dropped
    /// meanwhile.
    fn mark_unreported(&self, key: Fingerprint, known: &mut KeyBans) {
        let Some(shared) = self.shared.as_ref().filter(|_| !known.is_unreported) else {
            return;
        };
        let mut keys = shared.unreported.lock();
        if keys.len() < MAX_UNREPORTED {
            keys.push_back(key);
            known.is_unreported = true;
        }
    }

    fn change<R>(
        &self,
        penalty: &Penalty,
        key: Fingerprint,
        now: Timestamp,
        change: impl FnOnce(&mut KeyBans) -> R,
    ) -> R {
        let is_over = |known: &KeyBans| penalty.is_forgotten(&known.strikes, now);
        let mut struck = self.strikes_only.lock(key);
        let mut banned = self.banned.lock(key);
        if banned.change(|known| is_over(known)) == Some(true) {
            banned.remove();
        }
        if banned.is_known() {
            return banned.change_or_insert(KeyBans::default, is_over, change);
        }
        let (changed, is_banned) = struck.change_or_insert(KeyBans::default, is_over, |known| {
            let changed = change(known);
            (changed, known.strikes.last_ban().number > 0)
        });
        if is_banned && let Some(known) = struck.remove() {
            banned.insert(known, is_over);
        }
        changed
    }

    /// Changes the history of a key, if it has one.
    fn change_known<R>(
        &self,
        key: Fingerprint,
        change: impl FnOnce(&mut KeyBans) -> R,
    ) -> Option<R> {
        let mut struck = self.strikes_only.lock(key);
        if struck.is_known() {
            struck.change(change)
        } else {
            self.banned.lock(key).change(change)
        }
    }
}

impl BanBatch<'_> {
    /// Ends a report that has arrived.
    pub(in crate::store) fn confirm(mut self) {
        self.keys.clear();
    }
}

impl Drop for BanBatch<'_> {
    fn drop(&mut self) {
        for (key, _) in &self.keys {
            let put_back = |known: &mut KeyBans| self.bans.mark_unreported(*key, known);
            self.bans.change_known(*key, put_back);
        }
    }
}

#[cfg(test)]
mod tests;
