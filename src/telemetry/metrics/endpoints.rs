//! Endpoints: requests to them, failures by reason, and connections.

use std::sync::Arc;

use strum::{IntoStaticStr, VariantArray};

use super::families::{
    ENDPOINT_AVAILABLE, ENDPOINT_CONNECTIONS, ENDPOINT_DRAINING, ENDPOINT_EJECTIONS,
    ENDPOINT_FAILURES, ENDPOINT_HEALTH_CHECKS, ENDPOINT_HOSTS, ENDPOINT_LOOKUP_FAILURES,
    ENDPOINT_REQUESTS, ENDPOINT_RETRIES, ENDPOINT_RETRIES_DENIED,
};
use crate::telemetry::registry::{Counter, CounterSet, Gauge, GaugeGuard, Registry};

/// One endpoint of an upstream. Its series last as long as it and its connections.
#[derive(Debug)]
pub struct EndpointMetrics {
    upstream: Arc<str>,
    endpoint: Arc<str>,
    requests: Counter,
    failures: CounterSet,
    connections: Gauge,
    hosts: Gauge,
    lookup_failures: Counter,
    available: Gauge,
    ejections: CounterSet,
    health_checks: CounterSet,
    retries: CounterSet,
    denied: Counter,
    draining: Gauge,
}

/// The reason for a failure of an endpoint: the `reason` label, and the `error` of the access log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum EndpointFailure {
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

impl EndpointFailure {
    /// The label's value.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// The reason for an ejection: the `reason` label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum EjectionReason {
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

impl EjectionReason {
    /// The label's value.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// The reason for a retry: the `reason` label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum RetryReason {
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

impl RetryReason {
    /// The label's value.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

impl EndpointMetrics {
    /// The handles of this endpoint of the upstream.
    pub fn new(registry: &Registry, upstream: &Arc<str>, endpoint: &str) -> Self {
        let reason = |index: usize| EndpointFailure::VARIANTS[index].as_str();
        let (labels, count) = ([&**upstream, endpoint], EndpointFailure::VARIANTS.len());
        let ejections = EjectionReason::VARIANTS.len();
        let ejection = |index: usize| EjectionReason::VARIANTS[index].as_str();
        let health = |index: usize| ["unhealthy", "healthy"][index];
        let retries = RetryReason::VARIANTS.len();
        let retry = |index: usize| RetryReason::VARIANTS[index].as_str();
        Self {
            upstream: Arc::clone(upstream),
            endpoint: endpoint.into(),
            requests: registry.counter(&ENDPOINT_REQUESTS, &labels),
            failures: registry.counter_set(&ENDPOINT_FAILURES, &labels, count, reason),
            connections: registry.gauge(&ENDPOINT_CONNECTIONS, &labels),
            hosts: registry.gauge(&ENDPOINT_HOSTS, &labels),
            lookup_failures: registry.counter(&ENDPOINT_LOOKUP_FAILURES, &labels),
            available: registry.gauge(&ENDPOINT_AVAILABLE, &labels),
            ejections: registry.counter_set(&ENDPOINT_EJECTIONS, &labels, ejections, ejection),
            health_checks: registry.counter_set(&ENDPOINT_HEALTH_CHECKS, &labels, 2, health),
            retries: registry.counter_set(&ENDPOINT_RETRIES, &labels, retries, retry),
            denied: registry.counter(&ENDPOINT_RETRIES_DENIED, &labels),
            draining: registry.gauge(&ENDPOINT_DRAINING, &labels),
        }
    }

    /// The upstream's name.
    pub fn upstream(&self) -> &str {
        &self.upstream
    }

    /// The endpoint's host and port, as the configuration writes it.
    pub fn endpoint(&self) -> &Arc<str> {
        &self.endpoint
    }

    /// Counts a request to the endpoint.
    pub fn request(&self) {
        self.requests.increment();
    }

    /// Counts a failed request.
    pub fn failure(&self, reason: EndpointFailure) {
        self.failures.increment(reason as usize);
    }

    /// Counts a connection as open until the guard is dropped.
    pub fn connection(&self) -> GaugeGuard {
        self.connections.hold(1)
    }

    /// Counts so many hosts until the guard is dropped.
    pub fn hosts(&self, count: usize) -> GaugeGuard {
        self.hosts.hold(count as u32)
    }

    /// Counts a lookup of the endpoint's name that failed.
    pub fn lookup_failure(&self) {
        self.lookup_failures.increment();
    }

    /// Counts a host as available until the guard is dropped.
    pub fn available(&self) -> GaugeGuard {
        self.available.hold(1)
    }

    /// Shows whether the endpoint drains.
    pub fn set_draining(&self, is_draining: bool) {
        self.draining.set(is_draining.into());
    }

    /// Counts an ejection.
    pub fn ejection(&self, reason: EjectionReason) {
        self.ejections.increment(reason as usize);
    }

    /// Counts a health check.
    pub fn health_check(&self, is_healthy: bool) {
        self.health_checks.increment(usize::from(is_healthy));
    }

    /// Counts a request that is sent elsewhere after it failed here.
    pub fn retry(&self, reason: RetryReason) {
        self.retries.increment(reason as usize);
    }

    /// Counts a request that is not sent elsewhere because the retry budget is spent.
    pub fn retry_denied(&self) {
        self.denied.increment();
    }
}
