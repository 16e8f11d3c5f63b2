//! Every metric the proxy exports, and the handles that other layers keep.
//!
//! Handles are made when a ruleset compiles; a labelled series only when it first counts, so that
//! 10,000 routes are not a million series. No lookup by name happens on a request. Label values come
//! from the configuration or from a closed set, never from the wire.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use http::{Method, StatusCode};
use parking_lot::Mutex;

use super::registry::{
    Counter, Family, Gauge, Histogram,
    Kind::{self, Counter as C, Gauge as G, Histogram as H},
    Observer, Registry,
};

const fn family(
    kind: Kind,
    name: &'static str,
    labels: &'static [&'static str],
    help: &'static str,
) -> Family {
    Family {
        name,
        help,
        kind,
        labels,
    }
}

static HTTP_REQUESTS: Family = family(
    C,
    "sluicegate_http_requests_total",
    &["code", "method"],
    "Requests answered.",
);
static HTTP_DURATION: Family = family(
    H,
    "sluicegate_http_request_duration_seconds",
    &["route"],
    "Time from a request's head to the end of its response.",
);
static ROUTE_REQUESTS: Family = family(
    C,
    "sluicegate_route_requests_total",
    &["route", "class"],
    "Requests answered by route and status class.",
);
static UPSTREAM_DURATION: Family = family(
    H,
    "sluicegate_upstream_request_duration_seconds",
    &["upstream"],
    "Time from forwarding a request to the head of the upstream's response.",
);
static LIMIT_DECISIONS: Family = family(
    C,
    "sluicegate_limit_decisions_total",
    &["policy", "route", "decision"],
    "What policies decided.",
);
static LIMIT_NEAR: Family = family(
    C,
    "sluicegate_limit_near_total",
    &["policy"],
    "Requests admitted with at least 80 % of the quota used.",
);
static LIMIT_BUCKETS: Family = family(
    G,
    "sluicegate_limit_buckets",
    &["policy"],
    "Buckets in use, estimated.",
);
static LIMIT_EVICTIONS: Family = family(
    C,
    "sluicegate_limit_evictions_total",
    &["policy"],
    "Buckets forgotten because the table was full.",
);
static LIMIT_UNRECORDED: Family = family(
    C,
    "sluicegate_limit_unrecorded_total",
    &["policy"],
    "Requests admitted without a bucket because all places were held by refusing keys.",
);
static CONFIG_RELOADS: Family = family(
    C,
    "sluicegate_config_reloads_total",
    &["result"],
    "Reloads tried.",
);
static CONFIG_LAST_SUCCESSFUL: Family = family(
    G,
    "sluicegate_config_last_reload_successful",
    &[],
    "1 if the last reload took effect, else 0.",
);
static CONFIG_LAST_SUCCESS: Family = family(
    G,
    "sluicegate_config_last_reload_success_timestamp_seconds",
    &[],
    "When the running configuration took effect, in seconds since the Unix epoch.",
);
static CONFIG_INFO: Family = family(
    G,
    "sluicegate_config_info",
    &["hash"],
    "The running configuration.",
);
static CONNECTIONS: Family = family(
    G,
    "sluicegate_connections",
    &["listener"],
    "Client connections being served.",
);
static ACCEPT_ERRORS: Family = family(
    C,
    "sluicegate_accept_errors_total",
    &["listener"],
    "Connections that could not be accepted, and handshakes that failed.",
);
static ACCESS_LOG_DROPPED: Family = family(
    C,
    "sluicegate_access_log_dropped_lines_total",
    &[],
    "Access log lines lost because the queue was full or the file could not be written.",
);
static BUILD_INFO: Family = family(
    G,
    "sluicegate_build_info",
    &["version", "revision"],
    "The running program.",
);

/// Requests by status code and method.
#[derive(Debug)]
pub struct RequestMetrics {
    registry: Registry,
    counters: Box<[OnceLock<Counter>]>,
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

/// One route's requests: by status class, and how long they took.
#[derive(Debug)]
pub struct RouteMetrics {
    registry: Registry,
    route: Arc<str>,
    classes: [OnceLock<Counter>; CLASSES.len()],
    duration: OnceLock<Histogram>,
}

const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

impl RouteMetrics {
    /// Makes the handles of the route with this name; series appear as they first count.
    pub fn new(registry: &Registry, route: &str) -> Self {
        Self {
            registry: registry.clone(),
            route: route.into(),
            classes: Default::default(),
            duration: OnceLock::new(),
        }
    }

    /// Counts one answered request. Codes above 599 count as `5xx`.
    pub fn record(&self, status: StatusCode, elapsed: Duration) {
        let class = (usize::from(status.as_u16() / 100) - 1).min(CLASSES.len() - 1);
        let make = || {
            self.registry
                .counter(&ROUTE_REQUESTS, &[&self.route, CLASSES[class]])
        };
        self.classes[class].get_or_init(make).increment();
        let make = || self.registry.histogram(&HTTP_DURATION, &[&self.route]);
        self.duration.get_or_init(make).record(elapsed);
    }
}

/// One upstream's response times.
#[derive(Debug)]
pub struct UpstreamMetrics {
    duration: Histogram,
}

impl UpstreamMetrics {
    /// Makes the handles of the upstream with this name.
    pub fn new(registry: &Registry, upstream: &str) -> Self {
        Self {
            duration: registry.histogram(&UPSTREAM_DURATION, &[upstream]),
        }
    }

    /// Counts one response.
    pub fn record(&self, elapsed: Duration) {
        self.duration.record(elapsed);
    }
}

/// What a policy did with a request, as the `decision` label says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitDecision {
    /// Charged and admitted.
    Allowed,
    /// Refused.
    Limited,
    /// Admitted after a wait.
    Delayed,
    /// Would have been refused, but the policy only watches.
    Shadowed,
    /// Not charged: the key is exempt.
    Exempt,
    /// The store could not decide.
    Error,
}

impl LimitDecision {
    const ALL: [Self; 6] = [
        Self::Allowed,
        Self::Limited,
        Self::Delayed,
        Self::Shadowed,
        Self::Exempt,
        Self::Error,
    ];

    /// Returns the label value.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Limited => "limited",
            Self::Delayed => "delayed",
            Self::Shadowed => "shadowed",
            Self::Exempt => "exempt",
            Self::Error => "error",
        }
    }
}

/// One policy's decisions on one route.
#[derive(Debug)]
pub struct LimitMetrics {
    registry: Registry,
    policy: Arc<str>,
    route: Arc<str>,
    decisions: [OnceLock<Counter>; LimitDecision::ALL.len()],
}

impl LimitMetrics {
    /// Makes the handles of this policy on this route; series appear as they first count.
    pub fn new(registry: &Registry, policy: &str, route: &str) -> Self {
        Self {
            registry: registry.clone(),
            policy: policy.into(),
            route: route.into(),
            decisions: Default::default(),
        }
    }

    /// Counts one decision.
    pub fn record(&self, decision: LimitDecision) {
        let labels = [&*self.policy, &*self.route, decision.as_str()];
        self.decisions[decision as usize]
            .get_or_init(|| self.registry.counter(&LIMIT_DECISIONS, &labels))
            .increment();
    }

    /// How often this was decided.
    pub fn count(&self, decision: LimitDecision) -> u64 {
        self.decisions[decision as usize]
            .get()
            .map_or(0, Counter::get)
    }
}

/// A bucket table's own figures, read at each scrape.
#[derive(Clone, Copy, Debug, Default)]
pub struct TableFigures {
    /// Buckets in use, estimated.
    pub buckets: u64,
    /// Buckets evicted so far.
    pub evictions: u64,
    /// Requests admitted unrecorded so far.
    pub unrecorded: u64,
}

/// One policy's figures over all routes.
#[derive(Debug)]
pub struct PolicyMetrics {
    near: Counter,
    _table: [Observer; 3],
}

impl PolicyMetrics {
    /// Makes the handles of the policy with this name, whose table `figures` reads.
    pub fn new(
        registry: &Registry,
        policy: &str,
        figures: impl Fn() -> TableFigures + Send + Sync + Clone + 'static,
    ) -> Self {
        let observe = |family, read: fn(TableFigures) -> u64| {
            let figures = figures.clone();
            registry.observe(family, &[policy], move || read(figures()) as f64)
        };
        Self {
            near: registry.counter(&LIMIT_NEAR, &[policy]),
            _table: [
                observe(&LIMIT_BUCKETS, |figures| figures.buckets),
                observe(&LIMIT_EVICTIONS, |figures| figures.evictions),
                observe(&LIMIT_UNRECORDED, |figures| figures.unrecorded),
            ],
        }
    }

    /// Counts a request that was admitted with at least 80 % of the quota used.
    pub fn near(&self) {
        self.near.increment();
    }
}

/// The configuration's history.
#[derive(Debug)]
pub struct ConfigMetrics {
    registry: Registry,
    succeeded: Counter,
    failed: Counter,
    last_successful: Gauge,
    last_success: Gauge,
    info: Mutex<Gauge>,
}

impl ConfigMetrics {
    /// Makes the handles, with the configuration that the process started with.
    ///
    /// `hash` names its content; `now` is in whole seconds since the Unix epoch.
    pub fn new(registry: &Registry, hash: &str, now: i64) -> Self {
        let metrics = Self {
            registry: registry.clone(),
            succeeded: registry.counter(&CONFIG_RELOADS, &["success"]),
            failed: registry.counter(&CONFIG_RELOADS, &["failure"]),
            last_successful: registry.gauge(&CONFIG_LAST_SUCCESSFUL, &[]),
            last_success: registry.gauge(&CONFIG_LAST_SUCCESS, &[]),
            info: Mutex::new(registry.gauge(&CONFIG_INFO, &[hash])),
        };
        metrics.runs(hash, now);
        metrics
    }

    /// Counts a reload that took effect.
    pub fn reloaded(&self, hash: &str, now: i64) {
        self.succeeded.increment();
        self.runs(hash, now);
    }

    /// Counts a reload that changed nothing because the new configuration was bad.
    pub fn failed(&self) {
        self.failed.increment();
        self.last_successful.set(0);
    }

    fn runs(&self, hash: &str, now: i64) {
        self.last_successful.set(1);
        self.last_success.set(now);
        let info = self.registry.gauge(&CONFIG_INFO, &[hash]);
        info.set(1);
        *self.info.lock() = info;
    }
}

/// One listener's connections.
#[derive(Clone, Debug)]
pub struct ListenerMetrics {
    open: Gauge,
    accept_errors: Counter,
}

impl ListenerMetrics {
    /// Makes the handles of the listener with this address.
    pub fn new(registry: &Registry, listener: &str) -> Self {
        Self {
            open: registry.gauge(&CONNECTIONS, &[listener]),
            accept_errors: registry.counter(&ACCEPT_ERRORS, &[listener]),
        }
    }

    /// Counts a connection as open until the guard is dropped.
    pub fn open(&self) -> OpenGuard {
        self.open.add(1);
        OpenGuard(self.open.clone())
    }

    /// Counts a connection that could not be accepted, or whose handshake failed.
    pub fn accept_error(&self) {
        self.accept_errors.increment();
    }
}

/// One connection in `sluicegate_connections`, until dropped.
#[derive(Debug)]
pub struct OpenGuard(Gauge);

impl Drop for OpenGuard {
    fn drop(&mut self) {
        self.0.add(-1);
    }
}

/// Returns the counter of access log lines that were lost.
pub(super) fn access_log_dropped(registry: &Registry) -> Counter {
    registry.counter(&ACCESS_LOG_DROPPED, &[])
}

/// Says which program runs; keep what it returns for the life of the process.
pub fn build_info(registry: &Registry, version: &str, revision: &str) -> Gauge {
    let gauge = registry.gauge(&BUILD_INFO, &[version, revision]);
    gauge.set(1);
    gauge
}

#[cfg(test)]
mod tests;
