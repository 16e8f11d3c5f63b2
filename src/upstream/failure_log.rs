//! Lines of the log when an endpoint begins to fail, and when it answers again.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// The least time between two lines that say that an endpoint fails: one that fails now and then must not fill a disk.
const INTERVAL: Duration = Duration::from_secs(10);

/// The failures of an endpoint since it last answered.
#[derive(Debug, Default)]
pub(super) struct FailureLog {
    /// So that those that answer need no lock.
    is_failing: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Requests that failed since one was answered.
    failures: u64,
    /// A line said that it fails, and none since that it answers.
    is_announced: bool,
    next: Option<Instant>,
}

impl FailureLog {
    /// Notes a failure. Returns true if a line is to say so.
    pub(super) fn failed(&self) -> bool {
        let mut state = self.state.lock();
        self.is_failing.store(true, Relaxed);
        state.failures += 1;
        let now = Instant::now();
        if state.is_announced || state.next.is_some_and(|next| now < next) {
            return false;
        }
        state.is_announced = true;
        state.next = Some(now + INTERVAL);
        true
    }

    /// Notes an answer. Returns how many requests failed before it, if a line is to say so.
    pub(super) fn answered(&self) -> Option<u64> {
        if !self.is_failing.load(Relaxed) {
            return None;
        }
        let mut state = self.state.lock();
        self.is_failing.store(false, Relaxed);
        let failures = std::mem::take(&mut state.failures);
        std::mem::take(&mut state.is_announced).then_some(failures)
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_first_failure_and_the_next_answer_are_told() {
        let log = FailureLog::default();
        assert_eq!(log.answered(), None);
        assert!(log.failed());
        assert!(!log.failed());
        advance(2 * INTERVAL).await;
        assert!(!log.failed(), "it is known to fail");
        assert_eq!(log.answered(), Some(3));
        assert_eq!(log.answered(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn an_endpoint_that_fails_now_and_then_is_told_of_once_in_an_interval() {
        let log = FailureLog::default();
        assert!(log.failed());
        assert_eq!(log.answered(), Some(1));
        assert!(!log.failed());
        assert_eq!(log.answered(), None);
        advance(INTERVAL).await;
        assert!(log.failed());
        assert_eq!(log.answered(), Some(1));
    }
}
