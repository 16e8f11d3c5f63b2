//! Endpoints: requests to them, failures by reason, and connections.

use crate::telemetry::registry::{Counter, Counters, Gauge, handle_set, label_values};

handle_set! {
    /// One endpoint of an upstream. Its series last as long as it and its connections.
    EndpointMetrics(upstream, endpoint) keeps {
        /// The upstream's name.
        upstream,
        /// The endpoint's host and port, as the configuration writes it.
        endpoint,
    } {
        /// Requests to the endpoint.
        pub requests: Counter = counter("sluicegate_upstream_requests_total"),
        /// Failed requests.
        pub failures: Counters<EndpointFailure> = counters("sluicegate_upstream_failures_total"),
        /// Open connections.
        pub connections: Gauge = gauge("sluicegate_upstream_connections"),
        /// Hosts that its name resolves to.
        pub hosts: Gauge = gauge("sluicegate_upstream_hosts"),
        /// Failed lookups of its name.
        pub lookup_failures: Counter = counter("sluicegate_upstream_lookup_failures_total"),
        /// Hosts that are available.
        pub available: Gauge = gauge("sluicegate_upstream_hosts_available"),
        /// Ejections of hosts.
        pub ejections: Counters<EjectionReason> = counters("sluicegate_upstream_ejections_total"),
        health_checks: Counters<CheckResult> = counters("sluicegate_upstream_health_checks_total"),
        /// Requests that are sent elsewhere after they failed here.
        pub retries: Counters<RetryReason> = counters("sluicegate_upstream_retries_total"),
        /// Requests that are not sent elsewhere because the retry budget is spent.
        pub retries_denied: Counter = counter("sluicegate_upstream_retries_denied_total"),
        /// 1 if the endpoint drains.
        pub draining: Gauge = gauge("sluicegate_upstream_endpoint_draining"),
    }
}

label_values! {
    /// The reason for a failure of an endpoint: the `reason` label, and the `error` of the access log.
    #[derive(strum::EnumString)]
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
    /// Counts a health check.
    pub fn health_check(&self, is_healthy: bool) {
        self.health_checks.record(if is_healthy {
            CheckResult::Healthy
        } else {
            CheckResult::Unhealthy
        });
    }
}
