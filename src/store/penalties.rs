//! Bans of keys that keep asking after refusals.
//!
//! Strikes and bans are not cells: a full table must not drop a ban. They have half of the memory
//! each, so that no flood of refusals drops a ban. If the memory is full, the keys with the fewest
//! recent strikes, or the bans that end soonest, are dropped.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::Store;
use super::bounded_map::{BoundedMap, HeapSize};
use super::redis::{BanKeys, ForeignKeyWarning, Naming};
use crate::clock::Timestamp;
use crate::limiter::penalty::{Ban, BanHistory, Penalty};
use crate::limiter::{Fingerprint, Secret};
use crate::telemetry::metrics::{self, TrackedKeys, TrackingMetrics};
use crate::telemetry::registry::{Counter, Registry};

/// The most bans that are kept for somebody to take.
const MAX_RECENT: usize = 16;
/// The largest number of keys that wait for a report to other machines.
const MAX_UNREPORTED: usize = 65_536;
/// The default bytes for strikes and bans.
const ROOM: usize = 16 << 20;

/// A policy's penalty, its strikes and its bans.
#[derive(Debug)]
pub struct Penalties {
    pub(super) rule: Penalty,
    /// Handed on by a reload while keys have the same names.
    bans: Arc<Bans>,
    pub(super) shared: Option<SharedBans>,
    /// The bans since the start of the process.
    pub(super) counter: Counter,
    /// The last bans that [`take_recent`](Self::take_recent) has not taken.
    recent: Mutex<Vec<(Fingerprint, Timestamp)>>,
}

/// The names under which other machines share the bans.
#[derive(Debug)]
pub(super) struct SharedBans {
    /// The keys in Redis.
    pub(super) names: BanKeys,
    naming: Naming,
    /// The warning that the bans cannot be shared.
    pub(super) warning: ForeignKeyWarning,
}

/// The strikes and bans of all keys.
#[derive(Debug)]
struct Bans {
    /// Keys with strikes that were not banned lately.
    strikes_only: BoundedMap<KeyBans>,
    /// Keys with a ban that is in force, or makes the next one longer. Locked after the former.
    banned: BoundedMap<KeyBans>,
    /// Set if other machines share the bans.
    reports: Option<Reports>,
}

/// The keys to report to other machines, and what was read of theirs.
#[derive(Debug, Default)]
struct Reports {
    /// The name of this node, unique among the machines. Bans keep it at a reload.
    node: u64,
    /// Each key once.
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
pub(super) struct BanBatch<'a> {
    bans: &'a Bans,
    pub(super) keys: Vec<(Fingerprint, BanHistory)>,
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

impl Penalties {
    /// The penalty of a policy. Bans of the earlier ruleset stay; with Redis, bans are shared under
    /// its name.
    pub(crate) fn new(
        rule: Penalty,
        policy: &str,
        before: Option<&Self>,
        store: &Store,
        registry: &Registry,
    ) -> Self {
        let naming = store.redis().map(|store| store.naming());
        let before = before.filter(|before| before.naming() == naming);
        let new = || {
            let reports = store.redis().map(|store| Reports {
                node: store.node,
                ..Reports::default()
            });
            let evictions = TrackingMetrics::new(registry, policy);
            Arc::new(Bans::new(reports, &evictions))
        };
        let shared = naming.map(|naming| SharedBans {
            names: BanKeys::new(naming, policy),
            naming: naming.clone(),
            warning: ForeignKeyWarning::default(),
        });
        Penalties {
            rule,
            bans: before.map_or_else(new, |before| Arc::clone(&before.bans)),
            shared,
            counter: metrics::bans(registry, policy),
            recent: Mutex::default(),
        }
    }

    /// The keys that were banned since the last call, at most 16, and the ends of the bans.
    pub fn take_recent(&self) -> Vec<(Fingerprint, Timestamp)> {
        std::mem::take(&mut *self.recent.lock())
    }

    /// The number of bans since the start of the process.
    pub fn bans_so_far(&self) -> u64 {
        self.counter.get()
    }

    /// Sets the memory to `bytes` bytes, half of them for bans.
    pub(crate) fn set_room(&self, bytes: usize) {
        self.bans.strikes_only.set_capacity(bytes / 2);
        self.bans.banned.set_capacity(bytes / 2);
    }

    fn naming(&self) -> Option<&Naming> {
        self.shared.as_ref().map(|shared| &shared.naming)
    }

    /// True if other machines learn of bans.
    pub fn is_shared(&self) -> bool {
        self.shared.is_some()
    }

    /// The secret of banned keys' fingerprints, the same on all machines that share bans; `None` if
    /// they are the keys of the buckets.
    pub(crate) fn secret(&self) -> Option<Secret> {
        self.naming().map(Naming::secret)
    }

    /// The time for which machines may report a ban.
    pub(super) fn reported_for(&self) -> Duration {
        let longest = self.rule.lengths.iter().max().copied();
        longest.unwrap_or_default() + self.rule.within
    }

    /// The refusals that cause a ban, and the time within which they count.
    pub(crate) fn strikes(&self) -> (u32, Duration) {
        (self.rule.strikes, self.rule.within)
    }
}

/// The bans of keys.
impl Penalties {
    fn end(&self, known: &KeyBans, now: Timestamp) -> Option<Timestamp> {
        self.rule.banned_until(&known.strikes, now)
    }

    /// The end of the key's ban, if it is banned.
    pub(crate) fn banned_until(&self, key: Fingerprint, now: Timestamp) -> Option<Timestamp> {
        self.bans.banned.read(key, |known| self.end(known, now))
    }

    /// The key's ban, if it is banned.
    pub(crate) fn ban_of(&self, key: Fingerprint, now: Timestamp) -> Option<Ban> {
        let last = |known: &KeyBans| self.end(known, now).map(|_| known.strikes.last_ban());
        self.bans.banned.read(key, last)
    }

    /// The number of keys whose ban is in force at `now`.
    pub fn banned_keys(&self, now: Timestamp) -> usize {
        self.bans
            .banned
            .count(|known| self.end(known, now).is_some())
    }

    /// Counts a refusal of this key unless it is banned. Returns the end of the ban that results,
    /// or that another request caused since.
    pub(crate) fn strike(&self, key: Fingerprint, now: Timestamp) -> Option<Timestamp> {
        let (until, is_new) = self.change(key, now, |known| match self.end(known, now) {
            Some(until) => (Some(until), false),
            None => {
                self.bans.mark_unreported(key, known);
                (self.rule.strike(&mut known.strikes, now), true)
            }
        });
        if let Some(until) = until.filter(|_| is_new) {
            self.counter.increment();
            let mut recent = self.recent.lock();
            if recent.len() < MAX_RECENT {
                recent.push((key, until));
            }
        }
        until
    }

    /// The end of the ban that a refusal of this key, which is not banned, would cause.
    pub(crate) fn next_ban(&self, key: Fingerprint, now: Timestamp) -> Option<Timestamp> {
        let history = |known: &KeyBans| Some(known.strikes.clone());
        let struck = self.bans.strikes_only.read(key, history);
        let known = struck.or_else(|| self.bans.banned.read(key, history));
        self.rule.strike(&mut known.unwrap_or_default(), now)
    }

    /// Merges a ban from another machine. True if it is in force and outlasts the known one.
    pub(super) fn merge_ban(&self, key: Fingerprint, ban: Ban, now: Timestamp) -> bool {
        let merge = |known: &mut KeyBans| self.rule.merge_ban(&mut known.strikes, ban, now);
        self.change(key, now, merge)
    }

    /// Forgets the strikes and bans of a key on this machine.
    pub(crate) fn lift(&self, key: Fingerprint) {
        let mut struck = self.bans.strikes_only.lock(key);
        let mut banned = self.bans.banned.lock(key);
        struck.remove();
        banned.remove();
    }

    /// Forgets the strikes and bans of a key, which were lifted at `at`, unless it has been banned
    /// since.
    pub(super) fn lift_before(&self, key: Fingerprint, at: Timestamp, now: Timestamp) {
        let mut struck = self.bans.strikes_only.lock(key);
        let mut banned = self.bans.banned.lock(key);
        let is_later = |known: &mut KeyBans| {
            let began = self.rule.last_ban_began(&known.strikes);
            // By the lengths of another rule, before a reload, a ban may seem to begin later than now.
            at <= began && began <= now
        };
        if banned.change_without_credit(is_later) != Some(true) {
            struck.remove();
            banned.remove();
        }
    }

    /// Copies of all strikes and bans that count at `now`, some keys at a time.
    pub(super) fn saved(
        &self,
        now: Timestamp,
    ) -> impl Iterator<Item = Vec<(Fingerprint, BanHistory)>> {
        let struck = self.bans.strikes_only.copy_shards();
        let all = struck.chain(self.bans.banned.copy_shards());
        all.map(move |known| {
            let strikes = known.into_iter().map(|(key, known)| (key, known.strikes));
            let counting = strikes.filter(|(_, strikes)| !self.rule.is_forgotten(strikes, now));
            counting.collect()
        })
    }

    /// Restores the history of a key from a snapshot. False if nothing of it counts at `now`.
    ///
    /// Shared bans come back without strikes: Redis still has the reported ones, and would count
    /// them twice.
    pub(super) fn restore(&self, key: Fingerprint, strikes: BanHistory, now: Timestamp) -> bool {
        let strikes = match self.bans.reports {
            Some(_) => strikes.without_strikes(),
            None => strikes,
        };
        if strikes == BanHistory::default() || self.rule.is_forgotten(&strikes, now) {
            return false;
        }
        self.change(key, now, |known| known.strikes = strikes);
        true
    }

    fn change<R>(
        &self,
        key: Fingerprint,
        now: Timestamp,
        change: impl FnOnce(&mut KeyBans) -> R,
    ) -> R {
        let is_over = |known: &KeyBans| self.rule.is_forgotten(&known.strikes, now);
        let mut struck = self.bans.strikes_only.lock(key);
        let mut banned = self.bans.banned.lock(key);
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
}

/// The reports to other machines.
impl Penalties {
    /// Takes up to `most` keys to report. Keys with nothing that counts at `now` are dropped.
    pub(super) fn take_report(&self, now: Timestamp, most: usize) -> BanBatch<'_> {
        let keys = self.bans.reports.as_ref().map(|reports| {
            let mut keys = reports.unreported.lock();
            let most = keys.len().min(most);
            keys.drain(..most).collect::<Vec<_>>()
        });
        let known = keys.into_iter().flatten().filter_map(|key| {
            let take = |known: &mut KeyBans| {
                known.is_unreported = false;
                let counts = !self.rule.is_forgotten(&known.strikes, now);
                counts.then(|| (key, known.strikes.clone()))
            };
            self.bans.change_known(key, take).flatten()
        });
        BanBatch {
            bans: &self.bans,
            keys: known.collect(),
        }
    }

    /// The name of this node; 0 if bans are not shared.
    pub(super) fn node(&self) -> u64 {
        self.bans.reports.as_ref().map_or(0, |reports| reports.node)
    }

    /// The number of keys to report.
    pub(super) fn unreported(&self) -> usize {
        let reports = self.bans.reports.as_ref();
        reports.map_or(0, |reports| reports.unreported.lock().len())
    }

    /// The last announcement that was read; empty before the first answer.
    pub(super) fn last_read(&self) -> Vec<u8> {
        let reports = self.bans.reports.as_ref();
        let read = reports.and_then(|reports| reports.read.lock().clone());
        read.unwrap_or_default()
    }

    /// Records the last announcement that was read, and returns the one before; `None` before the
    /// first answer.
    pub(super) fn record_read(&self, read: &[u8]) -> Option<Vec<u8>> {
        let reports = self.bans.reports.as_ref()?;
        reports.read.lock().replace(read.to_vec())
    }

    /// Queues all bans in force for another report.
    pub(super) fn report_again(&self, now: Timestamp) {
        self.bans.banned.retain_all(|key, known| {
            if self.end(known, now).is_some() {
                self.bans.mark_unreported(key, known);
            }
            true
        });
    }
}

impl Bans {
    /// No bans. Counts keys that are dropped for lack of memory.
    fn new(reports: Option<Reports>, metrics: &TrackingMetrics) -> Self {
        let map = |keys| {
            let mut map = BoundedMap::new(ROOM / 2);
            map.evictions = Some(metrics.evictions(keys));
            map
        };
        Self {
            strikes_only: map(TrackedKeys::Strikes),
            banned: map(TrackedKeys::Bans),
            reports,
        }
    }

    /// Queues the key for a report, if the queue has room. Some queued keys may have been dropped
    /// meanwhile.
    fn mark_unreported(&self, key: Fingerprint, known: &mut KeyBans) {
        let Some(reports) = self.reports.as_ref().filter(|_| !known.is_unreported) else {
            return;
        };
        let mut keys = reports.unreported.lock();
        if keys.len() < MAX_UNREPORTED {
            keys.push_back(key);
            known.is_unreported = true;
        }
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
    pub(super) fn confirm(mut self) {
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
