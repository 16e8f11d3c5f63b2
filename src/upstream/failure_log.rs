//! Log lines when an endpoint begins to fail, and when it answers again.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;

use crate::telemetry::log_throttle::LogThrottle;

/// The least time between two lines that an endpoint fails: an endpoint that fails now and then
/// does not fill a disk.
const INTERVAL: Duration = Duration::from_secs(10);

/// The failures of an endpoint since its last answer.
#[derive(Debug)]
pub(super) struct FailureLog {
    /// Read without the lock: most endpoints answer.
    is_failing: AtomicBool,
    state: Mutex<State>,
    throttle: LogThrottle,
}

#[derive(Debug, Default)]
struct State {
    /// Requests that failed since the last answer.
    failures: u64,
    /// A line said that the endpoint fails, and none since that it answers.
    is_announced: bool,
}

impl FailureLog {
    pub(super) fn new() -> Self {
        FailureLog {
            is_failing: AtomicBool::new(false),
            state: Mutex::default(),
            throttle: LogThrottle::new(INTERVAL),
        }
    }

    /// Notes a failure. Returns true if the caller must log it.
    pub(super) fn record_failure(&self) -> bool {
        let mut state = self.state.lock();
        self.is_failing.store(true, Relaxed);
        state.failures += 1;
        let is_logged = !state.is_announced && self.throttle.admit_now().is_some();
        state.is_announced |= is_logged;
        is_logged
    }

    /// Notes an answer. Returns how many requests failed before it if the caller must log that.
    pub(super) fn record_answer(&self) -> Option<u64> {
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
    async fn the_first_failure_and_the_next_answer_are_logged() {
        let log = FailureLog::new();
        assert_eq!(log.record_answer(), None);
        assert!(log.record_failure());
        assert!(!log.record_failure());
        advance(2 * INTERVAL).await;
        assert!(!log.record_failure(), "it is known to fail");
        assert_eq!(log.record_answer(), Some(3));
        assert_eq!(log.record_answer(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn an_endpoint_that_fails_now_and_then_is_logged_once_in_an_interval() {
        let log = FailureLog::new();
        assert!(log.record_failure());
        assert_eq!(log.record_answer(), Some(1));
        assert!(!log.record_failure());
        assert_eq!(log.record_answer(), None);
        advance(INTERVAL).await;
        assert!(log.record_failure());
        assert_eq!(log.record_answer(), Some(1));
    }
}
