//! One address of an endpoint, or its Unix socket, with its connections and its state: the unit
//! that is balanced. It lives as long as its endpoint has the address.

mod counts;
mod exchange;
mod fault_log;
mod health;
mod report;
mod sessions;

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use http::uri::Authority;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::connector::Connector;
use super::health::check;
use super::pending::{PendingQueue, UNBOUNDED};
use super::pool::Pool;
use super::spec::{HealthSpec, UpstreamProtocol};
use crate::telemetry::metrics::{EjectionReason, EndpointFailure, EndpointMetrics};
pub(super) use counts::HostEvidence;
use fault_log::FaultLog;
pub use health::HostState;
pub(super) use health::{Ejection, HostHealth, Readiness};

/// One address of an endpoint, and its pool.
#[derive(Debug)]
pub(super) struct Host {
    pub connector: Connector,
    pub pool: Pool,
    pub health: HostHealth,
    /// The metrics of its endpoint.
    pub metrics: Arc<EndpointMetrics>,
    log: FaultLog,
    /// The host speaks HTTP/2: as configured, or as it has chosen last (ALPN).
    is_http2: AtomicBool,
    /// Requests in flight. Sequentially consistent, as the [queue](PendingQueue) needs it.
    pub in_flight: AtomicUsize,
    /// The requests of the upstream that wait for a slot.
    pending: Arc<PendingQueue>,
}

/// An address of an endpoint.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Host")]
pub struct HostStatus {
    /// The address, with its port.
    pub address: String,
    /// Its availability.
    pub state: HostState,
    /// The reason for an ejection, why an address in use fails, or `health_check`.
    #[serde(skip_deserializing)]
    pub reason: Option<&'static str>,
    /// Its availability and the reason, in the words that follow "is".
    #[serde(default)]
    pub text: String,
    /// The rest of an ejection.
    pub for_s: Option<f64>,
    /// Requests in flight.
    pub in_flight: usize,
    /// Failures in a row.
    failures: u32,
}

impl Host {
    /// A host without connections, to be used by `workers` runtimes. Its slots go to the requests in
    /// `pending`.
    pub(super) fn new(
        connector: Connector,
        workers: usize,
        metrics: Arc<EndpointMetrics>,
        pending: Arc<PendingQueue>,
    ) -> Self {
        Host {
            is_http2: AtomicBool::new(connector.protocol != UpstreamProtocol::Http1),
            connector,
            pool: Pool::new(workers),
            health: HostHealth::new(workers, Arc::clone(&metrics)),
            metrics,
            log: FaultLog::new(),
            in_flight: AtomicUsize::new(0),
            pending,
        }
    }

    /// The state of the host at `now`.
    pub(super) fn status(&self, now: Instant) -> HostStatus {
        let (state, fault, left) = self.health.state(now);
        HostStatus {
            address: self.connector.address.to_string(),
            state,
            reason: match state {
                HostState::Unhealthy => Some("health_check"),
                _ => fault.map(EjectionReason::as_str),
            },
            text: state.text(fault),
            for_s: left.map(|left| left.as_secs_f64()),
            in_flight: self.in_flight(),
            failures: self.health.counts.failures_in_a_row(),
        }
    }

    /// The requests in flight.
    pub(super) fn in_flight(&self) -> usize {
        self.in_flight.load(SeqCst)
    }

    /// Returns true if fewer than `max` requests are in flight.
    pub(super) fn has_slot(&self, max: u32) -> bool {
        self.in_flight() < max as usize
    }

    /// Counts a response that the host did not finish.
    pub(super) fn record_broken_body(&self, reason: EndpointFailure) {
        self.metrics.failures.record(reason);
        self.health.counts.record_broken_body();
    }

    /// Closes connections that were unused for `idle`, and those beyond the bound. Must be called
    /// once a second.
    pub(super) fn sweep(&self, idle: Duration) {
        self.pool.sweep(idle);
        self.make_room();
    }

    /// Begins a health check, as a task of the current runtime, if one is due.
    pub(super) fn begin_check(
        self: &Arc<Self>,
        spec: &Arc<HealthSpec>,
        authority: &Authority,
        now: Instant,
    ) {
        if self.health.begin_check(spec.every, now) {
            let (host, spec) = (Arc::clone(self), Arc::clone(spec));
            let authority = authority.clone();
            tokio::spawn(async move {
                let failure = check(&host.connector, &spec, &authority).await.err();
                let is_known = !failure.as_ref().is_some_and(|failure| failure.is_local());
                let result = is_known.then_some(failure.is_none());
                if host.health.end_check(result, &spec, Instant::now()) {
                    host.report_health(failure.as_ref());
                }
            });
        }
    }

    /// Closes idle connections, so that with one for each request in flight there are no more than
    /// the bound allows.
    fn make_room(&self) {
        let max = self.pending.max();
        if max != UNBOUNDED {
            self.pool
                .trim((max as usize).saturating_sub(self.in_flight()));
        }
    }
}

/// A request in flight: its host counts it from its pick to the end of the response, when this is
/// dropped. If the host has a bound, this is one of its slots.
#[derive(Debug)]
pub(super) struct InFlight(Arc<Host>);

impl InFlight {
    /// Counts a request to `host`.
    pub(super) fn begin(host: &Arc<Host>) -> Self {
        host.in_flight.fetch_add(1, SeqCst);
        InFlight(Arc::clone(host))
    }

    /// Counts a request to `host`, if fewer than `max` are in flight.
    pub(super) fn begin_below(host: &Arc<Host>, max: u32) -> Option<Self> {
        let more = |requests| (requests < max as usize).then_some(requests + 1);
        let begun = host.in_flight.fetch_update(SeqCst, SeqCst, more);
        begun.is_ok().then(|| InFlight(Arc::clone(host)))
    }
}

impl Deref for InFlight {
    type Target = Host;

    fn deref(&self) -> &Host {
        &self.0
    }
}

/// Gives the slot to a request that waits for one.
impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, SeqCst);
        self.0.pending.offer(&self.0);
    }
}
