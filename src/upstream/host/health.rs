//! The health of a host, as checks find it.

use std::sync::Arc;

use http::uri::Authority;
use tokio::time::Instant;

use super::Host;
use crate::upstream::health::{CheckFailure, HealthChange, check};
use crate::upstream::spec::HealthSpec;

impl Host {
    /// Begins a check, as a task of the current runtime, if one is due.
    pub(in crate::upstream) fn begin_check(
        self: &Arc<Self>,
        spec: &Arc<HealthSpec>,
        authority: &Authority,
        now: Instant,
    ) {
        if self.health.lock().begin(spec.every, now) {
            let (host, spec) = (Arc::clone(self), Arc::clone(spec));
            let authority = authority.clone();
            tokio::spawn(async move {
                let result = check(&host.connector, &spec, &authority).await;
                host.end_check(&result, &spec, Instant::now());
            });
        }
    }

    fn end_check(&self, result: &Result<(), CheckFailure>, spec: &HealthSpec, now: Instant) {
        let is_known = !matches!(result, Err(failure) if failure.is_local());
        let is_passed = result.is_ok();
        if is_known {
            self.metrics.health_check(is_passed);
        }
        let mut record = self.health.lock();
        let change = record.end(is_known.then_some(is_passed), spec);
        if is_passed {
            self.availability.end_connect_failure(&self.metrics, now);
        }
        if let Some(change) = change {
            let is_healthy = change == HealthChange::Healthy;
            self.availability.set_health(is_healthy, &self.metrics, now);
            drop(record);
            self.report_health(result);
        }
    }

    /// Counts the host as healthy, since it is checked no longer.
    pub(in crate::upstream) fn forget_health(&self, now: Instant) {
        let mut record = self.health.lock();
        if record.forget() {
            self.availability.set_health(true, &self.metrics, now);
        }
    }

    fn report_health(&self, result: &Result<(), CheckFailure>) {
        let (upstream, endpoint) = (self.metrics.upstream(), &**self.metrics.endpoint());
        let address = self.connector.address();
        match result {
            Ok(()) => {
                tracing::info!(upstream, endpoint, %address, "the endpoint is healthy again");
            }
            Err(failure) => {
                let error = failure as &dyn std::error::Error;
                tracing::warn!(upstream, endpoint, %address, error, "the endpoint is unhealthy");
            }
        }
    }
}
