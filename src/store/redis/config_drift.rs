//! Values under other recipes than a policy's: what an earlier quota has left, or what machines write that still have that.
//!
//! What is left is carried over once: as it was at the reload, as in memory, or when it was met first, if that is long after; from
//! then on it is what the new quota makes of it. While others charge a bucket under their recipe it is carried over each time, and only who
//! charges it writes it under his: a smaller quota has no room for all that was used of a larger one, and what it forgets would
//! be admitted again elsewhere. Which of the two it is shows when a value changes under another recipe that this machine has not
//! changed, or is under another again that this machine has written.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::script_call::BucketCharge;
use super::value;
use crate::clock::Timestamp;
use crate::limiter::{Fingerprint, KeyParts, Secret};
use crate::store::bounded_map::{BoundedMap, HeapSize};

/// Who has changed a value under another recipe may do so again for so long, in microseconds: at first, and at last.
const DIFFERING: [u64; 2] = [60_000_000, 86_400_000_000];
/// Machines that are reloaded together are so within this, in microseconds.
const TOGETHER: u64 = 60_000_000;
/// Bytes for what is known of values, some 180 for each.
const ROOM: usize = 8 << 20;
/// What has not changed for so long is left over, in microseconds.
const QUIET: u64 = 100_000;

/// The values under other recipes that were met lately.
#[derive(Debug)]
pub struct ConfigDrift {
    secret: Secret,
    met: BoundedMap<ForeignValue>,
    /// Until then others are taken to write under other recipes.
    others_until: AtomicU64,
    /// How long that was taken for, the last time.
    differing: AtomicU64,
    /// When the recipes became what they are, and until when requests from before that may write under those that were.
    reloaded: AtomicU64,
    reload_until: AtomicU64,
}

/// A value that was met.
#[derive(Clone, Copy, Debug)]
struct ForeignValue {
    /// The one that it is to have.
    recipe: Fingerprint,
    /// `None` where this machine has changed it since, under the other recipe.
    digest: Option<Fingerprint>,
    first: Timestamp,
    last: Timestamp,
    /// When this machine wrote it under the recipe that it is to have.
    written: Option<Timestamp>,
}

/// What is to become of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Conversion {
    /// When it is carried over.
    pub(super) at: Timestamp,
    /// Whether it is written under the new recipe by whoever asks.
    pub(super) is_left: bool,
}

impl HeapSize for ForeignValue {
    fn heap_bytes(&self) -> usize {
        0
    }
}

impl Conversion {
    /// One of which nothing is known.
    pub(super) const fn first(now: Timestamp) -> Self {
        Self {
            at: now,
            is_left: false,
        }
    }
}

impl Default for ConfigDrift {
    fn default() -> Self {
        Self {
            secret: Secret::random(),
            met: BoundedMap::new(ROOM),
            others_until: AtomicU64::new(0),
            differing: AtomicU64::new(0),
            reloaded: AtomicU64::new(u64::MAX),
            reload_until: AtomicU64::new(0),
        }
    }
}

impl ConfigDrift {
    /// Recipes may be others from `now` on, in the server's time; until then what was asked before is still charged under those that were.
    pub(super) fn reloaded(&self, now: Timestamp, until: Timestamp) {
        self.differing.store(0, Relaxed);
        self.reloaded.store(now.as_micros(), Relaxed);
        self.reload_until.fetch_max(until.as_micros(), Relaxed);
    }

    /// Notes that the bucket of a charge has a value of this digest, under another recipe; `now` is in the server's time.
    pub(super) fn meet(
        &self,
        charge: &BucketCharge<'_>,
        digest: &[u8],
        now: Timestamp,
    ) -> Conversion {
        let recipe = self.recipe(charge);
        let digest = Some(self.fingerprint(digest));
        let new = |first| ForeignValue {
            recipe,
            digest,
            first,
            last: now,
            written: None,
        };
        // As of the reload, as in memory, and as on all machines that were reloaded then.
        let reloaded = Timestamp::from_micros(self.reloaded.load(Relaxed));
        let is_recent = reloaded <= now && now < reloaded.saturating_add_micros(TOGETHER);
        let first = if is_recent { reloaded } else { now };
        let is_over = |seen: &ForeignValue| {
            let kept = seen.written.map_or(TOGETHER, |_| DIFFERING[1]);
            seen.last.saturating_add_micros(kept) <= now
        };
        let is_reloading = now.as_micros() < self.reload_until.load(Relaxed);
        let meet = |seen: &mut ForeignValue| {
            if seen.recipe != recipe || seen.digest.is_none() {
                *seen = new(first);
            }
            let is_undone = seen.written.is_some_and(|written| written < now);
            if is_undone || seen.digest != digest {
                if !is_reloading {
                    self.others_write(now);
                }
                *seen = new(now);
            }
            seen.last = now;
            seen.first
        };
        let bucket = self.fingerprint(charge.name);
        let mut met = self.met.lock(bucket);
        let first = met.change_or_insert(|| new(first), is_over, meet);
        drop(met);
        let others_write = now.as_micros() < self.others_until.load(Relaxed);
        match others_write {
            true => Conversion::first(now),
            false => Conversion {
                at: first.min(now),
                is_left: first.saturating_add_micros(QUIET) <= now && !is_reloading,
            },
        }
    }

    /// Others are taken to write under other recipes for a minute, and for twice as long each time that they do so again after that.
    fn others_write(&self, now: Timestamp) {
        if self.others_until.load(Relaxed) <= now.as_micros() {
            let [first, longest] = DIFFERING;
            let next = self.differing.load(Relaxed).saturating_mul(2);
            self.differing.store(next.clamp(first, longest), Relaxed);
        }
        let until = now.saturating_add_micros(self.differing.load(Relaxed));
        self.others_until.fetch_max(until.as_micros(), Relaxed);
    }

    /// Notes that this machine has written the value of a bucket under the recipe of a charge; `at` is in the server's time.
    pub(super) fn wrote(&self, charge: &BucketCharge<'_>, at: Timestamp) {
        if self.met.keys() == 0 {
            return;
        }
        // Few are known: what it is under is asked of those alone.
        let wrote = |seen: &mut ForeignValue| match seen.recipe == self.recipe(charge) {
            true => (seen.written, seen.last) = (Some(at), seen.last.max(at)),
            false => seen.digest = None,
        };
        self.met.lock(self.fingerprint(charge.name)).change(wrote);
    }

    fn recipe(&self, charge: &BucketCharge<'_>) -> Fingerprint {
        let mut recipe = Vec::new();
        value::write_recipe(&mut recipe, charge.algorithm);
        self.fingerprint(&recipe)
    }

    fn fingerprint(&self, bytes: &[u8]) -> Fingerprint {
        let mut hasher = self.secret.hasher();
        hasher.part(0, bytes);
        hasher.finish()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::limiter::{Algorithm, Gcra, Quota};
    use crate::store::redis::script_call::{ChargedRefusals, Tier};

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_micros(millis * 1_000)
    }

    fn with<R>(name: &str, limit: u32, run: impl FnOnce(&BucketCharge<'_>) -> R) -> R {
        let quota = Quota::new(limit, Duration::from_secs(1)).expect("a quota");
        let algorithm = Algorithm::Gcra(Gcra::new(quota, limit).expect("a burst"));
        run(&BucketCharge {
            algorithm: &algorithm,
            name: name.as_bytes(),
            key: Fingerprint::from_bits(1),
            cost: 1,
            owes: ChargedRefusals::None,
            settles: false,
            period: None,
            tier: Tier::First,
        })
    }

    fn meet(
        leftovers: &ConfigDrift,
        name: &str,
        limit: u32,
        digest: &str,
        now: u64,
    ) -> (u64, bool) {
        let met = with(name, limit, |charge| {
            leftovers.meet(charge, digest.as_bytes(), at(now))
        });
        (met.at.as_micros() / 1_000, met.is_left)
    }

    fn write(leftovers: &ConfigDrift, name: &str, limit: u32, now: u64) {
        with(name, limit, |charge| leftovers.wrote(charge, at(now)));
    }

    #[test]
    fn what_does_not_change_is_carried_over_when_it_was_met_first() {
        let leftovers = ConfigDrift::default();
        assert_eq!(meet(&leftovers, "a", 1, "x", 5_000), (5_000, false));
        assert_eq!(meet(&leftovers, "a", 1, "x", 5_099), (5_000, false));
        assert_eq!(meet(&leftovers, "a", 1, "x", 5_100), (5_000, true));
        assert_eq!(meet(&leftovers, "a", 1, "x", 900_000), (5_000, true));
        // Each bucket by itself, and anew for another quota.
        assert_eq!(meet(&leftovers, "b", 1, "x", 7_000), (7_000, false));
        assert_eq!(meet(&leftovers, "a", 2, "x", 8_000), (8_000, false));
    }

    #[test]
    fn what_is_met_soon_after_a_reload_is_carried_over_as_it_was_then() {
        let leftovers = ConfigDrift::default();
        leftovers.reloaded(at(4_000), at(4_100));
        assert_eq!(meet(&leftovers, "a", 1, "x", 4_099), (4_000, false));
        assert_eq!(meet(&leftovers, "a", 1, "x", 4_100), (4_000, true));
        assert_eq!(meet(&leftovers, "b", 1, "x", 63_999), (4_000, true));
        assert_eq!(meet(&leftovers, "c", 1, "x", 64_000), (64_000, false));
    }

    #[test]
    fn what_others_change_is_carried_over_each_time_for_a_minute_and_longer_if_they_do_again() {
        let leftovers = ConfigDrift::default();
        meet(&leftovers, "a", 1, "x", 5_000);
        meet(&leftovers, "b", 1, "y", 5_000);
        assert_eq!(meet(&leftovers, "a", 1, "z", 9_000), (9_000, false));
        assert_eq!(meet(&leftovers, "a", 1, "z", 68_999), (68_999, false));
        assert_eq!(meet(&leftovers, "b", 1, "y", 68_999), (68_999, false));
        assert_eq!(meet(&leftovers, "a", 1, "z", 69_000), (9_000, true));
        assert_eq!(meet(&leftovers, "b", 1, "y", 69_000), (5_000, true));
        // However long ago that was.
        assert_eq!(meet(&leftovers, "b", 1, "w", 900_000), (900_000, false));
        assert_eq!(meet(&leftovers, "a", 1, "z", 1_019_999), (1_019_999, false));
        assert_eq!(meet(&leftovers, "a", 1, "z", 1_020_000), (9_000, true));
        leftovers.reloaded(at(2_000_000), at(2_000_000));
        assert_eq!(meet(&leftovers, "b", 1, "v", 2_100_000), (2_100_000, false));
        assert_eq!(meet(&leftovers, "b", 1, "v", 2_160_000), (2_100_000, true));
    }

    /// A window of which as many are counted as before has the digest that it had.
    #[test]
    fn what_is_as_it_was_after_it_was_written_here_was_changed_by_others() {
        let leftovers = ConfigDrift::default();
        meet(&leftovers, "a", 1, "x", 5_000);
        assert_eq!(meet(&leftovers, "a", 1, "x", 5_100), (5_000, true));
        write(&leftovers, "a", 1, 5_100);
        assert_eq!(meet(&leftovers, "a", 1, "x", 6_000), (6_000, false));
        assert_eq!(meet(&leftovers, "a", 1, "x", 6_200), (6_200, false));
    }

    #[test]
    fn what_requests_from_before_a_reload_change_says_nothing_of_others() {
        let leftovers = ConfigDrift::default();
        meet(&leftovers, "a", 1, "x", 5_000);
        // Soon after it, whoever it was; and later where they say so, as settlements do.
        leftovers.reloaded(at(90_000), at(91_000));
        assert_eq!(meet(&leftovers, "a", 1, "z", 90_500), (90_500, false));
        write(&leftovers, "a", 2, 95_000);
        assert_eq!(meet(&leftovers, "a", 1, "v", 95_000), (90_000, true));
        assert_eq!(meet(&leftovers, "a", 1, "v", 95_100), (90_000, true));
        // There and back.
        write(&leftovers, "a", 1, 95_100);
        leftovers.reloaded(at(96_000), at(96_000));
        assert_eq!(meet(&leftovers, "a", 2, "w", 96_000), (96_000, false));
        write(&leftovers, "a", 2, 96_100);
        leftovers.reloaded(at(97_000), at(97_000));
        assert_eq!(meet(&leftovers, "a", 1, "u", 97_000), (97_000, false));
        assert_eq!(meet(&leftovers, "a", 1, "u", 97_100), (97_000, true));
    }
}
