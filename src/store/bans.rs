//! The keys of a policy that have been refused lately, and those that are banned.
//!
//! They are no cells: a ban must not be forgotten because a table is full. There is room for so many keys; where it
//! is taken by others, the strikes of a newcomer are not counted, who is refused by the quota all the same.

use super::roster::Roster;
use crate::clock::Timestamp;
use crate::limiter::{Ban, Fingerprint, Penalty, Strike, Strikes};

/// The strikes and bans of one policy, for 65,536 keys. Policies that succeed each other share them.
#[derive(Debug, Default)]
pub struct Bans(Roster<Strikes>);

impl Bans {
    /// The end of the ban of `key`, if it is banned.
    pub fn banned_until(
        &self,
        penalty: &Penalty,
        key: Fingerprint,
        now: Timestamp,
    ) -> Option<Timestamp> {
        self.0
            .read(key, |strikes| penalty.banned_until(strikes, now))
    }

    /// Counts a refusal of `key`; `None` where it does not, as the key is banned already, or there is no room for it.
    pub fn strike(&self, penalty: &Penalty, key: Fingerprint, now: Timestamp) -> Option<Strike> {
        let strike = |strikes: &mut Strikes| match penalty.banned_until(strikes, now) {
            Some(_) => None,
            None => Some(penalty.strike(strikes, now)),
        };
        self.change(penalty, key, now, strike).flatten()
    }

    /// Takes in a ban of `key` that others know of; whether it was news, and there was room for it.
    pub fn hear(&self, penalty: &Penalty, key: Fingerprint, ban: Ban, now: Timestamp) -> bool {
        let hear = |strikes: &mut Strikes| penalty.hear(strikes, ban, now);
        self.change(penalty, key, now, hear).unwrap_or(false)
    }

    fn change<R>(
        &self,
        penalty: &Penalty,
        key: Fingerprint,
        now: Timestamp,
        change: impl FnOnce(&mut Strikes) -> R,
    ) -> Option<R> {
        let is_over = |strikes: &Strikes| penalty.is_forgotten(strikes, now);
        self.0.change(key, now, is_over, Strikes::default, change)
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
        let strike = |bits, now| {
            let struck = bans.strike(&penalty, key(bits), at(now));
            struck.and_then(|strike| strike.until)
        };
        assert_eq!(bans.banned_until(&penalty, key(1), at(0)), None);
        let all = Roster::<Strikes>::ROOM as u64;
        for bits in 1..=all {
            assert_eq!(strike(bits, 0), None);
        }
        assert_eq!(strike(1, 1), Some(at(601)));
        assert_eq!(bans.banned_until(&penalty, key(1), at(600)), Some(at(601)));
        assert_eq!(bans.banned_until(&penalty, key(2), at(600)), None);
        for _ in 0..5 {
            assert_eq!(strike(all + 1, 2), None, "no room");
        }
        assert_eq!(bans.0.keys(), all as usize);
        // All but the banned one are forgotten, in the newcomer's shard.
        assert_eq!(strike(all + 1, 62), None);
        assert_eq!(strike(all + 1, 63), Some(at(663)));
        let left = bans.0.keys();
        assert!(left <= all as usize * 15 / 16 + 2, "{left}");
        assert_eq!(bans.banned_until(&penalty, key(1), at(600)), Some(at(601)));
    }
}
