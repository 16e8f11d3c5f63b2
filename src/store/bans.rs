//! The keys of a policy that have been refused lately, and those that are banned.
//!
//! They are no cells: a ban must not be forgotten because a table is full. There is room for so many keys; where it
//! is taken by others, the strikes of a newcomer are not counted, who is refused by the quota all the same.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::clock::Timestamp;
use crate::limiter::{Fingerprint, Penalty, Strikes};

/// So that requests of different keys rarely wait for each other.
const SHARDS: usize = 16;
/// The most keys of a shard: 65,536 in all.
const MOST: usize = 4096;
/// How long a full shard is not looked through again, in microseconds.
const PAUSE: u64 = 1_000_000;

/// The strikes and bans of one policy. Policies that succeed each other share them.
#[derive(Debug, Default)]
pub struct Bans {
    shards: [Mutex<Shard>; SHARDS],
    /// So that nobody locks anything where nobody has a strike.
    keys: AtomicUsize,
}

#[derive(Debug, Default)]
struct Shard {
    keys: HashMap<u64, Strikes>,
    /// When it may be looked through for keys to forget.
    next: Timestamp,
}

impl Bans {
    /// The end of the ban of `key`, if it is banned.
    pub fn banned_until(
        &self,
        penalty: &Penalty,
        key: Fingerprint,
        now: Timestamp,
    ) -> Option<Timestamp> {
        if self.keys.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let shard = self.shard(key).lock();
        penalty.banned_until(shard.keys.get(&key.bits())?, now)
    }

    /// Counts a refusal of `key`, unless it is banned already; the end of the ban that it brings about, if it does.
    pub fn strike(&self, penalty: &Penalty, key: Fingerprint, now: Timestamp) -> Option<Timestamp> {
        let mut shard = self.shard(key).lock();
        let Shard { keys, next } = &mut *shard;
        if !keys.contains_key(&key.bits()) {
            if keys.len() >= MOST && now >= *next {
                let before = keys.len();
                keys.retain(|_, strikes| !penalty.is_forgotten(strikes, now));
                self.keys.fetch_sub(before - keys.len(), Ordering::Relaxed);
                *next = now.saturating_add_micros(PAUSE);
            }
            if keys.len() >= MOST {
                return None;
            }
            self.keys.fetch_add(1, Ordering::Relaxed);
        }
        let strikes = keys.entry(key.bits()).or_default();
        match penalty.banned_until(strikes, now) {
            Some(_) => None,
            None => penalty.strike(strikes, now),
        }
    }

    fn shard(&self, key: Fingerprint) -> &Mutex<Shard> {
        &self.shards[(key.bits() % SHARDS as u64) as usize]
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_micros(seconds * 1_000_000)
    }

    fn key(bits: u64) -> Fingerprint {
        Fingerprint::from_bits(bits)
    }

    #[test]
    fn keys_are_banned_one_by_one_and_there_is_room_for_so_many() {
        let minute = Duration::from_mins(1);
        let penalty = Penalty::new(2, minute, vec![Duration::from_mins(10)]);
        let bans = Bans::default();
        assert_eq!(bans.banned_until(&penalty, key(1), at(0)), None);
        let all = (MOST * SHARDS) as u64;
        for bits in 1..=all {
            assert_eq!(bans.strike(&penalty, key(bits), at(0)), None);
        }
        assert_eq!(bans.strike(&penalty, key(1), at(1)), Some(at(601)));
        assert_eq!(bans.banned_until(&penalty, key(1), at(600)), Some(at(601)));
        assert_eq!(bans.banned_until(&penalty, key(2), at(600)), None);
        for _ in 0..5 {
            assert_eq!(bans.strike(&penalty, key(all + 1), at(2)), None, "no room");
        }
        assert_eq!(bans.keys.load(Ordering::Relaxed), all as usize);
        // All but the banned one are forgotten, in the newcomer's shard.
        assert_eq!(bans.strike(&penalty, key(all + 1), at(62)), None);
        assert_eq!(bans.strike(&penalty, key(all + 1), at(63)), Some(at(663)));
        let left = bans.keys.load(Ordering::Relaxed);
        assert!(left <= all as usize - MOST + 2, "{left}");
        assert_eq!(bans.banned_until(&penalty, key(1), at(600)), Some(at(601)));
    }
}
