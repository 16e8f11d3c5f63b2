//! The faults of a host that are logged: it begins to fail, is ejected, and answers again.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;

use crate::telemetry::log_throttle::LogThrottle;

/// The least time between two lines that a host fails: a host that fails now and then does not
/// fill a disk.
const INTERVAL: Duration = Duration::from_secs(10);

/// The failures of a host since the last response, which are logged when they begin and end.
#[derive(Debug)]
pub(super) struct FaultLog {
    /// Read without the lock: most hosts answer.
    is_failing: AtomicBool,
    failures: Mutex<Failures>,
    failure_log: LogThrottle,
    ejection_log: LogThrottle,
}

#[derive(Debug, Default)]
struct Failures {
    /// Requests in a row that failed.
    count: u64,
    /// A line said that the host fails, and none since that it answers.
    is_announced: bool,
    /// A line said that the host is ejected, and none since that it answers.
    is_ejected: bool,
}

impl FaultLog {
    pub(super) fn new() -> Self {
        FaultLog {
            is_failing: AtomicBool::new(false),
            failures: Mutex::default(),
            failure_log: LogThrottle::new(INTERVAL),
            ejection_log: LogThrottle::new(INTERVAL),
        }
    }

    /// Notes a failure. Returns true if the caller must log it.
    pub(super) fn record_failure(&self) -> bool {
        let mut failures = self.failures.lock();
        self.is_failing.store(true, Relaxed);
        failures.count += 1;
        let is_logged = !failures.is_announced && self.failure_log.admit_now().is_some();
        failures.is_announced |= is_logged;
        is_logged
    }

    /// Notes an ejection. Returns true if the caller must log it.
    pub(super) fn record_ejection(&self) -> bool {
        let mut failures = self.failures.lock();
        self.is_failing.store(true, Relaxed);
        let is_logged = !failures.is_ejected && self.ejection_log.admit_now().is_some();
        failures.is_ejected |= is_logged;
        failures.is_announced |= is_logged;
        is_logged
    }

    /// Notes a response. Returns how many requests failed before it if the caller must log that.
    pub(super) fn record_response(&self) -> Option<u64> {
        if !self.is_failing.load(Relaxed) {
            return None;
        }
        let mut failures = self.failures.lock();
        self.is_failing.store(false, Relaxed);
        let failures = std::mem::take(&mut *failures);
        failures.is_announced.then_some(failures.count)
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_first_failure_and_the_next_answer_are_logged() {
        let log = FaultLog::new();
        assert_eq!(log.record_response(), None);
        assert!(log.record_failure());
        assert!(!log.record_failure());
        advance(2 * INTERVAL).await;
        assert!(!log.record_failure(), "it is known to fail");
        assert_eq!(log.record_response(), Some(3));
        assert_eq!(log.record_response(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_host_that_fails_now_and_then_is_logged_once_in_an_interval() {
        let log = FaultLog::new();
        assert!(log.record_failure());
        assert_eq!(log.record_response(), Some(1));
        assert!(!log.record_failure());
        assert_eq!(log.record_response(), None);
        advance(INTERVAL).await;
        assert!(log.record_failure());
        assert_eq!(log.record_response(), Some(1));
    }
}
