//! Requests: by status and method, by route, by upstream.

use std::sync::OnceLock;
use std::time::Duration;

use http::{Method, StatusCode};

use crate::telemetry::registry::{
    Counter, Counters, Histogram, Registry, handle_set, label_values,
};

/// Requests by status code and method.
#[derive(Debug)]
pub struct RequestMetrics {
    registry: Registry,
    counters: Box<[OnceLock<Counter>]>,
    /// Requests whose code has panicked.
    pub panics: Counter,
}

/// Method label values; the last stands for every method that is not listed.
const METHODS: [&str; 10] = [
    "GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH", "OTHER",
];
const CODES: std::ops::Range<u16> = 100..600;

impl RequestMetrics {
    /// Makes the table of counters; series appear as they first count.
    pub fn new(registry: &Registry) -> Self {
        let cells = (CODES.len() + 1) * METHODS.len();
        let counters = std::iter::repeat_with(OnceLock::new).take(cells).collect();
        Self {
            registry: registry.clone(),
            counters,
            panics: registry.counter("sluicegate_http_request_panics_total", &[]),
        }
    }

    /// Counts one answered request. Codes outside 100 to 599 count as `other`.
    pub fn record(&self, method: &Method, status: StatusCode) {
        let column = method_index(method);
        let row = usize::from(status.as_u16() - CODES.start).min(CODES.len());
        let cell = &self.counters[row * METHODS.len() + column];
        cell.get_or_init(|| {
            let code = if row < CODES.len() {
                status.as_str()
            } else {
                "other"
            };
            self.registry
                .counter("sluicegate_http_requests_total", &[code, METHODS[column]])
        })
        .increment();
    }
}

fn method_index(method: &Method) -> usize {
    match *method {
        Method::GET => 0,
        Method::HEAD => 1,
        Method::POST => 2,
        Method::PUT => 3,
        Method::DELETE => 4,
        Method::CONNECT => 5,
        Method::OPTIONS => 6,
        Method::TRACE => 7,
        Method::PATCH => 8,
        _ => 9,
    }
}

handle_set! {
    /// One route's requests: by status class, and how long they took. Handles of the same name count
    /// together.
    RouteMetrics(route) {
        /// Answered requests.
        pub classes: Counters<StatusClass> = counters("sluicegate_route_requests_total"),
        /// What became of them.
        pub outcomes: Counters<RequestOutcome> = counters("sluicegate_route_outcomes_total"),
        /// The time that they took.
        pub duration: Histogram = histogram("sluicegate_http_request_duration_seconds"),
    }
}

label_values! {
    /// What became of a request: the `outcome` label.
    RequestOutcome {
        /// It passed within all quotas, or without a limit.
        Passed,
        /// It passed beyond a quota: in shadow, with a tag, or at a lower priority.
        Beyond,
        /// The proxy refused it for another reason: access, no route, or a wrong request.
        Denied,
        /// A limit refused it.
        Limited,
        /// A store did not answer, and it passed or was refused without a decision.
        Undecided,
        /// It failed with a status of 500 and above.
        Failed,
    }
}

label_values! {
    /// The class of a response's status: the `class` label.
    StatusClass {
        /// 100 to 199.
        #[strum(serialize = "1xx")]
        Informational,
        /// 200 to 299.
        #[strum(serialize = "2xx")]
        Success,
        /// 300 to 399.
        #[strum(serialize = "3xx")]
        Redirection,
        /// 400 to 499.
        #[strum(serialize = "4xx")]
        ClientError,
        /// 500 and above.
        #[strum(serialize = "5xx")]
        ServerError,
    }
}

impl StatusClass {
    /// Returns the class of a status. Codes above 599 count as `5xx`.
    fn of(status: StatusCode) -> Self {
        match status.as_u16() {
            ..200 => Self::Informational,
            200..300 => Self::Success,
            300..400 => Self::Redirection,
            400..500 => Self::ClientError,
            500.. => Self::ServerError,
        }
    }
}

impl RouteMetrics {
    /// Counts one answered request. Codes above 599 count as `5xx`.
    pub fn record(&self, status: StatusCode, outcome: RequestOutcome, elapsed: Duration) {
        self.classes.record(StatusClass::of(status));
        self.outcomes.record(outcome);
        self.duration.record(elapsed);
    }
}

handle_set! {
    /// One upstream's responses, how long they took, and the requests that were not sent to it.
    UpstreamMetrics(upstream) {
        /// Its responses.
        pub responses: Counters<StatusClass> = counters("sluicegate_upstream_responses_total"),
        /// Requests without a response.
        pub unanswered: Counter = counter("sluicegate_upstream_responses_total", "none"),
        /// The time until their heads.
        pub duration: Histogram = histogram("sluicegate_upstream_request_duration_seconds"),
        /// Requests that are not sent.
        pub refused: Counters<UpstreamRefusal> = counters("sluicegate_upstream_refused_total"),
    }
}

label_values! {
    /// The reason why the proxy sends a request to no endpoint, for lack of its own resources: the
    /// `reason` label, and the `error` of the access log.
    UpstreamRefusal {
        /// The client has its share of the requests in flight.
        ClientShare,
        /// The upstream has its share of them.
        UpstreamShare,
        /// As many are in flight as may be.
        Total,
        /// The machine has no file, memory or port left for a connection.
        Shortage,
    }
}

impl UpstreamMetrics {
    /// Counts one response.
    pub fn record(&self, status: StatusCode, elapsed: Duration) {
        self.responses.record(StatusClass::of(status));
        self.duration.record(elapsed);
    }
}
