//! Values under other recipes than a policy's: what an earlier quota has left, or what machines write that still have that.
//!
//! What is left is carried over once, at the instant at which it was met first, as memory does it at a reload; from then on it is
//! what the new quota makes of it. While others charge a bucket under their recipe it is carried over each time, and only who
//! charges it writes it under his: a smaller quota has no room for all that was used of a larger one, and what it forgets would
//! be admitted again elsewhere. Which of the two it is shows when a value changes under another recipe.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::asked::Charge;
use super::value;
use crate::clock::Timestamp;
use crate::limiter::{Fingerprint, KeyParts, Secret};
use crate::store::roster::Roster;

/// Who has changed a value under another recipe may do so again for so long, in microseconds.
const DIFFERING: u64 = 60_000_000;
/// What has not changed for so long is left over, in microseconds.
const QUIET: u64 = 100_000;

/// The values under other recipes that were met lately, of 65,536 buckets.
#[derive(Debug)]
pub struct Leftovers {
    secret: Secret,
    met: Roster<Seen>,
    /// Until then others are taken to write under other recipes.
    others_until: AtomicU64,
    /// Until then requests from before a reload may do so.
    reload_until: AtomicU64,
}

/// A value that was met.
#[derive(Clone, Copy, Debug)]
struct Seen {
    digest: Fingerprint,
    first: Timestamp,
    last: Timestamp,
}

/// What is to become of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Met {
    /// When it is carried over.
    pub(super) at: Timestamp,
    /// Whether it is written under the new recipe by whoever asks.
    pub(super) is_left: bool,
}

impl Met {
    /// One of which nothing is known.
    pub(super) const fn first(now: Timestamp) -> Self {
        Self {
            at: now,
            is_left: false,
        }
    }
}

impl Default for Leftovers {
    fn default() -> Self {
        Self {
            secret: Secret::random(),
            met: Roster::default(),
            others_until: AtomicU64::new(0),
            reload_until: AtomicU64::new(0),
        }
    }
}

impl Leftovers {
    /// Recipes may be others from now on: until then, in the server's time, what was asked before is still charged under those that were.
    pub(super) fn reloaded(&self, until: Timestamp) {
        self.reload_until.fetch_max(until.as_micros(), Relaxed);
    }

    /// Notes that the bucket of a charge has a value of this digest, under another recipe; `now` is in the server's time.
    pub(super) fn meet(&self, charge: &Charge<'_>, digest: &[u8], now: Timestamp) -> Met {
        let mut recipe = Vec::new();
        value::write_recipe(&mut recipe, charge.algorithm);
        let bucket = self.fingerprint(&[charge.name, &recipe]);
        let digest = self.fingerprint(&[digest]);
        let new = Seen {
            digest,
            first: now,
            last: now,
        };
        let is_over = |seen: &Seen| seen.last.saturating_add_micros(DIFFERING) <= now;
        let is_reloading = now.as_micros() < self.reload_until.load(Relaxed);
        let meet = |seen: &mut Seen| {
            if seen.digest != digest {
                if !is_over(seen) && !is_reloading {
                    let until = now.saturating_add_micros(DIFFERING);
                    self.others_until.fetch_max(until.as_micros(), Relaxed);
                }
                *seen = new;
            }
            seen.last = now;
            seen.first
        };
        let first = self.met.change(bucket, now, is_over, || new, meet);
        let others_write = now.as_micros() < self.others_until.load(Relaxed);
        match first {
            Some(first) if !others_write => Met {
                at: first.min(now),
                is_left: first.saturating_add_micros(QUIET) <= now && !is_reloading,
            },
            _ => Met::first(now),
        }
    }

    fn fingerprint(&self, parts: &[&[u8]]) -> Fingerprint {
        let mut hasher = self.secret.hasher();
        for part in parts {
            hasher.part(0, part);
        }
        hasher.finish()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::limiter::{Algorithm, Gcra, Quota};
    use crate::store::redis::asked::{Owes, Tier};

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_micros(millis * 1_000)
    }

    fn meet(leftovers: &Leftovers, name: &str, limit: u32, digest: &str, now: u64) -> (u64, bool) {
        let quota = Quota::new(limit, Duration::from_secs(1)).expect("a quota");
        let algorithm = Algorithm::Gcra(Gcra::new(quota, limit).expect("a burst"));
        let charge = Charge {
            algorithm: &algorithm,
            name: name.as_bytes(),
            key: Fingerprint::from_bits(1),
            cost: 1,
            owes: Owes::Nothing,
            settles: false,
            period: None,
            tier: Tier::First,
        };
        let met = leftovers.meet(&charge, digest.as_bytes(), at(now));
        (met.at.as_micros() / 1_000, met.is_left)
    }

    #[test]
    fn what_does_not_change_is_carried_over_when_it_was_met_first() {
        let leftovers = Leftovers::default();
        assert_eq!(meet(&leftovers, "a", 1, "x", 5_000), (5_000, false));
        assert_eq!(meet(&leftovers, "a", 1, "x", 5_099), (5_000, false));
        assert_eq!(meet(&leftovers, "a", 1, "x", 5_100), (5_000, true));
        assert_eq!(meet(&leftovers, "a", 1, "x", 900_000), (5_000, true));
        // Each bucket by itself, and anew for another quota.
        assert_eq!(meet(&leftovers, "b", 1, "x", 7_000), (7_000, false));
        assert_eq!(meet(&leftovers, "a", 2, "x", 8_000), (8_000, false));
        assert_eq!(meet(&leftovers, "a", 1, "x", 901_000), (5_000, true));
    }

    #[test]
    fn what_others_change_is_carried_over_each_time_for_a_minute() {
        let leftovers = Leftovers::default();
        meet(&leftovers, "a", 1, "x", 5_000);
        meet(&leftovers, "b", 1, "y", 5_000);
        assert_eq!(meet(&leftovers, "a", 1, "z", 9_000), (9_000, false));
        assert_eq!(meet(&leftovers, "a", 1, "z", 68_999), (68_999, false));
        assert_eq!(meet(&leftovers, "b", 1, "y", 68_999), (68_999, false));
        assert_eq!(meet(&leftovers, "a", 1, "z", 69_000), (9_000, true));
        assert_eq!(meet(&leftovers, "b", 1, "y", 69_000), (5_000, true));
    }

    #[test]
    fn what_requests_from_before_a_reload_change_says_nothing_of_others() {
        let leftovers = Leftovers::default();
        leftovers.reloaded(at(6_000));
        assert_eq!(meet(&leftovers, "a", 1, "x", 5_000), (5_000, false));
        assert_eq!(meet(&leftovers, "a", 1, "z", 5_200), (5_200, false));
        assert_eq!(meet(&leftovers, "a", 1, "z", 5_999), (5_200, false));
        assert_eq!(meet(&leftovers, "a", 1, "z", 6_000), (5_200, true));
        assert_eq!(meet(&leftovers, "a", 1, "y", 6_001), (6_001, false));
        assert_eq!(meet(&leftovers, "a", 1, "y", 6_200), (6_200, false));
    }

    #[test]
    fn what_has_become_another_since_long_ago_was_changed_by_an_earlier_reload() {
        let leftovers = Leftovers::default();
        meet(&leftovers, "a", 1, "x", 5_000);
        assert_eq!(meet(&leftovers, "a", 1, "z", 65_000), (65_000, false));
        assert_eq!(meet(&leftovers, "a", 1, "z", 65_100), (65_000, true));
    }
}
