//! Bans for keys that keep being refused, each longer than the one before.

use std::time::Duration;

use crate::Timestamp;

/// A rule: the refusals that cause a ban, and the lengths of bans.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Penalty {
    /// The number of refusals that cause a ban, at least one.
    pub strikes: u32,
    /// The time within which they count.
    pub within: Duration,
    /// The lengths of the first and later bans, at least one.
    pub lengths: Vec<Duration>,
}

/// A ban of a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ban {
    /// The number of the ban, counted from 1.
    pub number: u32,
    /// The end of the ban.
    pub until: Timestamp,
    /// The instant from which the ban no longer makes the next one longer.
    pub forgotten_at: Timestamp,
}

/// The strikes and the last ban of one key. The default is a key without any.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BanHistory {
    /// The instants of refusals that still count, the oldest first.
    at: Vec<Timestamp>,
    /// The last ban. From its `forgotten_at` on, the history equals an empty one.
    last: Ban,
}

impl Penalty {
    /// Bans a key after `strikes` refusals (at least one) within `within`. The first ban has the
    /// first of `lengths` (at least one), the next ban the next, and all later ones the last.
    pub fn new(strikes: u32, within: Duration, lengths: Vec<Duration>) -> Self {
        Self {
            strikes,
            within,
            lengths,
        }
    }

    /// The end of the ban that is in force at `now`.
    pub fn banned_until(&self, of: &BanHistory, now: Timestamp) -> Option<Timestamp> {
        (now < of.last.until).then_some(of.last.until)
    }

    /// Counts a refusal, and returns the end of the ban that it causes. Callers do not count
    /// refusals during a ban.
    pub fn strike(&self, of: &mut BanHistory, now: Timestamp) -> Option<Timestamp> {
        if self.is_forgotten(of, now) {
            *of = BanHistory::default();
        }
        of.at.retain(|at| now < at.saturating_add(self.within));
        // Requests on other threads may have counted later instants.
        let place = of.at.partition_point(|at| *at <= now);
        of.at.insert(place, now);
        let latest = of.at.last().copied().unwrap_or(now);
        let banned = of.at.len() >= self.strikes as usize;
        if banned {
            of.at = Vec::new();
            of.last.number = of.last.number.saturating_add(1);
            of.last.until = now.saturating_add(self.length(of.last.number));
        }
        let last = self.length(of.last.number);
        of.last.forgotten_at = latest.saturating_add(self.within).saturating_add(last);
        banned.then_some(of.last.until)
    }

    /// Merges a ban that another machine has reported. True if it is in force at `now` and outlasts
    /// the known one.
    ///
    /// A known ban keeps its end, since clients may have been told. An expired one only updates the
    /// number. A ban of a known number that began after the known one ended is another ban.
    pub fn merge_ban(&self, of: &mut BanHistory, ban: Ban, now: Timestamp) -> bool {
        if self.is_forgotten(of, now) {
            *of = BanHistory::default();
        }
        let began = ban.until.saturating_sub(self.length(ban.number));
        let is_next = ban.number > of.last.number;
        let is_another = ban.number < of.last.number || (of.last.until..=now).contains(&began);
        let is_other = is_another && self.banned_until(of, now).is_none();
        if !is_next && !is_other {
            return false;
        }
        let is_news = ban.until > now.max(of.last.until);
        of.at.retain(|at| *at >= ban.until);
        of.last.number = of.last.number.max(ban.number);
        of.last.until = of.last.until.max(ban.until);
        of.last.forgotten_at = of.last.forgotten_at.max(ban.forgotten_at);
        is_news
    }

    /// True if the history equals an empty one: no strike for `within` plus the length of the last
    /// ban.
    pub fn is_forgotten(&self, of: &BanHistory, now: Timestamp) -> bool {
        now >= of.last.forgotten_at
    }

    /// The beginning of the last ban; the epoch without one.
    pub fn last_ban_began(&self, of: &BanHistory) -> Timestamp {
        of.last.until.saturating_sub(self.length(of.last.number))
    }

    /// The length of this ban, counted from 1; zero for 0.
    fn length(&self, ban: u32) -> Duration {
        let place = (ban as usize).min(self.lengths.len()).checked_sub(1);
        place.map_or(Duration::ZERO, |place| self.lengths[place])
    }
}

impl BanHistory {
    /// A history of saved strikes, in any order, and the last ban.
    pub fn restore(mut at: Vec<Timestamp>, last: Ban) -> Self {
        at.sort_unstable();
        Self { at, last }
    }

    /// Keeps the bans, without strikes towards the next one; empty if there were no bans.
    #[must_use]
    pub fn without_strikes(self) -> Self {
        match self.last.number {
            0 => Self::default(),
            _ => Self::restore(Vec::new(), self.last),
        }
    }

    /// The bytes that strikes take on the heap.
    pub fn heap_bytes(&self) -> usize {
        self.at.capacity() * size_of::<Timestamp>()
    }

    /// The strikes since the last ban that still counted at the latest one, the oldest first.
    pub fn recent_strikes(&self) -> &[Timestamp] {
        &self.at
    }

    /// The last ban; its number is 0 if there was none.
    pub fn last_ban(&self) -> Ban {
        self.last
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_micros(seconds * 1_000_000)
    }

    fn penalty(strikes: u32, within: u64, lengths: &[u64]) -> Penalty {
        let lengths = lengths.iter().copied().map(Duration::from_secs);
        Penalty::new(strikes, Duration::from_secs(within), lengths.collect())
    }

    #[test]
    fn each_ban_is_longer_and_the_last_length_stays() {
        let penalty = penalty(2, 60, &[100, 200, 300]);
        let mut key = BanHistory::default();
        let mut now = 0;
        for length in [100, 200, 300, 300] {
            assert_eq!(penalty.strike(&mut key, at(now)), None);
            assert_eq!(penalty.banned_until(&key, at(now)), None);
            let until = at(now + 59 + length);
            assert_eq!(penalty.strike(&mut key, at(now + 59)), Some(until));
            assert_eq!(penalty.banned_until(&key, at(now + 59)), Some(until));
            now += 59 + length;
            assert_eq!(penalty.banned_until(&key, at(now)), None);
        }
    }

    #[test]
    fn strikes_leave_one_by_one() {
        let penalty = penalty(3, 60, &[100]);
        let mut key = BanHistory::default();
        for now in [0, 30, 60, 90, 120] {
            assert_eq!(penalty.strike(&mut key, at(now)), None, "{now}");
        }
        assert_eq!(penalty.strike(&mut key, at(149)), Some(at(249)));
    }

    /// The instant of a refusal is taken before its key is locked.
    #[test]
    fn refusals_of_two_threads_are_kept_in_order() {
        let penalty = penalty(5, 60, &[100]);
        let mut key = BanHistory::default();
        for now in [10, 12, 11, 9] {
            assert_eq!(penalty.strike(&mut key, at(now)), None, "{now}");
        }
        assert_eq!(key.recent_strikes(), [9, 10, 11, 12].map(at));
        assert_eq!(penalty.strike(&mut key, at(69)), None, "the first is over");
        assert_eq!(key.recent_strikes(), [10, 11, 12, 69].map(at));
        let saved = [12, 69, 10, 11].map(at).into();
        assert_eq!(BanHistory::restore(saved, key.last_ban()), key);
    }

    #[test]
    fn the_first_length_is_back_after_the_last_ban_and_the_time_that_strikes_count() {
        let penalty = penalty(1, 60, &[100, 200]);
        for (pause, next) in [(159, 200), (160, 100)] {
            let mut key = BanHistory::default();
            assert_eq!(penalty.strike(&mut key, at(1_000)), Some(at(1_100)));
            let now = 1_000 + pause;
            assert_eq!(penalty.is_forgotten(&key, at(now)), next == 100);
            assert_eq!(penalty.strike(&mut key, at(now)), Some(at(now + next)));
        }
    }

    fn ban(number: u32, until: u64) -> Ban {
        Ban {
            number,
            until: at(until),
            forgotten_at: at(until + 60),
        }
    }

    #[test]
    fn a_ban_of_another_machine_counts_if_it_outlasts_the_known_one() {
        let penalty = penalty(2, 60, &[100, 200, 300]);
        let mut key = BanHistory::default();
        penalty.strike(&mut key, at(1_000));
        assert!(penalty.merge_ban(&mut key, ban(1, 1_100), at(1_001)));
        for (same, now) in [(1_099, 1_002), (1_101, 1_002), (1_105, 1_100)] {
            assert!(!penalty.merge_ban(&mut key, ban(1, same), at(now)));
            assert_eq!(penalty.banned_until(&key, at(1_099)), Some(at(1_100)));
            assert_eq!(penalty.banned_until(&key, at(1_100)), None);
        }
        // The strikes before it are forgotten; the next ban is the second, and so it is where
        // others have got further.
        assert_eq!(penalty.strike(&mut key, at(1_100)), None);
        assert_eq!(penalty.strike(&mut key, at(1_110)), Some(at(1_310)));
        assert!(penalty.merge_ban(&mut key, ban(3, 1_400), at(1_200)));
        // A machine that has lost the earlier bans does not shorten later ones.
        assert!(!penalty.merge_ban(&mut key, ban(1, 1_500), at(1_399)));
        assert!(penalty.merge_ban(&mut key, ban(1, 1_500), at(1_400)));
        let last = key.last_ban();
        assert_eq!((last.number, last.until), (3, at(1_500)));
        assert_eq!(penalty.strike(&mut key, at(1_500)), None);
        assert_eq!(penalty.strike(&mut key, at(1_501)), Some(at(1_801)));
    }

    #[test]
    fn a_ban_of_the_same_number_that_began_later_is_another() {
        let penalty = penalty(1, 600, &[100, 200]);
        let mut key = BanHistory::default();
        penalty.strike(&mut key, at(1_000));
        for (same, now) in [(1_199, 1_150), (1_250, 1_149)] {
            assert!(
                !penalty.merge_ban(&mut key, ban(1, same), at(now)),
                "{same}"
            );
        }
        assert!(penalty.merge_ban(&mut key, ban(1, 1_250), at(1_151)));
        assert_eq!(penalty.banned_until(&key, at(1_249)), Some(at(1_250)));
        assert!(!penalty.merge_ban(&mut key, ban(1, 1_250), at(1_152)));
    }

    #[test]
    fn the_number_of_an_expired_ban_counts() {
        let penalty = penalty(2, 60, &[100, 200]);
        let mut key = BanHistory::default();
        penalty.strike(&mut key, at(1_000));
        assert!(!penalty.merge_ban(&mut key, ban(1, 1_000), at(1_005)));
        assert_eq!(penalty.banned_until(&key, at(1_005)), None);
        assert_eq!(
            penalty.strike(&mut key, at(1_010)),
            Some(at(1_210)),
            "it was struck at its end"
        );
        let mut key = BanHistory::default();
        penalty.strike(&mut key, at(1_000));
        assert!(!penalty.merge_ban(&mut key, ban(1, 1_001), at(1_005)));
        assert_eq!(
            penalty.strike(&mut key, at(1_010)),
            None,
            "the strike was before"
        );
    }

    #[test]
    fn a_merged_ban_expires_as_an_own_one_does() {
        let penalty = penalty(1, 60, &[100, 200]);
        for (pause, next) in [(159, 200), (160, 100)] {
            let mut key = BanHistory::default();
            penalty.merge_ban(&mut key, ban(1, 1_100), at(1_000));
            let now = 1_000 + pause;
            assert_eq!(penalty.strike(&mut key, at(now)), Some(at(now + next)));
        }
    }

    proptest! {
        /// Beside a list of all strikes that there ever were.
        #[test]
        fn a_key_is_banned_when_so_many_strikes_lie_within_the_time(
            strikes in 1..5_u32,
            within in 1..50_u64,
            lengths in prop::collection::vec(1..60_u64, 1..4),
            gaps in prop::collection::vec(0..40_u64, 0..60),
        ) {
            let penalty = penalty(strikes, within, &lengths);
            let mut key = BanHistory::default();
            let (mut now, mut since, mut bans, mut until, mut last) = (100, Vec::new(), 0, 0, None);
            for gap in gaps {
                now += gap;
                prop_assert_eq!(penalty.banned_until(&key, at(now)).is_some(), now < until);
                if now < until {
                    continue;
                }
                let length = |ban: usize| lengths[ban.min(lengths.len()) - 1];
                let grace = within + if bans == 0 { 0 } else { length(bans) };
                if last.is_some_and(|last| now >= last + grace) {
                    (bans, since) = (0, Vec::new());
                }
                last = Some(now);
                since.push(now);
                let counting = since.iter().filter(|at| now - **at < within).count();
                let ban = counting >= strikes as usize;
                if ban {
                    bans += 1;
                    until = now + length(bans);
                    since.clear();
                }
                prop_assert_eq!(penalty.strike(&mut key, at(now)), ban.then(|| at(until)));
                prop_assert!(key.at.len() < strikes as usize);
            }
        }
    }
}
