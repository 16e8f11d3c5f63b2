//! Bounds how often the process log repeats a line, so that a lasting failure does not fill a disk.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::time::Instant;

use crate::clock::Timestamp;

/// The throttle of one line: admits the first occurrence at once, and counts those that it leaves
/// out.
///
/// Callers use either [`admit`](Self::admit) or [`admit_now`](Self::admit_now) of a throttle, not
/// both.
#[derive(Debug)]
pub struct LogThrottle {
    /// Microseconds between the first two lines.
    shortest: u64,
    /// Microseconds up to which the pause doubles.
    longest: u64,
    /// The instant from which the next line is admitted, in microseconds.
    next: AtomicU64,
    /// The pause before `next`, in microseconds.
    pause: AtomicU64,
    omitted: AtomicU64,
    /// The first call of `admit_now`.
    origin: OnceLock<Instant>,
}

/// Admits one line in a minute.
impl Default for LogThrottle {
    fn default() -> Self {
        Self::new(Duration::from_secs(60))
    }
}

impl LogThrottle {
    /// Admits one line in `interval`.
    pub const fn new(interval: Duration) -> Self {
        Self::with_backoff(interval, interval)
    }

    /// Pauses for `shortest` after the first line, and twice as long after each further one, up to
    /// `longest`. The pauses start over when nothing is logged for a pause after the last.
    pub const fn with_backoff(shortest: Duration, longest: Duration) -> Self {
        LogThrottle {
            shortest: shortest.as_micros() as u64,
            longest: longest.as_micros() as u64,
            next: AtomicU64::new(0),
            pause: AtomicU64::new(0),
            omitted: AtomicU64::new(0),
            origin: OnceLock::new(),
        }
    }

    /// Returns how many lines were left out since the last, or `None` if this one is left out, too.
    pub fn admit(&self, now: Timestamp) -> Option<u64> {
        let (now, next) = (now.as_micros(), self.next.load(Relaxed));
        let pause = match self.pause.load(Relaxed) {
            pause if now.saturating_sub(next) >= pause => self.shortest,
            pause => (2 * pause).min(self.longest),
        };
        let is_admitted = now >= next
            && self
                .next
                .compare_exchange(next, now.saturating_add(pause), Relaxed, Relaxed)
                .is_ok();
        if is_admitted {
            self.pause.store(pause, Relaxed);
            Some(self.omitted.swap(0, Relaxed))
        } else {
            self.omitted.fetch_add(1, Relaxed);
            None
        }
    }

    /// As [`admit`](Self::admit), for callers that have no request's time.
    pub fn admit_now(&self) -> Option<u64> {
        let origin = self.origin.get_or_init(Instant::now);
        self.admit(Timestamp::EPOCH.saturating_add(origin.elapsed()))
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn admits_one_line_a_second_and_counts_the_rest() {
        let throttle = LogThrottle::new(SECOND);
        let at = |micros| throttle.admit(Timestamp::from_micros(micros));
        assert_eq!(at(5_000_000), Some(0));
        assert_eq!(at(5_000_001), None);
        assert_eq!(at(5_999_999), None);
        assert_eq!(at(6_000_000), Some(2));
        assert_eq!(at(9_000_000), Some(0));
    }

    #[test]
    fn admits_lines_about_a_lasting_failure_ever_more_seldom() {
        let throttle = LogThrottle::with_backoff(SECOND, MINUTE);
        let is_logged = |second: &u64| {
            let now = Timestamp::from_micros(1_000_000 * second);
            throttle.admit(now).is_some()
        };
        let logged: Vec<_> = (1_000..1_200).filter(is_logged).collect();
        assert_eq!(
            logged,
            [
                1_000, 1_001, 1_003, 1_007, 1_015, 1_031, 1_063, 1_123, 1_183
            ]
        );
        let again: Vec<_> = (1_400..1_405).filter(is_logged).collect();
        assert_eq!(again, [1_400, 1_401, 1_403], "the failure ended meanwhile");
    }

    #[tokio::test(start_paused = true)]
    async fn reads_the_clock_for_callers_without_a_time() {
        let throttle = LogThrottle::new(MINUTE);
        assert_eq!(throttle.admit_now(), Some(0));
        assert_eq!(throttle.admit_now(), None);
        advance(MINUTE - Duration::from_millis(1)).await;
        assert_eq!(throttle.admit_now(), None);
        advance(Duration::from_millis(1)).await;
        assert_eq!(throttle.admit_now(), Some(2));
        advance(2 * MINUTE).await;
        assert_eq!(throttle.admit_now(), Some(0));
    }
}
