//! Failures of an upstream, or of the store for a policy, in the log: the first at once, then one a second at most, and of the store fewer
//! and fewer, with the number of those that were left out. A dead upstream must not fill a disk.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::clock::Timestamp;
use crate::rules::TokenRejection;
use crate::store::redis::ChargeError;
use crate::upstream::Error;

/// Microseconds between two lines.
const INTERVAL: u64 = 1_000_000;
/// To this doubles what is between two of the store: what is wrong with a key stays so until somebody puts it right.
const LONGEST: u64 = 60_000_000;

/// The failures of one.
#[derive(Debug, Default)]
pub struct FailureLog {
    /// The instant from which the next one is logged, in microseconds.
    next: AtomicU64,
    /// How long it was from the last one to that, in microseconds.
    pause: AtomicU64,
    omitted: AtomicU64,
}

impl FailureLog {
    /// Logs `error`, unless another was logged within the last second.
    pub(super) fn report(&self, now: Timestamp, upstream: &str, error: &Error) {
        if let Some(omitted) = self.admit(now, INTERVAL) {
            let error: &dyn std::error::Error = error;
            tracing::warn!(upstream, error, omitted, "no response from the upstream");
        }
    }

    /// The same of what the store said, or did not say, of a request to this policy. As long as it goes on, there is a line after
    /// 1, 2, 4 .. seconds, and at last one a minute.
    pub(super) fn report_undecided(&self, now: Timestamp, policy: &str, error: &ChargeError) {
        if let Some(omitted) = self.admit(now, LONGEST) {
            tracing::warn!(policy, %error, omitted, "no decision from the store");
        }
    }

    /// The same of tokens that were rejected.
    pub(super) fn report_token(&self, now: Timestamp, why: TokenRejection) {
        if let Some(omitted) = self.admit(now, LONGEST) {
            tracing::warn!(reason = %why, omitted, "a token was rejected: the request counts as without one");
        }
    }

    /// How many were left out since the last that was logged; `None` if this one is left out too. What is between two lines doubles up
    /// to `longest`, until there is none for as long.
    fn admit(&self, now: Timestamp, longest: u64) -> Option<u64> {
        let (now, next) = (now.as_micros(), self.next.load(Relaxed));
        let pause = match self.pause.load(Relaxed) {
            pause if now.saturating_sub(next) >= pause => INTERVAL,
            pause => (2 * pause).min(longest),
        };
        let mine = now >= next
            && self
                .next
                .compare_exchange(next, now + pause, Relaxed, Relaxed)
                .is_ok();
        match mine {
            true => {
                self.pause.store(pause, Relaxed);
                Some(self.omitted.swap(0, Relaxed))
            }
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
        let complaints = FailureLog::default();
        let at = |micros| complaints.admit(Timestamp::from_micros(micros), INTERVAL);
        assert_eq!(at(5_000_000), Some(0));
        assert_eq!(at(5_000_001), None);
        assert_eq!(at(5_999_999), None);
        assert_eq!(at(6_000_000), Some(2));
        assert_eq!(at(9_000_000), Some(0));
    }

    #[test]
    fn what_goes_on_is_logged_more_and_more_seldom() {
        let complaints = FailureLog::default();
        let is_logged = |second: &u64| {
            let now = Timestamp::from_micros(1_000_000 * second);
            complaints.admit(now, LONGEST).is_some()
        };
        let logged: Vec<_> = (1_000..1_200).filter(is_logged).collect();
        assert_eq!(
            logged,
            [
                1_000, 1_001, 1_003, 1_007, 1_015, 1_031, 1_063, 1_123, 1_183
            ]
        );
        let again: Vec<_> = (1_400..1_405).filter(is_logged).collect();
        assert_eq!(again, [1_400, 1_401, 1_403], "it was well meanwhile");
    }
}
