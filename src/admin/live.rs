//! Figures of the running process over the last second.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use schemars::JsonSchema;
use serde::Serialize;

use super::json::Rfc3339;
use super::policies::PerDecision;
use super::problems;
use super::readiness::Connections;
use super::state::AdminState;
use super::totals::{Decisions, Totals, gained, sum};
use crate::proxy::Ruleset;
use crate::telemetry::metrics::{DurationCounts, LimitDecision};

/// The seconds of requests whose durations make the quantiles.
const SPAN: usize = 10;
/// The most policies of a message: those that limit most, then those that decide most.
const MAX_POLICIES: usize = 200;

/// Makes messages from the counts of two instants.
#[derive(Default)]
pub(super) struct LiveSource {
    before: Option<Totals>,
    /// Durations at the last instants, the oldest first.
    durations: VecDeque<DurationCounts>,
}

/// Figures of the last second.
#[derive(Serialize, JsonSchema)]
pub(super) struct Live {
    at: Rfc3339,
    /// The time over which rates are means, in seconds.
    interval_s: f64,
    /// Requests that ended.
    requests_per_s: f64,
    /// Requests with a status of 500 and above.
    errors_per_s: f64,
    /// Decisions of all policies a second. A request that meets two policies counts twice.
    decisions: PerDecision<f64>,
    /// Policies that decided something, the most limiting first.
    #[schemars(length(max = MAX_POLICIES))]
    policies: Vec<PolicyRates>,
    /// Policies that decided something, beside those 200.
    policies_omitted: usize,
    /// Durations of requests.
    latency: Latency,
    /// Connections of clients.
    connections: Connections,
    /// As in /v1/status.
    problems: Vec<String>,
}

/// The decisions of a policy a second.
#[derive(Serialize, JsonSchema)]
struct PolicyRates {
    /// The policy.
    name: Arc<str>,
    #[serde(flatten)]
    rates: PerDecision<f64>,
}

/// Durations of requests.
#[derive(Serialize, JsonSchema)]
struct Latency {
    /// The seconds of the requests.
    span_s: usize,
    /// The median. Null without a request.
    p50_ms: Option<f64>,
    /// The 99th percentile.
    p99_ms: Option<f64>,
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
        let counts = Totals::of(&ruleset, now);
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
    before: &Totals,
    now: &Totals,
    durations: &DurationCounts,
    state: &AdminState,
    ruleset: &Ruleset,
) -> Live {
    let seconds = now.at.since(before.at).as_secs_f64().max(0.001);
    let rate = |made: u64| rounded(made as f64 / seconds);
    let requests = gained(&before.routes, &now.routes).flat_map(|(_, made)| made);
    let mut policies: Vec<_> = gained(&before.policies, &now.policies).collect();
    let made = policies.iter().map(|(_, made)| *made);
    let all = made.fold(Decisions::default(), sum);
    let limited = LimitDecision::Limited as usize;
    policies.sort_unstable_by_key(|(name, made)| {
        let order = (made[limited], made.iter().sum::<u64>());
        (std::cmp::Reverse(order), Arc::clone(name))
    });
    Live {
        at: Rfc3339(now.at),
        interval_s: rounded(seconds),
        requests_per_s: rate(requests.sum()),
        errors_per_s: rate(now.errors.saturating_sub(before.errors)),
        decisions: rates(&all, seconds),
        policies_omitted: policies.len().saturating_sub(MAX_POLICIES),
        policies: policies
            .into_iter()
            .take(MAX_POLICIES)
            .map(|(name, made)| PolicyRates {
                name: Arc::clone(name),
                rates: rates(&made, seconds),
            })
            .collect(),
        latency: Latency {
            span_s: SPAN,
            p50_ms: milliseconds(durations, 0.5),
            p99_ms: milliseconds(durations, 0.99),
        },
        connections: state.readiness.connections(),
        problems: problems::texts(&problems::problems(state, ruleset)),
    }
}

fn durations(ruleset: &Ruleset) -> DurationCounts {
    let durations = ruleset
        .all_routes()
        .map(|route| route.metrics.duration.counts());
    durations.fold(DurationCounts::default(), |sum, counts| sum.and(&counts))
}

fn milliseconds(durations: &DurationCounts, share: f64) -> Option<f64> {
    let quantile = durations.quantile(share)?;
    Some(rounded(quantile.as_secs_f64() * 1_000.0))
}

/// To three digits behind the point.
fn rounded(number: f64) -> f64 {
    (number * 1_000.0).round() / 1_000.0
}

fn rates(made: &Decisions, seconds: f64) -> PerDecision<f64> {
    PerDecision::new(|decision| rounded(made[decision as usize] as f64 / seconds))
}
