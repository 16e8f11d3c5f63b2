//! One address of an endpoint, or its Unix socket, with its connections and its state: the unit
//! that is balanced. It lives as long as its endpoint has the address.

mod availability;
mod counts;
mod health;
mod in_flight;
mod report;
mod sessions;
mod state;

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use availability::Availability;
pub(super) use availability::Readiness;
use counts::HostCounts;
use http::uri::Scheme;
pub(super) use in_flight::InFlight;
use parking_lot::Mutex;
use state::HostState;
use tokio::time::{Sleep, sleep_until};

use super::attempt::{Attempt, AttemptOutcome};
use super::connector::Connector;
use super::health::HealthRecord;
use super::pending::PendingQueue;
use super::pool::Pool;
use super::{
    ClusterTimeouts, OutboundRequest, RetrySpec, UpstreamError, UpstreamErrorKind,
    UpstreamProtocol, retry,
};
use crate::net::dial::DialAddress;
use crate::telemetry::metrics::EndpointMetrics;

/// The most new connections on which a request is refused, while the host answers others.
const MAX_REFUSALS: u32 = 8;

/// One address of an endpoint, and its pool.
#[derive(Debug)]
pub(super) struct Host {
    connector: Connector,
    pool: Pool,
    /// The host speaks HTTP/2: as configured, or as it has chosen last (ALPN).
    is_http2: AtomicBool,
    metrics: Arc<EndpointMetrics>,
    state: HostState,
    counts: HostCounts,
    availability: Availability,
    health: Mutex<HealthRecord>,
    /// The requests of the upstream that wait for a slot.
    pending: Arc<PendingQueue>,
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
            is_http2: AtomicBool::new(connector.protocol() != UpstreamProtocol::Http1),
            connector,
            pool: Pool::new(workers),
            state: HostState::new(),
            counts: HostCounts::default(),
            availability: Availability::new(workers, &metrics),
            health: Mutex::new(HealthRecord::new()),
            metrics,
            pending,
        }
    }

    pub(super) fn address(&self) -> &DialAddress {
        self.connector.address()
    }

    pub(super) fn state(&self) -> &HostState {
        &self.state
    }

    pub(super) fn availability(&self) -> &Availability {
        &self.availability
    }

    pub(super) fn pool(&self) -> &Pool {
        &self.pool
    }

    /// The scheme of requests.
    pub(super) fn scheme(&self) -> Scheme {
        self.connector.scheme()
    }

    /// The metrics of its endpoint.
    pub(super) fn metrics(&self) -> &EndpointMetrics {
        &self.metrics
    }

    /// Closes connections that were unused for `idle`, and those beyond the bound. Must be called
    /// once a second.
    pub(super) fn sweep(&self, idle: Duration) {
        self.pool.sweep(idle);
        self.make_room();
    }

    /// Closes half of the idle connections, which give way to new ones.
    pub(super) fn give_way(&self) {
        self.pool.trim(self.pool.idle() / 2);
    }

    /// Closes idle connections, and the others after their requests: the endpoint no longer has the
    /// address.
    pub(super) fn retire(&self) {
        self.pool.close();
    }

    /// Sends a request, and waits for the head of the response, or until the time for the attempt is
    /// over or the host stalls. Counts it.
    pub(super) async fn send(
        self: &Arc<Self>,
        in_flight: InFlight,
        outbound: &mut OutboundRequest<'_>,
        timeouts: &ClusterTimeouts,
        retries: &RetrySpec,
    ) -> Attempt {
        self.metrics.request();
        let waiting = self.counts.begin();
        let (worker, may_move) = (outbound.worker, outbound.may_be_moved(retries));
        let limit = outbound.limit(timeouts);
        let mut limit = limit.map(|(at, kind)| (Box::pin(sleep_until(at)), kind));
        outbound.is_owed = false;
        let mut attempt = tokio::select! {
            biased;
            attempt = self.attempt(in_flight, outbound, timeouts) => attempt,
            () = self.availability.stalled(worker), if may_move => {
                let outcome = AttemptOutcome::Stalled(self.error(UpstreamErrorKind::Stalled));
                Attempt::new(outcome, true, None)
            }
            () = elapsed(&mut limit) => {
                let late = limit.expect("a time has elapsed").1;
                let is_last = matches!(late, UpstreamErrorKind::Deadline(_));
                let may_retry = !is_last && retry::is_repeatable(outbound.request);
                Attempt::new(AttemptOutcome::TimedOut(self.error(late)), may_retry, None)
            }
        };
        attempt.is_owed = outbound.is_owed;
        waiting.end(attempt.evidence(), attempt.error().is_none());
        attempt
    }

    fn error(&self, kind: UpstreamErrorKind) -> UpstreamError {
        UpstreamError::new(self.metrics.endpoint(), kind)
    }

    /// Sends a request over a kept session, or else over a new one.
    async fn attempt(
        self: &Arc<Self>,
        mut in_flight: InFlight,
        outbound: &mut OutboundRequest<'_>,
        timeouts: &ClusterTimeouts,
    ) -> Attempt {
        let OutboundRequest { worker, dscp, .. } = *outbound;
        if let Some(opened) = self.checkout(worker, dscp, timeouts.connect) {
            let session = opened.session(in_flight, worker);
            let mut attempt = session.send(outbound, timeouts).await;
            if !retry::is_retried_on_new_connection(&attempt) || !outbound.restore() {
                return attempt;
            }
            match attempt.in_flight.take() {
                Some(still) => in_flight = still,
                None => return attempt,
            }
        }
        // Boxed: most requests go over a kept session.
        Box::pin(self.attempt_on_new_sessions(in_flight, outbound, timeouts)).await
    }

    /// Sends a request over a new session; again over others if they end before the host takes it.
    async fn attempt_on_new_sessions(
        self: &Arc<Self>,
        in_flight: InFlight,
        outbound: &mut OutboundRequest<'_>,
        timeouts: &ClusterTimeouts,
    ) -> Attempt {
        let mut heads = self.counts.heads();
        let mut attempt = self.attempt_anew(in_flight, outbound, timeouts).await;
        // A connection that others share may end before the host takes the request, and so may the
        // next one, of a host that takes few requests on each.
        for round in 0..MAX_REFUSALS {
            let is_answering = self.counts.heads() != heads;
            if !self.has_refused(&attempt) || !(round == 0 || is_answering) || !outbound.restore() {
                break;
            }
            let Some(in_flight) = attempt.in_flight.take() else {
                break;
            };
            heads = self.counts.heads();
            attempt = self.attempt_anew(in_flight, outbound, timeouts).await;
        }
        attempt
    }

    /// Returns true if a connection of HTTP/2 ended, and the request was not processed.
    fn has_refused(&self, attempt: &Attempt) -> bool {
        let is_unprocessed = matches!(
            attempt.outcome,
            AttemptOutcome::Unsent(_) | AttemptOutcome::Unprocessed(_)
        );
        is_unprocessed && self.speaks_http2() && retry::is_retried_on_new_connection(attempt)
    }

    /// Sends a request over a new session.
    async fn attempt_anew(
        self: &Arc<Self>,
        in_flight: InFlight,
        outbound: &mut OutboundRequest<'_>,
        timeouts: &ClusterTimeouts,
    ) -> Attempt {
        let OutboundRequest {
            worker,
            dscp,
            client,
            ..
        } = *outbound;
        // Boxed: every request's future would have room for a handshake.
        match Box::pin(self.open(worker, dscp, client, timeouts.connect)).await {
            Ok(opened) => {
                let session = opened.session(in_flight, worker);
                session.send(outbound, timeouts).await
            }
            Err(kind) => Attempt::new(
                AttemptOutcome::Refused(self.error(kind)),
                true,
                Some(in_flight),
            ),
        }
    }
}

/// Waits for the end of `limit`, if there is one.
async fn elapsed(limit: &mut Option<(Pin<Box<Sleep>>, UpstreamErrorKind)>) {
    match limit {
        Some((sleep, _)) => sleep.as_mut().await,
        None => std::future::pending().await,
    }
}
