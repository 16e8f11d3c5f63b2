//! The keys of a policy that have been refused lately, and those that are banned.
//!
//! They are no cells: a ban must not be forgotten because a table is full. There is room for so many keys; where it
//! is taken by others, the strikes of a newcomer are not counted, who is refused by the quota all the same.

use super::roster::Roster;
use crate::clock::Timestamp;
use crate::limiter::{Fingerprint, Penalty, Strikes};

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

    /// Counts a refusal of `key`, unless it is banned already; the end of the ban that it brings about, if it does.
    pub fn strike(&self, penalty: &Penalty, key: Fingerprint, now: Timestamp) -> Option<Timestamp> {
        let is_over = |strikes: &Strikes| penalty.is_forgotten(strikes, now);
        let strike = |strikes: &mut Strikes| match penalty.banned_until(strikes, now) {
            Some(_) => None,
            None => penalty.strike(strikes, now),
        };
        self.0
            .change(key, now, is_over, Strikes::default, strike)
            .flatten()
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
        let all = Roster::<Strikes>::ROOM as u64;
        for bits in 1..=all {
            assert_eq!(bans.strike(&penalty, key(bits), at(0)), None);
        }
        assert_eq!(bans.strike(&penalty, key(1), at(1)), Some(at(601)));
        assert_eq!(bans.banned_until(&penalty, key(1), at(600)), Some(at(601)));
        assert_eq!(bans.banned_until(&penalty, key(2), at(600)), None);
        for _ in 0..5 {
            assert_eq!(bans.strike(&penalty, key(all + 1), at(2)), None, "no room");
        }
        assert_eq!(bans.0.keys(), all as usize);
        // All but the banned one are forgotten, in the newcomer's shard.
        assert_eq!(bans.strike(&penalty, key(all + 1), at(62)), None);
        assert_eq!(bans.strike(&penalty, key(all + 1), at(63)), Some(at(663)));
        let left = bans.0.keys();
        assert!(left <= all as usize * 15 / 16 + 2, "{left}");
        assert_eq!(bans.banned_until(&penalty, key(1), at(600)), Some(at(601)));
    }
}
