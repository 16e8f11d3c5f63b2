//! Every metric the proxy exports, and the handles that other layers keep.
//!
//! Handles are made when a ruleset compiles, and their series exist from then on with 0. In large
//! configurations, series of routes and decisions are rendered once they have counted, so that
//! 10,000 routes are not a million series. No lookup by name happens on a request. Label values come from the configuration or from a closed set, never from
//! the wire.

mod admin;
mod clients;
mod clock;
mod config;
mod endpoints;
mod families;
mod jwt;
mod limits;
mod listener;
mod pending;
mod recent;
mod requests;
mod snapshots;
mod spans;
mod store;

pub use admin::{AdminMetrics, AdminRefusal, AdminStream};
pub use clients::{ClientMetrics, ClientResult};
pub use clock::ClockMetrics;
pub use config::ConfigMetrics;
pub use endpoints::{EjectionReason, EndpointFailure, EndpointMetrics, RetryReason};
pub use jwt::{JwtMetrics, TokenResult};
pub use limits::{
    KeyAction, LimitDecision, LimitMetrics, PolicyInfo, PolicyMetrics, ReadCount,
    SettlementMetrics, SettlementResult, SteeringMetrics, TrackedKeys, TrackingMetrics,
    banned_keys, bans, buckets, evictions, granted_keys, held, held_body_bytes, in_use,
    settled_units, sync_keys, sync_untracked, unrecorded,
};
pub use listener::{BadRequest, ConnectionRefusal, ListenerMetrics};
pub use pending::{PendingMetrics, PendingRefusal};
pub use recent::{RecentCount, RecentCounts, RecentEvent};
pub use requests::{
    RequestMetrics, RequestOutcome, RouteMetrics, StatusClass, UpstreamMetrics, UpstreamRefusal,
};
pub use snapshots::SnapshotMetrics;
pub use spans::{SpanLoss, SpanMetrics};
pub use store::{RoundResult, StoreMetrics, SyncMetrics};

use super::logging::ProcessLog;
pub use super::registry::DurationCounts;
use super::registry::{Counter, Gauge, Observer, Registry};

/// Returns the counter of access log lines that were lost.
pub(super) fn access_log_dropped(registry: &Registry) -> Counter {
    registry.counter("sluicegate_access_log_dropped_lines_total", &[])
}

/// Shows the lines that the process's own log has lost, as long as the observer is kept.
pub fn log_dropped(registry: &Registry, log: &ProcessLog) -> Observer {
    let log = log.clone();
    registry.observe("sluicegate_log_dropped_lines_total", &[], move || {
        log.dropped_lines() as f64
    })
}

/// Makes the counter of a route's denied requests.
pub fn access_denied(registry: &Registry, route: &str) -> Counter {
    registry.counter("sluicegate_access_denied_total", &[route])
}

/// Shows the share of connections that are in use, as long as the observer is kept.
pub fn connection_pressure(
    registry: &Registry,
    share: impl Fn() -> f64 + Send + Sync + 'static,
) -> Observer {
    registry.observe("sluicegate_connection_pressure_ratio", &[], share)
}

/// Says which program runs; keep what it returns for the life of the process.
pub fn build_info(registry: &Registry, version: &str, revision: &str) -> Gauge {
    let gauge = registry.gauge("sluicegate_build_info", &[version, revision]);
    gauge.set(1);
    gauge
}

#[cfg(test)]
mod tests;
