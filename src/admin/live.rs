//! Figures of the running process over the last second.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use serde::Serialize;
use strum::VariantArray;

use super::json::Rfc3339;
use super::{AdminState, problems};
use crate::clock::Timestamp;
use crate::proxy::Ruleset;
use crate::server::ConnectionPressure;
use crate::telemetry::metrics::{DurationCounts, LimitDecision};

/// The seconds of requests whose durations make the quantiles.
const SPAN: usize = 10;
/// The most policies of a message: those that limit most, then those that decide most.
const MAX_POLICIES: usize = 200;

/// Makes messages from the counts of two instants.
#[derive(Default)]
pub(super) struct LiveSource {
    before: Option<Counts>,
    /// Durations at the last instants, the oldest first.
    durations: VecDeque<DurationCounts>,
}

/// Counts since the start of the process.
struct Counts {
    at: Timestamp,
    requests: u64,
    errors: u64,
    policies: HashMap<Arc<str>, Decisions>,
}

/// A number for each decision.
type Decisions = [u64; LimitDecision::VARIANTS.len()];

#[derive(Serialize)]
struct LiveFigures {
    at: Rfc3339,
    /// The time over which the rates are means.
    interval_s: f64,
    requests_per_s: f64,
    /// Responses with a status of 500 and above.
    errors_per_s: f64,
    /// Decisions of all policies a second.
    decisions: Rates,
    policies: Vec<PolicyRates>,
    /// The policies that decided something, beside those above.
    policies_omitted: usize,
    latency: Latency,
    connections: Connections,
    problems: Vec<String>,
}

#[derive(Serialize)]
struct PolicyRates {
    name: Arc<str>,
    #[serde(flatten)]
    rates: Rates,
}

/// Decisions a second.
#[derive(Clone, Copy, Default, Serialize)]
struct Rates {
    allowed: f64,
    limited: f64,
    overflowed: f64,
    delayed: f64,
    shadowed: f64,
    tagged: f64,
    exempt: f64,
    error: f64,
}

/// Durations of requests; `None` without a request.
#[derive(Serialize)]
struct Latency {
    span_s: usize,
    p50_ms: Option<f64>,
    p99_ms: Option<f64>,
}

#[derive(Serialize)]
struct Connections {
    open: usize,
    max: usize,
}

impl LiveSource {
    /// Forgets the counts of the last call: there is no message while nobody reads.
    pub(super) fn forget(&mut self) -> Option<Bytes> {
        *self = Self::default();
        None
    }

    /// The message for the time since the last call; `None` at the first.
    pub(super) fn message(&mut self, state: &AdminState) -> Option<Bytes> {
        let (ruleset, now) = (state.gateway.ruleset(), state.clock.now());
        let counts = Counts::of(&ruleset, now);
        let durations = durations(&ruleset);
        let figures = self.before.as_ref().map(|before| {
            let oldest = self.durations.front();
            let recent = oldest.map(|oldest| durations.since(oldest));
            figures(
                before,
                &counts,
                &recent.unwrap_or_default(),
                state,
                &ruleset,
            )
        });
        self.before = Some(counts);
        self.durations.push_back(durations);
        if self.durations.len() > SPAN {
            self.durations.pop_front();
        }
        let json = serde_json::to_string(&figures?).ok()?;
        Some(format!("data: {json}\n\n").into())
    }
}

fn figures(
    before: &Counts,
    now: &Counts,
    durations: &DurationCounts,
    state: &AdminState,
    ruleset: &Ruleset,
) -> LiveFigures {
    let seconds = now.at.since(before.at).as_secs_f64().max(0.001);
    let rate = |before: u64, now: u64| rounded(now.saturating_sub(before) as f64 / seconds);
    let none = Decisions::default();
    let mut all = Decisions::default();
    let mut policies: Vec<_> = now
        .policies
        .iter()
        .filter_map(|(name, counts)| {
            // Counts that fall began anew with a reload.
            let earlier = before.policies.get(name).unwrap_or(&none);
            let made: Decisions =
                std::array::from_fn(|place| counts[place].saturating_sub(earlier[place]));
            all.iter_mut()
                .zip(made)
                .for_each(|(sum, made)| *sum += made);
            (made != none).then_some((name, made))
        })
        .collect();
    let limited = LimitDecision::Limited as usize;
    policies.sort_unstable_by_key(|(name, made)| {
        let order = (made[limited], made.iter().sum::<u64>());
        (std::cmp::Reverse(order), Arc::clone(name))
    });
    let pressure = state.readiness.pressure();
    LiveFigures {
        at: Rfc3339(now.at),
        interval_s: rounded(seconds),
        requests_per_s: rate(before.requests, now.requests),
        errors_per_s: rate(before.errors, now.errors),
        decisions: Rates::of(&all, seconds),
        policies_omitted: policies.len().saturating_sub(MAX_POLICIES),
        policies: policies
            .into_iter()
            .take(MAX_POLICIES)
            .map(|(name, made)| PolicyRates {
                name: Arc::clone(name),
                rates: Rates::of(&made, seconds),
            })
            .collect(),
        latency: Latency {
            span_s: SPAN,
            p50_ms: milliseconds(durations, 0.5),
            p99_ms: milliseconds(durations, 0.99),
        },
        connections: Connections {
            open: pressure.map_or(0, ConnectionPressure::open),
            max: pressure.map_or(0, ConnectionPressure::max),
        },
        problems: problems::problems(state, ruleset),
    }
}

impl Counts {
    fn of(ruleset: &Ruleset, at: Timestamp) -> Self {
        let mut counts = Self {
            at,
            requests: 0,
            errors: 0,
            policies: HashMap::new(),
        };
        for route in ruleset.routes.iter().chain([&ruleset.unmatched]) {
            counts.requests += route.metrics.requests();
            counts.errors += route.metrics.errors();
            for limit in &route.limits {
                let name = Arc::clone(&limit.policy.name);
                let of_policy = counts.policies.entry(name).or_default();
                for (sum, &decision) in of_policy.iter_mut().zip(LimitDecision::VARIANTS) {
                    *sum += limit.metrics.count(decision);
                }
            }
        }
        counts
    }
}

fn durations(ruleset: &Ruleset) -> DurationCounts {
    let routes = ruleset.routes.iter().chain([&ruleset.unmatched]);
    routes.fold(DurationCounts::default(), |sum, route| {
        sum.and(&route.metrics.durations())
    })
}

fn milliseconds(durations: &DurationCounts, share: f64) -> Option<f64> {
    let quantile = durations.quantile(share)?;
    Some(rounded(quantile.as_secs_f64() * 1_000.0))
}

/// To three digits behind the point.
fn rounded(number: f64) -> f64 {
    (number * 1_000.0).round() / 1_000.0
}

impl Rates {
    fn of(made: &Decisions, seconds: f64) -> Self {
        let mut rates = Self::default();
        for (&decision, &count) in LimitDecision::VARIANTS.iter().zip(made) {
            let rate = match decision {
                LimitDecision::Allowed => &mut rates.allowed,
                LimitDecision::Limited => &mut rates.limited,
                LimitDecision::Overflowed => &mut rates.overflowed,
                LimitDecision::Delayed => &mut rates.delayed,
                LimitDecision::Shadowed => &mut rates.shadowed,
                LimitDecision::Tagged => &mut rates.tagged,
                LimitDecision::Exempt => &mut rates.exempt,
                LimitDecision::Error => &mut rates.error,
            };
            *rate = rounded(count as f64 / seconds);
        }
        rates
    }
}
