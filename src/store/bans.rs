//! The keys of a policy that have been refused lately, and those that are banned.
//!
//! They are no cells: a ban must not be forgotten because a table is full. There is room for so many keys; where it
//! is taken by others, the strikes of a newcomer are not counted, who is refused by the quota all the same.

use std::collections::VecDeque;

use parking_lot::Mutex;

use super::roster::Roster;
use crate::clock::Timestamp;
use crate::limiter::{Ban, Fingerprint, Penalty, Strikes};

/// The strikes and bans of one policy, for 65,536 keys. Policies that succeed each other share them.
#[derive(Debug, Default)]
pub struct Bans {
    roster: Roster<Known>,
    /// Where others are told of them.
    shared: Option<Untold>,
}

/// Of what others are to be told.
#[derive(Debug)]
struct Untold {
    /// Who tells, as nobody else is called.
    node: u64,
    /// The keys, each once.
    keys: Mutex<VecDeque<Fingerprint>>,
}

/// What is known of one key.
#[derive(Clone, Debug, Default)]
struct Known {
    strikes: Strikes,
    /// Whether it is among those of which others are to be told.
    is_untold: bool,
}

/// Keys of which others are being told: they are told again, unless it is known that they [were](Taken::are_told).
#[derive(Debug)]
pub(super) struct Taken<'a> {
    bans: &'a Bans,
    pub(super) keys: Vec<(Fingerprint, Strikes)>,
}

impl Bans {
    /// Those of which others are told, by a node that nobody else is.
    pub fn shared(node: u64) -> Self {
        let keys = Mutex::default();
        Self {
            shared: Some(Untold { node, keys }),
            ..Self::default()
        }
    }

    /// Who tells others of them.
    pub(super) fn node(&self) -> u64 {
        self.shared.as_ref().map_or(0, |shared| shared.node)
    }

    /// The end of the ban of `key`, if it is banned.
    pub fn banned_until(
        &self,
        penalty: &Penalty,
        key: Fingerprint,
        now: Timestamp,
    ) -> Option<Timestamp> {
        self.roster
            .read(key, |known| penalty.banned_until(&known.strikes, now))
    }

    /// Counts a refusal of `key`, unless it is banned already; the end of the ban that it brings about, if it does.
    pub fn strike(&self, penalty: &Penalty, key: Fingerprint, now: Timestamp) -> Option<Timestamp> {
        let strike = |known: &mut Known| match penalty.banned_until(&known.strikes, now) {
            Some(_) => None,
            None => {
                self.is_to_be_told(key, known);
                penalty.strike(&mut known.strikes, now)
            }
        };
        self.change(penalty, key, now, strike).flatten()
    }

    /// Takes in a ban of `key` that others know of; whether it was news, and there was room for it.
    pub fn hear(&self, penalty: &Penalty, key: Fingerprint, ban: Ban, now: Timestamp) -> bool {
        let hear = |known: &mut Known| penalty.hear(&mut known.strikes, ban, now);
        self.change(penalty, key, now, hear).unwrap_or(false)
    }

    /// Copies of all strikes and bans that count at `now`, some keys at a time.
    pub(super) fn saved(
        &self,
        penalty: &Penalty,
        now: Timestamp,
    ) -> impl Iterator<Item = Vec<(Fingerprint, Strikes)>> {
        self.roster.copies().map(move |known| {
            let strikes = known.into_iter().map(|(key, known)| (key, known.strikes));
            let counting = strikes.filter(|(_, strikes)| !penalty.is_forgotten(strikes, now));
            counting.collect()
        })
    }

    /// Restores a key that an earlier process saved; false if nothing of it counts at `now`, or there is no room.
    ///
    /// Shared bans come back without strikes: Redis still has those that the earlier process reported, and would count
    /// them twice.
    pub(super) fn restore(
        &self,
        penalty: &Penalty,
        key: Fingerprint,
        strikes: Strikes,
        now: Timestamp,
    ) -> bool {
        let strikes = match self.shared {
            Some(_) => strikes.without_strikes(),
            None => strikes,
        };
        if strikes == Strikes::default() || penalty.is_forgotten(&strikes, now) {
            return false;
        }
        let restore = |known: &mut Known| known.strikes = strikes;
        self.change(penalty, key, now, restore).is_some()
    }

    /// The next keys of which others are to be told, but for those of which nothing counts at `now` any more.
    pub(super) fn take(&self, penalty: &Penalty, now: Timestamp, most: usize) -> Taken<'_> {
        let next = |shared: &Untold| {
            let mut keys = shared.keys.lock();
            let most = keys.len().min(most);
            keys.drain(..most).collect()
        };
        let keys: Vec<_> = self.shared.as_ref().map_or_else(Vec::new, next);
        let known = keys.into_iter().filter_map(|key| {
            let take = |known: &mut Known| {
                known.is_untold = false;
                let counts = !penalty.is_forgotten(&known.strikes, now);
                counts.then(|| (key, known.strikes.clone()))
            };
            self.roster.change_known(key, take).flatten()
        });
        Taken {
            bans: self,
            keys: known.collect(),
        }
    }

    /// Of how many keys others are to be told.
    pub(super) fn untold(&self) -> usize {
        let shared = self.shared.as_ref();
        shared.map_or(0, |shared| shared.keys.lock().len())
    }

    /// Has others told once more of all bans that hold.
    pub(super) fn tell_again(&self, penalty: &Penalty, now: Timestamp) {
        self.roster.change_all(|key, known| {
            if penalty.banned_until(&known.strikes, now).is_some() {
                self.is_to_be_told(key, known);
            }
        });
    }

    /// Has others told of this key, if there is room among those that wait: some of these may have been forgotten meanwhile.
    fn is_to_be_told(&self, key: Fingerprint, known: &mut Known) {
        let Some(shared) = self.shared.as_ref().filter(|_| !known.is_untold) else {
            return;
        };
        let mut keys = shared.keys.lock();
        if keys.len() < Roster::<Known>::ROOM {
            keys.push_back(key);
            known.is_untold = true;
        }
    }

    fn change<R>(
        &self,
        penalty: &Penalty,
        key: Fingerprint,
        now: Timestamp,
        change: impl FnOnce(&mut Known) -> R,
    ) -> Option<R> {
        let is_over = |known: &Known| penalty.is_forgotten(&known.strikes, now);
        self.roster
            .change(key, now, is_over, Known::default, change)
    }
}

impl Taken<'_> {
    /// They are told.
    pub(super) fn are_told(mut self) {
        self.keys.clear();
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        for (key, _) in &self.keys {
            let put_back = |known: &mut Known| self.bans.is_to_be_told(*key, known);
            self.bans.roster.change_known(*key, put_back);
        }
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
        let all = Roster::<Known>::ROOM as u64;
        for bits in 1..=all {
            assert_eq!(bans.strike(&penalty, key(bits), at(0)), None);
        }
        assert_eq!(bans.strike(&penalty, key(1), at(1)), Some(at(601)));
        assert_eq!(bans.banned_until(&penalty, key(1), at(600)), Some(at(601)));
        assert_eq!(bans.banned_until(&penalty, key(2), at(600)), None);
        for _ in 0..5 {
            assert_eq!(bans.strike(&penalty, key(all + 1), at(2)), None, "no room");
        }
        assert_eq!(bans.roster.keys(), all as usize);
        // All but the banned one are forgotten, in the newcomer's shard.
        assert_eq!(bans.strike(&penalty, key(all + 1), at(62)), None);
        assert_eq!(bans.strike(&penalty, key(all + 1), at(63)), Some(at(663)));
        let left = bans.roster.keys();
        assert!(left <= all as usize * 15 / 16 + 2, "{left}");
        assert_eq!(bans.banned_until(&penalty, key(1), at(600)), Some(at(601)));
    }

    #[test]
    fn of_each_key_is_told_what_is_known_of_it_then() {
        let minute = Duration::from_mins(1);
        let penalty = Penalty::new(3, minute, vec![minute]);
        let bans = Bans::shared(7);
        let strike = |bits, now| bans.strike(&penalty, key(bits), at(now));
        strike(1, 0);
        strike(2, 0);
        strike(1, 1);
        let taken = bans.take(&penalty, at(1), 1);
        let (told, strikes) = &taken.keys[0];
        assert_eq!((*told, strikes.counting()), (key(1), &[at(0), at(1)][..]));
        // It is told again if that is not known to have worked, and if something has happened since.
        drop(taken);
        let take = || bans.take(&penalty, at(3), 2);
        take().are_told();
        assert!(take().keys.is_empty());
        strike(2, 2);
        let taken = take();
        assert_eq!(taken.keys.len(), 1);
        strike(2, 3);
        taken.are_told();
        let (_, strikes) = &take().keys[0];
        assert_eq!(strikes.last_ban().until, at(63));
    }

    #[test]
    fn what_is_forgotten_is_not_told() {
        let minute = Duration::from_mins(1);
        let penalty = Penalty::new(1, minute, vec![minute]);
        let bans = Bans::shared(7);
        bans.strike(&penalty, key(1), at(0));
        bans.strike(&penalty, key(2), at(1));
        let told: Vec<_> = bans
            .take(&penalty, at(120), 9)
            .keys
            .iter()
            .map(|(key, _)| *key)
            .collect();
        assert_eq!(told, [key(2)]);
        assert_eq!(bans.untold(), 1, "it is put back");
    }

    #[test]
    fn all_bans_that_hold_are_told_again() {
        let minute = Duration::from_mins(1);
        let penalty = Penalty::new(1, minute, vec![minute]);
        let bans = Bans::shared(7);
        for bits in 1..=3 {
            bans.strike(&penalty, key(bits), at(bits));
        }
        bans.take(&penalty, at(3), 3).are_told();
        bans.tell_again(&penalty, at(62));
        let again = bans.take(&penalty, at(62), 9);
        let again: Vec<_> = again.keys.iter().map(|(key, _)| *key).collect();
        assert_eq!(again, [key(3)]);
    }

    #[test]
    fn so_many_keys_wait_to_be_told_of_and_no_more() {
        let second = Duration::from_secs(1);
        let penalty = Penalty::new(2, second, vec![second]);
        let bans = Bans::shared(7);
        let all = Roster::<Known>::ROOM as u64;
        for bits in 1..=2 * all {
            // Those before are forgotten, and wait all the same.
            bans.strike(&penalty, key(bits), at(bits / all * 10));
        }
        assert_eq!(bans.untold(), all as usize);
        while bans.untold() > 0 {
            bans.take(&penalty, at(20), 64).are_told();
        }
        bans.strike(&penalty, key(2 * all), at(21));
        assert_eq!(bans.take(&penalty, at(21), 64).keys[0].0, key(2 * all));
    }

    #[test]
    fn shared_bans_are_restored_without_their_strikes() {
        let minute = Duration::from_mins(1);
        let penalty = Penalty::new(2, minute, vec![minute, 2 * minute]);
        let before = Bans::default();
        for (bits, now) in [(1, 0), (1, 0), (2, 0), (1, 60), (3, 60)] {
            before.strike(&penalty, key(bits), at(now));
        }
        for (after, left) in [(Bans::default(), 2), (Bans::shared(7), 1)] {
            for (key, strikes) in before.saved(&penalty, at(61)).flatten() {
                after.restore(&penalty, key, strikes, at(61));
            }
            assert_eq!(after.roster.keys(), left);
            let second = after.strike(&penalty, key(1), at(62));
            assert_eq!(second.is_some(), left == 2);
            assert_eq!(
                after.untold(),
                usize::from(left == 1),
                "only the new strike"
            );
            let next = after.strike(&penalty, key(1), at(63));
            assert_eq!(next.is_some(), left == 1, "the second ban, either way");
            let until = after.banned_until(&penalty, key(1), at(64));
            assert_eq!(until, Some(at(if left == 2 { 182 } else { 183 })));
        }
    }

    #[test]
    fn nobody_is_told_of_bans_that_are_not_shared() {
        let minute = Duration::from_mins(1);
        let penalty = Penalty::new(1, minute, vec![minute]);
        let bans = Bans::default();
        bans.strike(&penalty, key(1), at(0));
        assert!(bans.take(&penalty, at(0), 1).keys.is_empty());
    }
}
