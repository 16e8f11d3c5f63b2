//! Values under other recipes than a policy's: leftovers of an earlier quota, or values of machines
//! that still have it.
//!
//! A leftover is converted once: as of the reload, as in memory, or as of the first sight, if that
//! is long after, or as of the call, if that leaves more: then others may have charged it after the reload, and the time since
//! would count as used units. Then the new quota's value replaces it.
//!
//! Other machines may still charge the bucket under their recipe. It is then converted for each
//! call, and only a charge writes it under the caller's recipe. Units that a smaller quota has no room
//! for stay in the value where it has a place for them (`Converted::loses_units`), since forgotten
//! units would be admitted again elsewhere.
//!
//! A value belongs to other machines if it changes under the other recipe without this machine, or
//! returns to that recipe after this machine has written it.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::script_call::BucketCharge;
use super::value;
use crate::clock::Timestamp;
use crate::limiter::{Fingerprint, KeyParts, Secret};
use crate::store::bounded_map::{BoundedMap, HeapSize};

/// The first and the longest time, in microseconds, for which other machines count as active after
/// a change.
const ACTIVITY_SPANS: [u64; 2] = [60_000_000, 86_400_000_000];
/// Machines reload together if they do so within this time, in microseconds.
const RELOAD_SPREAD: u64 = 60_000_000;
/// Bytes for observed values, some 180 for each.
const MEMORY: usize = 8 << 20;
/// A value without a change for this long is a leftover, in microseconds.
const LEFTOVER_AFTER: u64 = 100_000;

/// Recent values under other recipes.
#[derive(Debug)]
pub struct ConfigDrift {
    secret: Secret,
    values: BoundedMap<ForeignValue>,
    /// Until then, other machines count as writing under other recipes, in microseconds.
    others_active_until: AtomicU64,
    /// The last length of that time.
    activity_span: AtomicU64,
    /// The instant of the last reload, and the end of requests from before it, in microseconds.
    record_reload: AtomicU64,
    reload_until: AtomicU64,
}

/// An observed value.
#[derive(Clone, Copy, Debug)]
struct ForeignValue {
    /// The recipe of the policy.
    recipe: Fingerprint,
    /// `None` if this machine has changed it since, under the other recipe.
    digest: Option<Fingerprint>,
    first: Timestamp,
    last: Timestamp,
    /// When this machine wrote it under the policy's recipe.
    written: Option<Timestamp>,
}

/// The conversion of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Conversion {
    /// The instant as of which it is converted.
    pub(super) at: Timestamp,
    /// True if that is a reload, from before the value was seen: others may have charged it since.
    pub(super) is_assumed: bool,
    /// True if any call writes the converted value, also without a charge.
    pub(super) replaces_value: bool,
}

impl HeapSize for ForeignValue {}

impl Conversion {
    /// The conversion of a value without history.
    pub(super) const fn first(now: Timestamp) -> Self {
        Self {
            at: now,
            is_assumed: false,
            replaces_value: false,
        }
    }
}

impl Default for ConfigDrift {
    fn default() -> Self {
        Self {
            secret: Secret::random(),
            values: BoundedMap::new(MEMORY),
            others_active_until: AtomicU64::new(0),
            activity_span: AtomicU64::new(0),
            record_reload: AtomicU64::new(u64::MAX),
            reload_until: AtomicU64::new(0),
        }
    }
}

impl ConfigDrift {
    /// Records a reload at `now`, in the server's time. Until `until`, requests from before still
    /// charge under the earlier recipes.
    pub(super) fn record_reload(&self, now: Timestamp, until: Timestamp) {
        self.activity_span.store(0, Relaxed);
        self.record_reload.store(now.as_micros(), Relaxed);
        self.reload_until.fetch_max(until.as_micros(), Relaxed);
    }

    /// Observes that a charge's bucket has a value with this digest under another recipe; `now` is
    /// in the server's time.
    pub(super) fn observe(
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
        let record_reload = Timestamp::from_micros(self.record_reload.load(Relaxed));
        let is_recent =
            record_reload <= now && now < record_reload.saturating_add_micros(RELOAD_SPREAD);
        let first = if is_recent { record_reload } else { now };
        let is_over = |seen: &ForeignValue| {
            let kept = seen.written.map_or(RELOAD_SPREAD, |_| ACTIVITY_SPANS[1]);
            seen.last.saturating_add_micros(kept) <= now
        };
        let is_reloading = now.as_micros() < self.reload_until.load(Relaxed);
        let observe = |seen: &mut ForeignValue| {
            if seen.recipe != recipe || seen.digest.is_none() {
                *seen = new(first);
            }
            let is_undone = seen.written.is_some_and(|written| written < now);
            if is_undone || seen.digest != digest {
                if !is_reloading {
                    self.extend_others_activity(now);
                }
                *seen = new(now);
            }
            seen.last = now;
            seen.first
        };
        let bucket = self.fingerprint(charge.name);
        let mut values = self.values.lock(bucket);
        let first = values.change_or_insert(|| new(first), is_over, observe);
        drop(values);
        let extend_others_activity = now.as_micros() < self.others_active_until.load(Relaxed);
        if extend_others_activity {
            Conversion::first(now)
        } else {
            Conversion {
                at: first.min(now),
                is_assumed: first == record_reload && first < now,
                replaces_value: first.saturating_add_micros(LEFTOVER_AFTER) <= now && !is_reloading,
            }
        }
    }

    /// Counts other machines as active for a minute, and for twice as long with each later change.
    fn extend_others_activity(&self, now: Timestamp) {
        if self.others_active_until.load(Relaxed) <= now.as_micros() {
            let [first, longest] = ACTIVITY_SPANS;
            let next = self.activity_span.load(Relaxed).saturating_mul(2);
            self.activity_span
                .store(next.clamp(first, longest), Relaxed);
        }
        let until = now.saturating_add_micros(self.activity_span.load(Relaxed));
        self.others_active_until
            .fetch_max(until.as_micros(), Relaxed);
    }

    /// Records that this machine has written a bucket under a charge's recipe; `at` is in the
    /// server's time.
    pub(super) fn record_write(&self, charge: &BucketCharge<'_>, at: Timestamp) {
        if self.values.keys() == 0 {
            return;
        }
        // Few buckets are known, and only these need their recipe compared.
        let record_write = |seen: &mut ForeignValue| {
            if seen.recipe == self.recipe(charge) {
                (seen.written, seen.last) = (Some(at), seen.last.max(at))
            } else {
                seen.digest = None
            }
        };
        self.values
            .lock(self.fingerprint(charge.name))
            .change(record_write);
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
            required: 0,
            kept: 0,
            charged_refusals: ChargedRefusals::None,
            settles: false,
            period: None,
            tier: Tier::First,
        })
    }

    fn observe(drift: &ConfigDrift, name: &str, limit: u32, digest: &str, now: u64) -> (u64, bool) {
        let values = with(name, limit, |charge| {
            drift.observe(charge, digest.as_bytes(), at(now))
        });
        (values.at.as_micros() / 1_000, values.replaces_value)
    }

    fn write(drift: &ConfigDrift, name: &str, limit: u32, now: u64) {
        with(name, limit, |charge| drift.record_write(charge, at(now)));
    }

    #[test]
    fn a_leftover_is_converted_as_of_its_first_sight() {
        let drift = ConfigDrift::default();
        assert_eq!(observe(&drift, "a", 1, "x", 5_000), (5_000, false));
        assert_eq!(observe(&drift, "a", 1, "x", 5_099), (5_000, false));
        assert_eq!(observe(&drift, "a", 1, "x", 5_100), (5_000, true));
        assert_eq!(observe(&drift, "a", 1, "x", 900_000), (5_000, true));
        // Each bucket by itself, and anew for another quota.
        assert_eq!(observe(&drift, "b", 1, "x", 7_000), (7_000, false));
        assert_eq!(observe(&drift, "a", 2, "x", 8_000), (8_000, false));
    }

    #[test]
    fn a_leftover_seen_soon_after_a_reload_is_converted_as_of_the_reload() {
        let drift = ConfigDrift::default();
        drift.record_reload(at(4_000), at(4_100));
        assert_eq!(observe(&drift, "a", 1, "x", 4_099), (4_000, false));
        assert_eq!(observe(&drift, "a", 1, "x", 4_100), (4_000, true));
        assert_eq!(observe(&drift, "b", 1, "x", 63_999), (4_000, true));
        assert_eq!(observe(&drift, "c", 1, "x", 64_000), (64_000, false));
    }

    #[test]
    fn a_value_that_others_change_is_converted_each_time_for_a_minute_and_longer_after_repetitions()
    {
        let drift = ConfigDrift::default();
        observe(&drift, "a", 1, "x", 5_000);
        observe(&drift, "b", 1, "y", 5_000);
        assert_eq!(observe(&drift, "a", 1, "z", 9_000), (9_000, false));
        assert_eq!(observe(&drift, "a", 1, "z", 68_999), (68_999, false));
        assert_eq!(observe(&drift, "b", 1, "y", 68_999), (68_999, false));
        assert_eq!(observe(&drift, "a", 1, "z", 69_000), (9_000, true));
        assert_eq!(observe(&drift, "b", 1, "y", 69_000), (5_000, true));
        // However long ago the last change was.
        assert_eq!(observe(&drift, "b", 1, "w", 900_000), (900_000, false));
        assert_eq!(observe(&drift, "a", 1, "z", 1_019_999), (1_019_999, false));
        assert_eq!(observe(&drift, "a", 1, "z", 1_020_000), (9_000, true));
        drift.record_reload(at(2_000_000), at(2_000_000));
        assert_eq!(observe(&drift, "b", 1, "v", 2_100_000), (2_100_000, false));
        assert_eq!(observe(&drift, "b", 1, "v", 2_160_000), (2_100_000, true));
    }

    #[test]
    fn others_count_as_active_for_at_most_a_day() {
        const DAY: u64 = 86_400_000;
        let drift = ConfigDrift::default();
        for day in 1..=20 {
            observe(&drift, "a", 1, &day.to_string(), day * DAY);
        }
        let (last, end) = (20 * DAY, 21 * DAY);
        assert_eq!(observe(&drift, "a", 1, "20", end - 1), (end - 1, false));
        assert_eq!(observe(&drift, "a", 1, "20", end), (last, true));
    }

    /// A window with the same count as before has the same digest.
    #[test]
    fn a_value_that_returns_after_a_local_write_was_changed_by_others() {
        let drift = ConfigDrift::default();
        observe(&drift, "a", 1, "x", 5_000);
        assert_eq!(observe(&drift, "a", 1, "x", 5_100), (5_000, true));
        write(&drift, "a", 1, 5_100);
        assert_eq!(observe(&drift, "a", 1, "x", 6_000), (6_000, false));
        assert_eq!(observe(&drift, "a", 1, "x", 6_200), (6_200, false));
    }

    #[test]
    fn changes_by_requests_from_before_a_reload_do_not_count_as_others() {
        let drift = ConfigDrift::default();
        observe(&drift, "a", 1, "x", 5_000);
        // Right after the reload any change counts as the earlier policy's; later only writes that
        // this machine records, as settlements do.
        drift.record_reload(at(90_000), at(91_000));
        assert_eq!(observe(&drift, "a", 1, "z", 90_500), (90_500, false));
        write(&drift, "a", 2, 95_000);
        assert_eq!(observe(&drift, "a", 1, "v", 95_000), (90_000, true));
        assert_eq!(observe(&drift, "a", 1, "v", 95_100), (90_000, true));
        // Back to the first quota.
        write(&drift, "a", 1, 95_100);
        drift.record_reload(at(96_000), at(96_000));
        assert_eq!(observe(&drift, "a", 2, "w", 96_000), (96_000, false));
        write(&drift, "a", 2, 96_100);
        drift.record_reload(at(97_000), at(97_000));
        assert_eq!(observe(&drift, "a", 1, "u", 97_000), (97_000, false));
        assert_eq!(observe(&drift, "a", 1, "u", 97_100), (97_000, true));
    }
}
