//! What is known of some keys, for as many as there is room. Nobody is evicted: where it is all taken by those of whom something
//! still counts, a newcomer goes without.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use parking_lot::Mutex;

use crate::clock::Timestamp;
use crate::limiter::Fingerprint;

/// So that requests of different keys rarely wait for each other.
const SHARDS: usize = 16;
/// The most keys of a shard.
const MOST: usize = 4096;
/// How long a full shard is not looked through again, in microseconds.
const PAUSE: u64 = 1_000_000;

/// What is known of keys.
#[derive(Debug)]
pub(super) struct Roster<T> {
    shards: [Mutex<Shard<T>>; SHARDS],
    /// So that nobody locks anything where nothing is known.
    keys: AtomicUsize,
}

#[derive(Debug)]
struct Shard<T> {
    keys: HashMap<u64, T>,
    /// When it may be looked through for keys to forget.
    next: Timestamp,
}

impl<T> Roster<T> {
    /// For how many keys there is room.
    pub(super) const ROOM: usize = SHARDS * MOST;

    /// What `read` makes of what is known of a key, if anything is.
    pub(super) fn read<R>(
        &self,
        key: Fingerprint,
        read: impl FnOnce(&T) -> Option<R>,
    ) -> Option<R> {
        if self.keys() == 0 {
            return None;
        }
        read(self.shard(key).lock().keys.get(&key.bits())?)
    }

    /// Changes what is known of a key, of which `new` is known at first; `None` where there is no room for it. To make room, those
    /// of which nothing counts at `now` are forgotten, as `is_over` says.
    pub(super) fn change<R>(
        &self,
        key: Fingerprint,
        now: Timestamp,
        is_over: impl Fn(&T) -> bool,
        new: impl FnOnce() -> T,
        change: impl FnOnce(&mut T) -> R,
    ) -> Option<R> {
        let mut shard = self.shard(key).lock();
        let Shard { keys, next } = &mut *shard;
        if !keys.contains_key(&key.bits()) {
            if keys.len() >= MOST && now >= *next {
                let before = keys.len();
                keys.retain(|_, known| !is_over(known));
                self.keys.fetch_sub(before - keys.len(), Relaxed);
                *next = now.saturating_add_micros(PAUSE);
            }
            if keys.len() >= MOST {
                return None;
            }
            self.keys.fetch_add(1, Relaxed);
        }
        Some(change(keys.entry(key.bits()).or_insert_with(new)))
    }

    /// Changes what is known of a key, if anything is.
    pub(super) fn change_known<R>(
        &self,
        key: Fingerprint,
        change: impl FnOnce(&mut T) -> R,
    ) -> Option<R> {
        self.shard(key).lock().keys.get_mut(&key.bits()).map(change)
    }

    /// Changes what is known of all keys.
    pub(super) fn change_all(&self, mut change: impl FnMut(Fingerprint, &mut T)) {
        for shard in &self.shards {
            for (key, known) in &mut shard.lock().keys {
                change(Fingerprint::from_bits(*key), known);
            }
        }
    }

    /// Copies of all entries, a shard at a time: no lock is held while the caller uses them.
    pub(super) fn copies(&self) -> impl Iterator<Item = Vec<(Fingerprint, T)>>
    where
        T: Clone,
    {
        self.shards.iter().map(|shard| {
            let shard = shard.lock();
            let entries = shard.keys.iter();
            entries
                .map(|(key, known)| (Fingerprint::from_bits(*key), known.clone()))
                .collect()
        })
    }

    /// Of how many keys something is known.
    pub(super) fn keys(&self) -> usize {
        self.keys.load(Relaxed)
    }

    fn shard(&self, key: Fingerprint) -> &Mutex<Shard<T>> {
        &self.shards[(key.bits() % SHARDS as u64) as usize]
    }
}

impl<T> Default for Roster<T> {
    fn default() -> Self {
        let shard = |_| {
            Mutex::new(Shard {
                keys: HashMap::new(),
                next: Timestamp::default(),
            })
        };
        Self {
            shards: std::array::from_fn(shard),
            keys: AtomicUsize::new(0),
        }
    }
}
