//! The lines of the log about a host: when it begins to fail, is ejected, and answers again.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;

use super::{Ejection, Host};
use crate::telemetry::log_throttle::LogThrottle;
use crate::telemetry::metrics::EjectionReason;
use crate::upstream::error::UpstreamError;
use crate::upstream::health::CheckFailure;

impl Host {
    /// Notes a good answer, and logs it if the host has failed.
    pub(in crate::upstream) fn report_answer(&self) {
        if let Some(failures) = self.log.record_response() {
            let (upstream, endpoint) = (&*self.metrics.upstream, &*self.metrics.endpoint);
            let address = &self.connector.address;
            tracing::info!(upstream, endpoint, %address, failures, "the endpoint answers again");
        }
    }

    /// Counts a failed attempt, and logs it if the host begins to fail, or the ejection for it.
    pub(in crate::upstream) fn report_failure(
        &self,
        error: &UpstreamError,
        ejection: Option<Ejection>,
    ) {
        let reason = error.reason();
        let reason = reason.inspect(|reason| self.metrics.failures.record(*reason));
        if let Some(reason) = reason.filter(|_| self.log.record_failure()) {
            let (upstream, endpoint) = (&*self.metrics.upstream, &*self.metrics.endpoint);
            let address = &self.connector.address;
            let (reason, error) = (reason.as_str(), error as &dyn std::error::Error);
            let ejected = ejection.map(|ejection| tracing::field::debug(ejection.time));
            tracing::warn!(upstream, endpoint, %address, reason, error, ejected, "the endpoint fails");
        } else if let Some(ejection) = ejection {
            self.report_ejection(ejection);
        }
    }

    /// Logs that no endpoint is left that works, unless a line said so lately.
    pub(in crate::upstream) fn report_outage(&self, reason: EjectionReason) {
        if self.log.record_ejection() {
            let (upstream, reason) = (&*self.metrics.upstream, reason.as_str());
            tracing::warn!(upstream, reason, "no endpoint of the upstream works");
        }
    }

    /// Logs an ejection, unless lines said so lately.
    pub(in crate::upstream) fn report_ejection(&self, ejection: Ejection) {
        if self.log.record_ejection() {
            let (upstream, endpoint) = (&*self.metrics.upstream, &*self.metrics.endpoint);
            let address = &self.connector.address;
            let (reason, ejected) = (ejection.reason.as_str(), ejection.time);
            tracing::warn!(upstream, endpoint, %address, reason, ?ejected, "the endpoint is ejected");
        }
    }

    /// Logs that health checks have begun to fail, or pass again.
    pub(super) fn report_health(&self, failure: Option<&CheckFailure>) {
        let (upstream, endpoint) = (&*self.metrics.upstream, &*self.metrics.endpoint);
        let address = &self.connector.address;
        match failure {
            None => tracing::info!(upstream, endpoint, %address, "the endpoint is healthy again"),
            Some(failure) => {
                let error = failure as &dyn std::error::Error;
                tracing::warn!(upstream, endpoint, %address, error, "the endpoint is unhealthy");
            }
        }
    }
}

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
