//! One address of an endpoint, or its Unix socket, with its connections and its state: the unit that is balanced. It
//! lives as long as its endpoint has the address.

mod in_flight;
mod sessions;
mod state;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use http::uri::Scheme;

pub(super) use in_flight::InFlight;
use state::HostState;

use super::attempt::{Attempt, AttemptOutcome};
use super::connector::Connector;
use super::pool::Pool;
use super::{ClusterTimeouts, OutboundRequest, UpstreamError, UpstreamProtocol, retry};
use crate::net::dial::DialAddress;
use crate::telemetry::metrics::EndpointMetrics;

/// One address of an endpoint, and its pool.
#[derive(Debug)]
pub(super) struct Host {
    connector: Connector,
    pool: Pool,
    /// The host speaks HTTP/2: as configured, or as it has chosen last (ALPN).
    is_http2: AtomicBool,
    metrics: Arc<EndpointMetrics>,
    state: HostState,
}

impl Host {
    /// A host without connections, to be used by `workers` runtimes.
    pub(super) fn new(connector: Connector, workers: usize, metrics: Arc<EndpointMetrics>) -> Self {
        Host {
            is_http2: AtomicBool::new(connector.protocol() != UpstreamProtocol::Http1),
            connector,
            pool: Pool::new(workers),
            metrics,
            state: HostState::new(),
        }
    }

    pub(super) fn address(&self) -> &DialAddress {
        self.connector.address()
    }

    pub(super) fn state(&self) -> &HostState {
        &self.state
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
        if let Some(session) = self.checkout(worker, dscp, timeouts.connect) {
            let attempt = session.send(outbound, timeouts).await;
            if !retry::is_retried_on_new_connection(&attempt) {
                return attempt;
            }
        }
        let attempt = self.attempt_anew(outbound, timeouts).await;
        // A connection that others share may end before the request is on it.
        match attempt.outcome {
            AttemptOutcome::Unsent(_)
                if self.speaks_http2() && retry::is_retried_on_new_connection(&attempt) =>
            {
                self.attempt_anew(outbound, timeouts).await
            }
            _ => attempt,
        }
    }

    /// Sends a request over a new session.
    async fn attempt_anew(
        self: &Arc<Self>,
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
            Ok(session) => session.send(outbound, timeouts).await,
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
