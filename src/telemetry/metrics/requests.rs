//! Requests: by status and method, by route, by upstream.

use std::{sync::OnceLock, time::Duration};

use http::{Method, StatusCode};
use strum::{IntoStaticStr, VariantArray};

use super::families::{
    HTTP_DURATION, HTTP_PANICS, HTTP_REQUESTS, ROUTE_REQUESTS, UPSTREAM_DURATION, UPSTREAM_REFUSED,
    UPSTREAM_RESPONSES,
};
use crate::telemetry::registry::{Counter, CounterSet, DurationCounts, Histogram, Registry};

/// Requests by status code and method.
#[derive(Debug)]
pub struct RequestMetrics {
    registry: Registry,
    counters: Box<[OnceLock<Counter>]>,
    panics: Counter,
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
            panics: registry.counter(&HTTP_PANICS, &[]),
        }
    }

    /// Counts one request whose code has panicked.
    pub fn panicked(&self) {
        self.panics.increment();
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
                .counter(&HTTP_REQUESTS, &[code, METHODS[column]])
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

/// One route's requests: by status class, and how long they took. Handles of the same name count
/// together.
#[derive(Debug)]
pub struct RouteMetrics {
    classes: CounterSet,
    duration: Histogram,
}

const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

impl RouteMetrics {
    /// Makes the handles of the route with this name.
    pub fn new(registry: &Registry, route: &str) -> Self {
        let class = |index| CLASSES[index];
        Self {
            classes: registry.counter_set(&ROUTE_REQUESTS, &[route], CLASSES.len(), class),
            duration: registry.histogram(&HTTP_DURATION, &[route]),
        }
    }

    /// Counts one answered request. Codes above 599 count as `5xx`.
    pub fn record(&self, status: StatusCode, elapsed: Duration) {
        self.classes.increment(class_index(status));
        self.duration.record(elapsed);
    }

    /// How many there were.
    pub fn requests(&self) -> u64 {
        (0..CLASSES.len())
            .map(|class| self.classes.get(class))
            .sum()
    }

    /// How many had a status of 500 and above.
    pub fn errors(&self) -> u64 {
        self.classes.get(CLASSES.len() - 1)
    }

    /// How long they took.
    pub fn durations(&self) -> DurationCounts {
        self.duration.counts()
    }
}

/// One upstream's responses, how long they took, and the requests that were not sent to it.
#[derive(Debug)]
pub struct UpstreamMetrics {
    /// The last counts the requests without a response.
    responses: CounterSet,
    duration: Histogram,
    refused: CounterSet,
}

/// The reason why the proxy sends a request to no endpoint, for lack of its own resources: the
/// `reason` label, and the `error` of the access log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum UpstreamRefusal {
    /// The client has its share of the requests in flight.
    ClientShare,
    /// The upstream has its share of them.
    UpstreamShare,
    /// As many are in flight as may be.
    Total,
    /// The machine has no file, memory or port left for a connection.
    Shortage,
}

impl UpstreamRefusal {
    /// The label's value.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

const RESPONSES: [&str; CLASSES.len() + 1] = ["1xx", "2xx", "3xx", "4xx", "5xx", "none"];

/// The place of a status in [`CLASSES`]. Codes above 599 count as `5xx`.
fn class_index(status: StatusCode) -> usize {
    (usize::from(status.as_u16() / 100) - 1).min(CLASSES.len() - 1)
}

impl UpstreamMetrics {
    /// Makes the handles of the upstream with this name.
    pub fn new(registry: &Registry, upstream: &str) -> Self {
        let (count, class) = (RESPONSES.len(), |index: usize| RESPONSES[index]);
        let reasons = UpstreamRefusal::VARIANTS.len();
        let reason = |index: usize| UpstreamRefusal::VARIANTS[index].as_str();
        Self {
            responses: registry.counter_set(&UPSTREAM_RESPONSES, &[upstream], count, class),
            duration: registry.histogram(&UPSTREAM_DURATION, &[upstream]),
            refused: registry.counter_set(&UPSTREAM_REFUSED, &[upstream], reasons, reason),
        }
    }

    /// Counts a request that is not sent.
    pub fn refuse(&self, reason: UpstreamRefusal) {
        self.refused.increment(reason as usize);
    }

    /// Counts one response.
    pub fn record(&self, status: StatusCode, elapsed: Duration) {
        self.responses.increment(class_index(status));
        self.duration.record(elapsed);
    }

    /// Counts a request without a response.
    pub fn record_none(&self) {
        self.responses.increment(RESPONSES.len() - 1);
    }
}
