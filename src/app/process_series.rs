//! The metric series of the process itself.

use std::sync::Arc;

use crate::http::body::held_bytes;
use crate::net::file_budget;
use crate::proxy::Gateway;
use crate::server::Server;
use crate::telemetry::logging::ProcessLog;
use crate::telemetry::metrics;
use crate::telemetry::process;
use crate::telemetry::registry::{Gauge, Observer, Registry};

pub(super) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The commit that this was built from, where the build said so.
pub(super) const REVISION: &str = match option_env!("SLUICEGATE_REVISION") {
    Some(revision) => revision,
    None => "unknown",
};

/// The series of the process itself, which are shown as long as this lives.
pub(super) type ProcessSeries = (Observer, Observer, Gauge, Observer, Vec<Observer>);

pub(super) fn register(
    registry: &Registry,
    server: &Server,
    gateway: &Arc<Gateway>,
    log: &ProcessLog,
) -> ProcessSeries {
    let (connections, gateway) = (server.bounds(), Arc::clone(gateway));
    let share = move || {
        let requests = &gateway.upstream_shares;
        let clients = connections.open() as f64 / connections.max() as f64;
        let upstreams = requests.in_flight() as f64 / requests.max() as f64;
        if file_budget::UPSTREAMS.shortage().is_some() {
            1.0
        } else {
            clients.max(upstreams)
        }
    };
    (
        metrics::connection_pressure(registry, share),
        metrics::held_body_bytes(registry, Box::new(held_bytes)),
        metrics::build_info(registry, VERSION, REVISION),
        metrics::log_dropped(registry, log),
        process::register(registry),
    )
}
