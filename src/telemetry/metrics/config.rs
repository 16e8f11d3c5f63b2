//! The configuration: which one runs, and how reloads went.

use parking_lot::Mutex;

use crate::telemetry::registry::{Counter, Gauge, Registry};

/// The configuration's history.
#[derive(Debug)]
pub struct ConfigMetrics {
    registry: Registry,
    succeeded: Counter,
    failed: Counter,
    last_successful: Gauge,
    last_success: Gauge,
    info: Mutex<Gauge>,
    certificates: Mutex<Vec<Gauge>>,
}

impl ConfigMetrics {
    /// Makes the handles, with the configuration that the process started with.
    ///
    /// `hash` names its content; `now` is in whole seconds since the Unix epoch.
    pub fn new(registry: &Registry, hash: &str, now: i64) -> Self {
        let metrics = Self {
            registry: registry.clone(),
            succeeded: registry.counter("sluicegate_config_reloads_total", &["success"]),
            failed: registry.counter("sluicegate_config_reloads_total", &["failure"]),
            last_successful: registry.gauge("sluicegate_config_last_reload_successful", &[]),
            last_success: registry.gauge(
                "sluicegate_config_last_reload_success_timestamp_seconds",
                &[],
            ),
            info: Mutex::new(registry.gauge("sluicegate_config_info", &[hash])),
            certificates: Mutex::default(),
        };
        metrics.runs(hash, now);
        metrics
    }

    /// Shows when the certificates in these files begin and end to be valid, in seconds since the
    /// Unix epoch.
    pub fn certificates(&self, periods: impl Iterator<Item = (String, [u64; 2])>) {
        let families = [
            "sluicegate_certificate_not_before_seconds",
            "sluicegate_certificate_not_after_seconds",
        ];
        let shown = periods.flat_map(|(file, period)| {
            [0, 1].map(|bound| {
                let gauge = self.registry.gauge(families[bound], &[&*file]);
                gauge.set(i64::try_from(period[bound]).unwrap_or(i64::MAX));
                gauge
            })
        });
        let shown = shown.collect();
        *self.certificates.lock() = shown;
    }

    /// Counts a reload that took effect.
    pub fn reloaded(&self, hash: &str, now: i64) {
        self.succeeded.increment();
        self.runs(hash, now);
    }

    /// Counts a reload that changed nothing because the new configuration was bad.
    pub fn failed(&self) {
        self.failed.increment();
        self.last_successful.set(0);
    }

    fn runs(&self, hash: &str, now: i64) {
        self.last_successful.set(1);
        self.last_success.set(now);
        let info = self.registry.gauge("sluicegate_config_info", &[hash]);
        info.set(1);
        *self.info.lock() = info;
    }
}
