//! The counts of requests and decisions at an instant, by route, upstream and policy, and what they
//! gained since another one.

use std::collections::HashMap;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::VariantArray;

use crate::clock::Timestamp;
use crate::proxy::Ruleset;
use crate::telemetry::metrics::{
    DurationCounts, LimitDecision, RequestOutcome, RouteMetrics, StatusClass, UpstreamMetrics,
};
use crate::telemetry::registry::{Counters, LabelValue};

/// A number for each decision.
pub(super) type Decisions = [u64; LimitDecision::VARIANTS.len()];

/// A number for each outcome.
pub(super) type Outcomes = [u64; RequestOutcome::VARIANTS.len()];

/// Counts since the start of the process.
#[derive(Debug, Default)]
pub(super) struct Totals {
    /// The instant.
    pub at: Timestamp,
    /// Requests by route.
    pub routes: HashMap<Arc<str>, Traffic>,
    /// Requests by upstream.
    pub upstreams: HashMap<Arc<str>, Traffic>,
    /// Decisions by policy.
    pub policies: HashMap<Arc<str>, Decisions>,
}

/// Requests of a route or an upstream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Traffic {
    /// By outcome; none of an upstream.
    pub outcomes: Outcomes,
    /// By the class of the status.
    pub classes: [u64; StatusClass::VARIANTS.len()],
    /// How long they took.
    pub durations: DurationCounts,
}

/// Requests over the last seconds.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct RecentTraffic {
    /// So many seconds.
    seconds: f64,
    /// Requests that were answered.
    pub requests_per_s: f64,
    /// Answers with a status of 200 to 299 a second.
    #[serde(rename = "2xx_per_s")]
    successes_per_s: f64,
    /// Answers with a status of 400 to 499 a second.
    #[serde(rename = "4xx_per_s")]
    client_errors_per_s: f64,
    /// Answers with a status of 500 and above a second.
    #[serde(rename = "5xx_per_s")]
    pub server_errors_per_s: f64,
    /// Requests that limits refused a second, whatever the answer; none of an upstream.
    #[serde(default)]
    limited_per_s: f64,
    #[serde(flatten)]
    pub latency: Latency,
}

/// Durations of requests.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Latency {
    /// The median. Null without a request.
    pub p50_ms: Option<f64>,
    /// The 99th percentile.
    pub p99_ms: Option<f64>,
}

impl Totals {
    /// Nothing at an instant.
    pub(super) fn at(at: Timestamp) -> Self {
        Self {
            at,
            ..Self::default()
        }
    }

    /// The counts of `ruleset`'s routes, upstreams and policies.
    pub fn of(ruleset: &Ruleset, at: Timestamp) -> Self {
        let mut totals = Self::at(at);
        for route in ruleset.all_routes() {
            let traffic = Traffic::of_route(&route.metrics);
            totals.routes.insert(Arc::clone(&route.name), traffic);
            for limit in &route.limits {
                let name = Arc::clone(&limit.policy.name);
                let of_policy = totals.policies.entry(name).or_default();
                *of_policy = sum(*of_policy, counts(&limit.metrics));
            }
        }
        for upstream in &ruleset.upstreams {
            let traffic = Traffic::of_upstream(upstream.metrics());
            totals
                .upstreams
                .insert(Arc::clone(upstream.name()), traffic);
        }
        totals
    }

    /// Requests of all routes since `before`.
    pub fn requests_since(&self, before: &Self) -> Traffic {
        let none = Traffic::default();
        let routes = self.routes.iter();
        let gained = routes.map(|(name, now)| now.since(before.routes.get(name).unwrap_or(&none)));
        gained.fold(Traffic::default(), |sum, one| sum.and(&one))
    }
}

impl Traffic {
    pub fn of_route(metrics: &RouteMetrics) -> Self {
        Self {
            outcomes: counts(&metrics.outcomes),
            classes: counts(&metrics.classes),
            durations: metrics.duration.counts(),
        }
    }

    pub fn of_upstream(metrics: &UpstreamMetrics) -> Self {
        Self {
            outcomes: Outcomes::default(),
            classes: counts(&metrics.responses),
            durations: metrics.duration.counts(),
        }
    }

    fn and(self, other: &Self) -> Self {
        Self {
            outcomes: sum(self.outcomes, other.outcomes),
            classes: sum(self.classes, other.classes),
            durations: self.durations.and(&other.durations),
        }
    }

    /// The requests after `earlier`. Counts that fall began anew with a reload.
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            outcomes: less(self.outcomes, earlier.outcomes),
            classes: less(self.classes, earlier.classes),
            durations: self.durations.since(&earlier.durations),
        }
    }

    /// The rates since `earlier`, so many seconds ago.
    pub fn rates_since(&self, earlier: Option<&Self>, seconds: f64) -> RecentTraffic {
        let none = Self::default();
        self.since(earlier.unwrap_or(&none)).rates(seconds)
    }

    /// The rates of requests that came within `seconds`.
    pub fn rates(&self, seconds: f64) -> RecentTraffic {
        let rate = |count: u64| rounded(count as f64 / seconds.max(0.001));
        let class = |class: StatusClass| rate(self.classes[class as usize]);
        RecentTraffic {
            seconds: rounded(seconds),
            requests_per_s: rate(self.classes.iter().sum()),
            successes_per_s: class(StatusClass::Success),
            client_errors_per_s: class(StatusClass::ClientError),
            server_errors_per_s: class(StatusClass::ServerError),
            limited_per_s: rate(self.outcomes[RequestOutcome::Limited as usize]),
            latency: self.latency(),
        }
    }

    pub fn latency(&self) -> Latency {
        let quantile = |share| {
            let quantile = self.durations.quantile(share)?;
            Some(rounded(quantile.as_secs_f64() * 1_000.0))
        };
        Latency {
            p50_ms: quantile(0.5),
            p99_ms: quantile(0.99),
        }
    }
}

/// The decisions that each policy has made, if any.
pub(super) fn made<'t>(
    before: &'t Totals,
    now: &'t Totals,
) -> impl Iterator<Item = (&'t Arc<str>, Decisions)> {
    now.policies.iter().filter_map(|(name, counts)| {
        let earlier = before.policies.get(name).copied().unwrap_or_default();
        let made = less(*counts, earlier);
        (made != Decisions::default()).then_some((name, made))
    })
}

/// The sum of these numbers.
pub fn sum<const N: usize>(one: [u64; N], other: [u64; N]) -> [u64; N] {
    std::array::from_fn(|place| one[place] + other[place])
}

/// The growth of these numbers since the others.
pub(super) fn less<const N: usize>(one: [u64; N], other: [u64; N]) -> [u64; N] {
    std::array::from_fn(|place| one[place].saturating_sub(other[place]))
}

/// The count of each label.
pub(super) fn counts<L: LabelValue, const N: usize>(counters: &Counters<L>) -> [u64; N] {
    std::array::from_fn(|place| counters.count(L::VARIANTS[place]))
}

/// To three digits behind the point.
pub(super) fn rounded(number: f64) -> f64 {
    (number * 1_000.0).round() / 1_000.0
}
