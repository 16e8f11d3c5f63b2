//! One address of an endpoint with its connections and its state: the unit that is balanced. It
//! lives as long as its endpoint has the address.

mod in_flight;
mod state;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

pub(super) use in_flight::InFlight;
use state::HostState;

use super::attempt::{Attempt, AttemptOutcome};
use super::connector::Connector;
use super::pool::Pool;
use super::session::{Http1Session, PooledConnection, Session};
use super::{ClusterTimeouts, OutboundRequest, UpstreamError, retry};
use crate::telemetry::metrics::EndpointMetrics;

/// One address of an endpoint, and its pool.
#[derive(Debug)]
pub(super) struct Host {
    connector: Connector,
    pool: Pool,
    metrics: Arc<EndpointMetrics>,
    state: HostState,
}

impl Host {
    /// A host without connections, to be used by `workers` runtimes.
    pub(super) fn new(connector: Connector, workers: usize, metrics: Arc<EndpointMetrics>) -> Self {
        Host {
            connector,
            pool: Pool::new(workers),
            metrics,
            state: HostState::new(),
        }
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.connector.address()
    }

    pub(super) fn state(&self) -> &HostState {
        &self.state
    }

    pub(super) fn pool(&self) -> &Pool {
        &self.pool
    }

    /// The metrics of its endpoint.
    pub(super) fn metrics(&self) -> &EndpointMetrics {
        &self.metrics
    }

    /// Closes connections that were unused for `idle`. Must be called once a second.
    pub(super) fn sweep(&self, idle: Duration) {
        self.pool.sweep(idle);
    }

    /// Closes idle connections, and the others after their requests: the endpoint no longer has the
    /// address.
    pub(super) fn retire(&self) {
        self.pool.close();
    }

    /// Sends a request, and waits for the head of the response. Counts it, and logs when the host
    /// begins to fail or answers again.
    pub(super) async fn send(
        self: &Arc<Self>,
        outbound: &mut OutboundRequest<'_>,
        timeouts: &ClusterTimeouts,
    ) -> Attempt {
        self.metrics.request();
        let attempt = self.attempt(outbound, timeouts).await;
        match attempt.error() {
            None => self.record_response(),
            Some(error) => self.record_failure(error),
        }
        attempt
    }

    /// Sends a request over a kept session, or else over a new one.
    async fn attempt(
        self: &Arc<Self>,
        outbound: &mut OutboundRequest<'_>,
        timeouts: &ClusterTimeouts,
    ) -> Attempt {
        let OutboundRequest { worker, dscp, .. } = *outbound;
        if let Some(connection) = self.pool.checkout(worker, dscp) {
            let session = session(InFlight::begin(self), worker, connection);
            let attempt = session.send(outbound, timeouts).await;
            if !retry::is_retried_on_new_connection(&attempt) {
                return attempt;
            }
        }
        let in_flight = InFlight::begin(self);
        // Boxed: every request's future would have room for a handshake.
        let stream = Box::pin(self.connector.connect(timeouts.connect, dscp)).await;
        match stream {
            Ok(stream) => {
                let connection = PooledConnection::new(stream, dscp, self.metrics.connection());
                let session = session(in_flight, worker, Box::new(connection));
                session.send(outbound, timeouts).await
            }
            Err(kind) => Attempt {
                outcome: AttemptOutcome::Refused(UpstreamError::new(self.metrics.endpoint(), kind)),
                may_retry: true,
            },
        }
    }

    fn record_response(&self) {
        if let Some(failures) = self.state.record_response() {
            let (upstream, endpoint) = (self.metrics.upstream(), &**self.metrics.endpoint());
            let address = self.connector.address();
            tracing::info!(upstream, endpoint, %address, failures, "the endpoint answers again");
        }
    }

    fn record_failure(&self, error: &UpstreamError) {
        let Some(reason) = error.reason() else {
            return;
        };
        self.metrics.failure(reason);
        if self.state.record_failure() {
            let (upstream, endpoint) = (self.metrics.upstream(), &**self.metrics.endpoint());
            let address = self.connector.address();
            let (reason, error) = (reason.as_str(), error as &dyn std::error::Error);
            tracing::warn!(upstream, endpoint, %address, reason, error, "the endpoint fails");
        }
    }
}

fn session(host: InFlight, worker: usize, connection: Box<PooledConnection>) -> Session {
    Session::Http1(Http1Session {
        connection,
        host,
        worker,
    })
}
