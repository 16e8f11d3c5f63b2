//! Endpoints: requests to them, failures by reason, and connections.

use std::sync::Arc;

use super::families::{
    ENDPOINT_AVAILABLE, ENDPOINT_CONNECTIONS, ENDPOINT_DRAINING, ENDPOINT_EJECTIONS,
    ENDPOINT_FAILURES, ENDPOINT_HEALTH_CHECKS, ENDPOINT_HOSTS, ENDPOINT_LOOKUP_FAILURES,
    ENDPOINT_REQUESTS, ENDPOINT_RETRIES, ENDPOINT_RETRIES_DENIED,
};
use crate::telemetry::registry::{Counter, Counters, Gauge, Registry, label_values};

/// One endpoint of an upstream. Its series last as long as it and its connections.
#[derive(Debug)]
pub struct EndpointMetrics {
    /// The upstream's name.
    pub upstream: Arc<str>,
    /// The endpoint's host and port, as the configuration writes it.
    pub endpoint: Arc<str>,
    /// Requests to the endpoint.
    pub requests: Counter,
    /// Failed requests.
    pub failures: Counters<EndpointFailure>,
    /// Open connections.
    pub connections: Gauge,
    /// Hosts that its name resolves to.
    pub hosts: Gauge,
    /// Failed lookups of its name.
    pub lookup_failures: Counter,
    /// Hosts that are available.
    pub available: Gauge,
    /// Ejections of hosts.
    pub ejections: Counters<EjectionReason>,
    health_checks: Counters<CheckResult>,
    /// Requests that are sent elsewhere after they failed here.
    pub retries: Counters<RetryReason>,
    /// Requests that are not sent elsewhere because the retry budget is spent.
    pub retries_denied: Counter,
    /// 1 if the endpoint drains.
    pub draining: Gauge,
}

label_values! {
    /// The reason for a failure of an endpoint: the `reason` label, and the `error` of the access log.
    EndpointFailure {
        /// The name does not resolve.
        Resolve,
        /// No connection: refused, unreachable.
        Connect,
        /// No TLS connection.
        Tls,
        /// No connection in time.
        ConnectTimeout,
        /// No HTTP/2 connection: the server does not speak it.
        Handshake,
        /// No free stream of HTTP/2 in time.
        NoStream,
        /// The connection closed before the head of the response.
        Closed,
        /// The stream was reset before the head of the response.
        Reset,
        /// The head of the response cannot be passed on.
        Invalid,
        /// No head of a response in time.
        ResponseTimeout,
        /// No head of a response to one attempt in time.
        AttemptTimeout,
        /// The time for the whole request was over.
        RequestTimeout,
        /// It answered no request, while others did.
        Stalled,
        /// All endpoints drain.
        Draining,
        /// The connection closed before the end of the response.
        BodyClosed,
        /// The stream was reset before the end of the response.
        BodyReset,
        /// The body of the response is not valid HTTP.
        BodyInvalid,
        /// The response stood still.
        BodyTimeout,
    }
}

label_values! {
    /// The reason for an ejection: the `reason` label.
    EjectionReason {
        /// It took no connection.
        ConnectFailure,
        /// Too many failures in a row.
        ConsecutiveFailures,
        /// Too large a part of its requests failed.
        FailureRate,
        /// It sent no response to anybody while others did.
        Stalled,
        /// The first request after an ejection failed.
        Probation,
    }
}

label_values! {
    /// The reason for a retry: the `reason` label.
    RetryReason {
        /// There was no connection.
        ConnectFailure,
        /// The host did not process the request.
        Refused,
        /// The connection broke, or the response was not valid.
        Reset,
        /// The response was late.
        Timeout,
        /// The response had a status that is tried again.
        Status,
        /// The host was stalled.
        Stalled,
    }
}

label_values! {
    /// The result of a health check: the `result` label.
    CheckResult {
        /// It failed.
        Unhealthy,
        /// It passed.
        Healthy,
    }
}

impl EndpointMetrics {
    /// The handles of this endpoint of the upstream.
    pub fn new(registry: &Registry, upstream: &Arc<str>, endpoint: &str) -> Self {
        let labels = [&**upstream, endpoint];
        Self {
            upstream: Arc::clone(upstream),
            endpoint: endpoint.into(),
            requests: registry.counter(&ENDPOINT_REQUESTS, &labels),
            failures: registry.counters(&ENDPOINT_FAILURES, &labels),
            connections: registry.gauge(&ENDPOINT_CONNECTIONS, &labels),
            hosts: registry.gauge(&ENDPOINT_HOSTS, &labels),
            lookup_failures: registry.counter(&ENDPOINT_LOOKUP_FAILURES, &labels),
            available: registry.gauge(&ENDPOINT_AVAILABLE, &labels),
            ejections: registry.counters(&ENDPOINT_EJECTIONS, &labels),
            health_checks: registry.counters(&ENDPOINT_HEALTH_CHECKS, &labels),
            retries: registry.counters(&ENDPOINT_RETRIES, &labels),
            retries_denied: registry.counter(&ENDPOINT_RETRIES_DENIED, &labels),
            draining: registry.gauge(&ENDPOINT_DRAINING, &labels),
        }
    }

    /// Counts a health check.
    pub fn health_check(&self, is_healthy: bool) {
        self.health_checks.record(if is_healthy {
            CheckResult::Healthy
        } else {
            CheckResult::Unhealthy
        });
    }
}
