//! Failures of an upstream, or of the store for a policy, in the log: the first at once, then at most one a second with the number of
//! those that were left out. A dead upstream must not fill a disk.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::clock::Timestamp;
use crate::store::redis::Unanswered;
use crate::upstream::Error;

/// Microseconds between two lines.
const INTERVAL: u64 = 1_000_000;

/// The failures of one.
#[derive(Debug, Default)]
pub struct Complaints {
    /// The instant from which the next one is logged, in microseconds.
    next: AtomicU64,
    omitted: AtomicU64,
}

impl Complaints {
    /// Logs `error`, unless another was logged within the last second.
    pub(super) fn report(&self, now: Timestamp, upstream: &str, error: &Error) {
        if let Some(omitted) = self.admit(now) {
            let error: &dyn std::error::Error = error;
            tracing::warn!(upstream, error, omitted, "no response from the upstream");
        }
    }

    /// The same of what the store said, or did not say, of a request to this policy.
    pub(super) fn report_undecided(&self, now: Timestamp, policy: &str, error: &Unanswered) {
        if let Some(omitted) = self.admit(now) {
            tracing::warn!(policy, %error, omitted, "no decision from the store");
        }
    }

    /// How many were left out since the last that was logged; `None` if this one is left out too.
    fn admit(&self, now: Timestamp) -> Option<u64> {
        let (now, next) = (now.as_micros(), self.next.load(Relaxed));
        let mine = now >= next
            && self
                .next
                .compare_exchange(next, now + INTERVAL, Relaxed, Relaxed)
                .is_ok();
        match mine {
            true => Some(self.omitted.swap(0, Relaxed)),
            false => {
                self.omitted.fetch_add(1, Relaxed);
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_a_second_is_logged_and_the_rest_counted() {
        let complaints = Complaints::default();
        let at = |micros| complaints.admit(Timestamp::from_micros(micros));
        assert_eq!(at(5_000_000), Some(0));
        assert_eq!(at(5_000_001), None);
        assert_eq!(at(5_999_999), None);
        assert_eq!(at(6_000_000), Some(2));
        assert_eq!(at(9_000_000), Some(0));
    }
}
