//! One address of an upstream with its connections. It outlives reloads: a new ruleset finds the
//! endpoint by its [`EndpointSpec`].

use std::future::poll_fn;
use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{HeaderValue, StatusCode};

use super::Dscp;
use super::body::UpstreamBody;
use super::connect::{Stream, Target};
use super::failure_log::FailureLog;
use super::pool::{Lease, PooledConnection, Pools};
use super::{EndpointSpec, Error, OutboundRequest, Timeouts};
use crate::http::message::Response;
use crate::telemetry::metrics::EndpointMetrics;

/// An endpoint and its pool.
#[derive(Debug)]
pub struct Endpoint {
    spec: EndpointSpec,
    target: Target,
    host_header: HeaderValue,
    pools: Pools,
    metrics: Arc<EndpointMetrics>,
    failures: FailureLog,
}

/// The reason why there is no response.
#[derive(Debug)]
pub(super) struct SendError {
    pub error: Error,
    /// The upstream received nothing of the request, which is unchanged: another endpoint may be
    /// tried.
    pub unsent: bool,
}

impl Endpoint {
    /// An endpoint without connections, to be used by `workers` runtimes.
    pub(super) fn new(spec: EndpointSpec, workers: usize, metrics: EndpointMetrics) -> Self {
        let metrics = Arc::new(metrics);
        let authority = &spec.authority;
        let default_port = if spec.tls.is_some() { 443 } else { 80 };
        Endpoint {
            host_header: HeaderValue::from_str(authority.as_str())
                .expect("an authority has only characters that a field value may have"),
            target: Target {
                host: authority.host().trim_matches(['[', ']']).to_owned(),
                port: authority.port_u16().unwrap_or(default_port),
                tls: spec.tls.as_ref().map(|tls| tls.connector()),
                label: authority.to_string(),
            },
            spec,
            pools: Pools::new(workers, &metrics),
            metrics,
            failures: FailureLog::new(),
        }
    }

    /// The Host of the endpoint itself.
    pub(super) fn host_header(&self) -> HeaderValue {
        self.host_header.clone()
    }

    /// Its host and port, as the configuration writes it.
    pub fn label(&self) -> &str {
        &self.target.label
    }

    /// Its identity.
    pub fn spec(&self) -> &EndpointSpec {
        &self.spec
    }

    pub(super) fn sweep(&self, idle: Duration) {
        self.pools.sweep(idle);
    }

    /// Sends a request, and waits for the head of the response. Counts it, and logs when the
    /// endpoint begins to fail or answers again.
    pub(super) async fn send(
        &self,
        outbound: &mut OutboundRequest<'_>,
        timeouts: &Timeouts,
    ) -> Result<Response<UpstreamBody>, SendError> {
        self.metrics.request();
        let sent = self.try_send(outbound, timeouts).await;
        match &sent {
            Ok(_) => self.answered(),
            Err(failure) => self.failed(&failure.error),
        }
        sent
    }

    fn answered(&self) {
        if let Some(failures) = self.failures.record_answer() {
            let (upstream, endpoint) = (self.metrics.upstream(), self.label());
            tracing::info!(upstream, endpoint, failures, "the endpoint answers again");
        }
    }

    fn failed(&self, error: &Error) {
        let Some(reason) = error.reason() else {
            return;
        };
        self.metrics.failure(reason);
        if self.failures.record_failure() {
            let (upstream, endpoint) = (self.metrics.upstream(), self.label());
            let (reason, error) = (reason.as_str(), error as &dyn std::error::Error);
            tracing::warn!(upstream, endpoint, reason, error, "the endpoint fails");
        }
    }

    /// Sends a request, and waits for the head of the response.
    ///
    /// The upstream may close a pooled connection just as the request is written. A request of
    /// which nothing was written, or that is idempotent (RFC 9110 section 9.2.2) and has no body,
    /// is sent again. The retry uses a new connection, since other pooled ones may be closed as
    /// well.
    async fn try_send(
        &self,
        outbound: &mut OutboundRequest<'_>,
        timeouts: &Timeouts,
    ) -> Result<Response<UpstreamBody>, SendError> {
        let OutboundRequest { worker, dscp, .. } = *outbound;
        let marked = dscp.map(|dscp| self.pools.by_dscp(dscp));
        let pool = marked.as_ref().unwrap_or(self.pools.plain());
        let request = &outbound.request;
        let is_repeatable = request.method().is_idempotent() && request.body().is_empty();
        if let Some(lease) = pool.take(worker) {
            match self.exchange(lease, outbound, timeouts).await {
                Err(SendError {
                    error: Error::Closed { .. },
                    unsent,
                }) if unsent || is_repeatable => {}
                done => return done,
            }
        }
        let lease = pool.open(worker, self.connect(timeouts, dscp).await?);
        self.exchange(lease, outbound, timeouts).await
    }

    async fn connect(&self, timeouts: &Timeouts, dscp: Option<Dscp>) -> Result<Stream, SendError> {
        // Boxed: every request's future would have room for a handshake.
        let stream = Box::pin(self.target.connect(timeouts.connect, dscp)).await;
        stream.map_err(|error| SendError {
            error,
            unsent: true,
        })
    }

    async fn exchange(
        &self,
        mut lease: Lease,
        outbound: &mut OutboundRequest<'_>,
        timeouts: &Timeouts,
    ) -> Result<Response<UpstreamBody>, SendError> {
        let (request, interim) = (&mut *outbound.request, outbound.informational);
        let PooledConnection {
            http, idle_timer, ..
        } = &mut *lease.connection;
        http.begin(request);
        idle_timer.reset_to(timeouts.response);
        let mut written = http.written();
        let response = |cx: &mut Context<'_>| {
            loop {
                match http.poll_response(cx) {
                    Poll::Ready(Ok(response)) if is_informational(response.status()) => {
                        interim.inspect(|interim| interim.send(response));
                    }
                    Poll::Ready(response) => return Poll::Ready(Some(response)),
                    Poll::Pending => break,
                }
            }
            // The time-out starts at the end of the request, or when the upstream takes no more of
            // it. The client's own time-outs bound the rest.
            let before = mem::replace(&mut written, http.written());
            if before != written || http.waits_for_client() {
                idle_timer.reset();
            }
            match http.waits_for_client() {
                true => Poll::Pending,
                false => idle_timer.poll_expired(cx).map(|()| None),
            }
        };
        let failure = match poll_fn(response).await {
            Some(Ok(response)) => {
                let is_tunnel = response.status() == StatusCode::SWITCHING_PROTOCOLS;
                return Ok(response.map(|()| match is_tunnel {
                    true => UpstreamBody::tunnel(lease, timeouts),
                    false => UpstreamBody::new(lease, timeouts.idle),
                }));
            }
            Some(Err(failure)) => failure,
            None => {
                return Err(SendError {
                    error: Error::ResponseTimeout {
                        endpoint: self.target.label.clone(),
                        after: timeouts.response,
                    },
                    unsent: false,
                });
            }
        };
        let unsent = http.take_unsent().map(|body| *request.body_mut() = body);
        if let Some(tunnel) = http.take_tunnel() {
            *request.body_mut() = tunnel;
        }
        Err(SendError {
            error: Error::exchange(&self.target.label, failure),
            unsent: unsent.is_some(),
        })
    }
}

/// Returns true if another response follows (RFC 9110 section 15.2), as after all 1xx but 101.
fn is_informational(status: StatusCode) -> bool {
    status.is_informational() && status != StatusCode::SWITCHING_PROTOCOLS
}
