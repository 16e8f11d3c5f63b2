//! The state of a host, which all workers share.

use std::sync::atomic::{
    AtomicBool, AtomicUsize,
    Ordering::{Relaxed, SeqCst},
};
use std::time::Duration;

use parking_lot::Mutex;

use crate::telemetry::log_throttle::LogThrottle;

/// The least time between two lines that a host fails: a host that fails now and then does not
/// fill a disk.
const INTERVAL: Duration = Duration::from_secs(10);

/// The state of a host: its requests in flight, and its failures since the last response, which are
/// logged when they begin and end.
#[derive(Debug)]
pub(in crate::upstream) struct HostState {
    in_flight: AtomicUsize,
    /// Read without the lock: most hosts answer.
    is_failing: AtomicBool,
    failures: Mutex<Failures>,
    log: LogThrottle,
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

impl HostState {
    pub(in crate::upstream) fn new() -> Self {
        HostState {
            in_flight: AtomicUsize::new(0),
            is_failing: AtomicBool::new(false),
            failures: Mutex::default(),
            log: LogThrottle::new(INTERVAL),
            ejection_log: LogThrottle::new(INTERVAL),
        }
    }

    /// The requests in flight. Sequentially consistent, as the
    /// [queue](crate::upstream::pending::PendingQueue) needs it.
    pub(in crate::upstream) fn in_flight(&self) -> usize {
        self.in_flight.load(SeqCst)
    }

    /// Counts a request in flight: from the pick of the host to the end of the response.
    pub(in crate::upstream) fn begin_request(&self) {
        self.in_flight.fetch_add(1, SeqCst);
    }

    /// Counts a request in flight, if fewer than `max` are.
    pub(in crate::upstream) fn begin_request_below(&self, max: usize) -> bool {
        let more = |requests| (requests < max).then_some(requests + 1);
        self.in_flight.fetch_update(SeqCst, SeqCst, more).is_ok()
    }

    /// Counts the end of a request in flight.
    pub(in crate::upstream) fn end_request(&self) {
        self.in_flight.fetch_sub(1, SeqCst);
    }

    /// Notes a failure. Returns true if the caller must log it.
    pub(in crate::upstream) fn record_failure(&self) -> bool {
        let mut failures = self.failures.lock();
        self.is_failing.store(true, Relaxed);
        failures.count += 1;
        let is_logged = !failures.is_announced && self.log.admit_now().is_some();
        failures.is_announced |= is_logged;
        is_logged
    }

    /// Notes an ejection. Returns true if the caller must log it.
    pub(in crate::upstream) fn record_ejection(&self) -> bool {
        let mut failures = self.failures.lock();
        self.is_failing.store(true, Relaxed);
        let is_logged = !failures.is_ejected && self.ejection_log.admit_now().is_some();
        failures.is_ejected |= is_logged;
        failures.is_announced |= is_logged;
        is_logged
    }

    /// Notes a response. Returns how many requests failed before it if the caller must log that.
    pub(in crate::upstream) fn record_response(&self) -> Option<u64> {
        if !self.is_failing.load(Relaxed) {
            return None;
        }
        let mut failures = self.failures.lock();
        self.is_failing.store(false, Relaxed);
        let Failures {
            count,
            is_announced,
            ..
        } = std::mem::take(&mut *failures);
        is_announced.then_some(count)
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_first_failure_and_the_next_answer_are_logged() {
        let log = HostState::new();
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
        let log = HostState::new();
        assert!(log.record_failure());
        assert_eq!(log.record_response(), Some(1));
        assert!(!log.record_failure());
        assert_eq!(log.record_response(), None);
        advance(INTERVAL).await;
        assert!(log.record_failure());
        assert_eq!(log.record_response(), Some(1));
    }
}
