//! A local cache of refusals: clients that keep asking cost the store nothing.

use std::time::Duration;

use crate::clock::Timestamp;
use crate::limiter::{Decision, Fingerprint, Outcome};
use crate::store::bounded_map::{BoundedMap, HeapSize};
use crate::telemetry::metrics::{TrackedKeys, TrackingMetrics};

/// The refusals of one policy, some 210 bytes each. A full cache evicts the least-used keys.
#[derive(Debug)]
pub struct RefusalCache {
    /// The longest life of an entry.
    max_age: Duration,
    keys: BoundedMap<CachedRefusal>,
}

/// The terms of a request that a decision depends on, beside the bucket. It doesn't hold for others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DecisionTerms {
    /// The units that have to be in the bucket for the request itself.
    pub needed: u32,
    /// The units that have to stay.
    pub kept: u64,
    /// The last action of an operator on the key's units, in the server's time.
    pub steered_at: Option<Timestamp>,
    /// The end of the key's ban.
    pub banned_until: Option<Timestamp>,
}

#[derive(Clone, Copy, Debug)]
struct CachedRefusal {
    terms: DecisionTerms,
    until: Timestamp,
    decision: Decision,
}

impl HeapSize for CachedRefusal {}

impl RefusalCache {
    /// An empty cache of at most `bytes`. With a zero `max_age` it stays empty.
    pub fn new(max_age: Duration, bytes: usize) -> Self {
        Self {
            max_age,
            keys: BoundedMap::new(bytes),
        }
    }

    /// Counts evicted keys in these metrics.
    pub fn count_evictions(&mut self, metrics: &TrackingMetrics) {
        self.keys.evictions = Some(metrics.evictions(TrackedKeys::Refusals));
    }

    /// The last refusal of `key`, if it still holds for a request with these terms, and may not be
    /// retried yet. For a banned key, also an admission.
    pub fn get(&self, key: Fingerprint, terms: DecisionTerms, now: Timestamp) -> Option<Decision> {
        self.keys.read(key, |remembered| {
            let holds = remembered.terms == terms && now < remembered.until;
            holds.then_some(remembered.decision)
        })
    }

    /// Caches a refusal that the store gave at `now`, or any decision for a banned key. Forgets a refusal
    /// once a request is admitted.
    pub fn note(
        &self,
        key: Fingerprint,
        terms: DecisionTerms,
        decision: &Decision,
        now: Timestamp,
    ) {
        if self.max_age.is_zero() {
            return;
        }
        let retry_at = match decision.outcome {
            Outcome::Refuse { retry_at } => retry_at,
            Outcome::Admit | Outcome::Delay { .. } if terms.banned_until.is_some() => None,
            // What a refusal said of the key is no longer true.
            Outcome::Admit | Outcome::Delay { .. } => {
                self.keys.lock(key).remove();
                return;
            }
        };
        let max_age = now.saturating_add(self.max_age);
        let new = CachedRefusal {
            terms,
            until: retry_at.map_or(max_age, |retry_at| retry_at.min(max_age)),
            decision: *decision,
        };
        let is_over = |remembered: &CachedRefusal| remembered.until <= now;
        let mut keys = self.keys.lock(key);
        keys.change_or_insert(|| new, is_over, |remembered| *remembered = new);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limiter::Cell;

    fn needs(units: u32) -> DecisionTerms {
        DecisionTerms {
            needed: units,
            ..DecisionTerms::default()
        }
    }

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_micros(seconds * 1_000_000)
    }

    fn key(bits: u64) -> Fingerprint {
        Fingerprint::from_bits(bits)
    }

    fn refused(retry_at: Option<u64>) -> Decision {
        Decision {
            outcome: Outcome::Refuse {
                retry_at: retry_at.map(at),
            },
            remaining: 0,
            capacity: 10,
            reset: at(100),
            more_at: None,
            cell: Cell::EMPTY,
        }
    }

    #[test]
    fn a_refusal_holds_for_its_cost_until_it_ends_or_is_too_old() {
        let cache = RefusalCache::new(Duration::from_secs(5), 1 << 20);
        let decision = refused(Some(13));
        cache.note(key(1), needs(2), &decision, at(10));
        assert_eq!(cache.get(key(1), needs(2), at(12)), Some(decision));
        assert_eq!(
            cache.get(key(1), needs(3), at(12)),
            None,
            "more takes longer"
        );
        assert_eq!(
            cache.get(key(1), needs(1), at(12)),
            None,
            "less may be there"
        );
        assert_eq!(cache.get(key(2), needs(2), at(12)), None);
        assert_eq!(
            cache.get(key(1), needs(2), at(13)),
            None,
            "it may come back"
        );
        cache.note(key(1), needs(2), &refused(Some(60)), at(20));
        assert!(cache.get(key(1), needs(2), at(24)).is_some());
        assert_eq!(cache.get(key(1), needs(2), at(25)), None, "too old");
    }

    #[test]
    fn an_admission_ends_what_a_refusal_said() {
        let cache = RefusalCache::new(Duration::from_secs(5), 1 << 20);
        cache.note(key(1), needs(3), &refused(Some(13)), at(10));
        let mut other_burst = needs(2);
        other_burst.kept = 1;
        assert_eq!(
            cache.get(key(1), other_burst, at(11)),
            None,
            "another burst"
        );
        let admitted = Decision {
            outcome: Outcome::Admit,
            ..refused(None)
        };
        cache.note(key(1), needs(1), &admitted, at(11));
        assert_eq!(cache.get(key(1), needs(3), at(11)), None);
    }

    #[test]
    fn an_endless_refusal_is_kept_for_the_longest_time_and_not_at_all_if_that_is_zero() {
        let cache = RefusalCache::new(Duration::from_secs(5), 1 << 20);
        cache.note(key(1), needs(2), &refused(None), at(10));
        assert_eq!(cache.get(key(1), needs(2), at(14)), Some(refused(None)));
        assert_eq!(
            cache.get(key(1), needs(1), at(14)),
            None,
            "less may be there"
        );
        assert_eq!(cache.get(key(1), needs(2), at(15)), None);
        let none = RefusalCache::new(Duration::ZERO, 1 << 20);
        none.note(key(1), needs(2), &refused(Some(60)), at(10));
        assert_eq!(none.get(key(1), needs(2), at(10)), None);
    }

    #[test]
    fn a_refusal_of_a_request_that_knew_of_another_action_or_ban_does_not_hold() {
        let cache = RefusalCache::new(Duration::from_secs(5), 1 << 20);
        for (noted, asked, holds) in [
            (None, Some(at(9)), false),
            (Some(at(9)), Some(at(9)), true),
            (Some(at(9)), Some(at(11)), false),
            (Some(at(9)), None, false),
        ] {
            let steered = |at| DecisionTerms {
                steered_at: at,
                ..needs(2)
            };
            let banned = |until| DecisionTerms {
                banned_until: until,
                ..needs(2)
            };
            for (noted, asked) in [
                (steered(noted), steered(asked)),
                (banned(noted), banned(asked)),
            ] {
                cache.note(key(1), noted, &refused(Some(60)), at(10));
                let found = cache.get(key(1), asked, at(12));
                assert_eq!(found.is_some(), holds, "{noted:?} {asked:?}");
            }
        }
    }

    #[test]
    fn a_full_cache_still_takes_new_keys() {
        let cache = RefusalCache::new(Duration::from_secs(5), 1 << 20);
        for bits in 1..=100_000 {
            cache.note(key(bits), needs(1), &refused(Some(100)), at(10));
            assert!(cache.get(key(bits), needs(1), at(10)).is_some());
        }
        let kept = cache.keys.keys();
        assert!((4_400..10_000).contains(&kept), "{kept} in a megabyte");
    }
}
