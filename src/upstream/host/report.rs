//! The lines of the log about a host: when it begins to fail, is ejected, and answers again.

use super::{Ejection, Host};
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
