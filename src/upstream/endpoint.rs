//! One address of an upstream with its connections and its state. It outlives reloads: a new
//! ruleset finds the endpoint by its [`EndpointSpec`].

mod state;

use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;

use super::attempt::{Attempt, AttemptOutcome};
use super::connector::Connector;
use super::pool::Pool;
use super::{ClusterTimeouts, EndpointSpec, OutboundRequest, UpstreamError, retry};
use crate::telemetry::metrics::EndpointMetrics;
use crate::telemetry::registry::Registry;
use state::EndpointState;

/// An endpoint and its pool.
#[derive(Debug)]
pub struct Endpoint {
    spec: EndpointSpec,
    connector: Connector,
    host_header: HeaderValue,
    pool: Arc<Pool>,
    metrics: Arc<EndpointMetrics>,
    state: EndpointState,
}

impl Endpoint {
    /// An endpoint of `upstream` without connections, to be used by `workers` runtimes.
    pub(super) fn new(
        spec: EndpointSpec,
        upstream: &Arc<str>,
        workers: usize,
        registry: &Registry,
    ) -> Self {
        let label = spec.authority.as_str();
        let metrics = Arc::new(EndpointMetrics::new(registry, upstream, label));
        Endpoint {
            host_header: HeaderValue::from_str(label)
                .expect("an authority has only characters that a field value may have"),
            connector: Connector::new(&spec),
            spec,
            pool: Arc::new(Pool::new(workers, &metrics)),
            metrics,
            state: EndpointState::new(),
        }
    }

    /// The Host of the endpoint itself.
    pub(super) fn host_header(&self) -> HeaderValue {
        self.host_header.clone()
    }

    /// Its host and port, as the configuration writes it.
    pub fn label(&self) -> &Arc<str> {
        self.metrics.endpoint()
    }

    /// Its identity.
    pub fn spec(&self) -> &EndpointSpec {
        &self.spec
    }

    pub(super) fn sweep(&self, idle: Duration) {
        self.pool.sweep(idle);
    }

    /// Sends a request, and waits for the head of the response. Counts it, and logs when the
    /// endpoint begins to fail or answers again.
    pub(super) async fn send(
        &self,
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
        &self,
        outbound: &mut OutboundRequest<'_>,
        timeouts: &ClusterTimeouts,
    ) -> Attempt {
        let OutboundRequest { worker, dscp, .. } = *outbound;
        if let Some(session) = self.pool.checkout(worker, dscp) {
            let attempt = session.send(outbound, timeouts).await;
            if !retry::is_retried_on_new_connection(&attempt) {
                return attempt;
            }
        }
        // Boxed: every request's future would have room for a handshake.
        let stream = Box::pin(self.connector.connect(timeouts.connect, dscp)).await;
        match stream {
            Ok(stream) => {
                let session = self.pool.open(worker, dscp, stream);
                session.send(outbound, timeouts).await
            }
            Err(kind) => Attempt {
                outcome: AttemptOutcome::Refused(UpstreamError::new(self.label(), kind)),
                may_retry: true,
            },
        }
    }

    fn record_response(&self) {
        if let Some(failures) = self.state.record_response() {
            let (upstream, endpoint) = (self.metrics.upstream(), &**self.label());
            tracing::info!(upstream, endpoint, failures, "the endpoint answers again");
        }
    }

    fn record_failure(&self, error: &UpstreamError) {
        let Some(reason) = error.reason() else {
            return;
        };
        self.metrics.failure(reason);
        if self.state.record_failure() {
            let (upstream, endpoint) = (self.metrics.upstream(), &**self.label());
            let (reason, error) = (reason.as_str(), error as &dyn std::error::Error);
            tracing::warn!(upstream, endpoint, reason, error, "the endpoint fails");
        }
    }
}
