//! Figures of the running process over the last second.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use schemars::JsonSchema;
use serde::Serialize;

use super::json::Rfc3339;
use super::per_label::PerDecision;
use super::problems;
use super::readiness::Connections;
use super::state::AdminState;
use super::totals::{Decisions, Latency, Totals, made, rounded, sum};
use crate::proxy::Ruleset;
use crate::telemetry::metrics::LimitDecision;

/// The seconds of requests whose durations make the quantiles.
const SPAN: usize = 10;
/// The most policies of a message: those that limit most, then those that decide most.
const MAX_POLICIES: usize = 200;

/// Makes messages from the counts of two instants.
#[derive(Default)]
pub(super) struct LiveSource {
    /// The counts at the last instants, the oldest first.
    totals: VecDeque<Totals>,
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
    latency: LiveLatency,
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
struct LiveLatency {
    /// The seconds of the requests.
    span_s: usize,
    #[serde(flatten)]
    latency: Latency,
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
        self.totals.push_back(Totals::of(&ruleset, now));
        if self.totals.len() > SPAN + 1 {
            self.totals.pop_front();
        }
        let json = serde_json::to_string(&self.figures(state, &ruleset)?).ok()?;
        Some(format!("data: {json}\n\n").into())
    }

    fn figures(&self, state: &AdminState, ruleset: &Ruleset) -> Option<Live> {
        let now = self.totals.back()?;
        let before = self.totals.iter().rev().nth(1)?;
        let recent = now.requests_since(self.totals.front()?);
        Some(figures(before, now, recent.latency(), state, ruleset))
    }
}

fn figures(
    before: &Totals,
    now: &Totals,
    latency: Latency,
    state: &AdminState,
    ruleset: &Ruleset,
) -> Live {
    let seconds = now.at.since(before.at).as_secs_f64().max(0.001);
    let requests = now.requests_since(before).rates(seconds);
    let mut policies: Vec<_> = made(before, now).collect();
    let all = policies.iter().map(|(_, made)| *made);
    let all = all.fold(Decisions::default(), sum);
    let limited = LimitDecision::Limited as usize;
    policies.sort_unstable_by_key(|(name, made)| {
        let order = (made[limited], made.iter().sum::<u64>());
        (std::cmp::Reverse(order), Arc::clone(name))
    });
    Live {
        at: Rfc3339(now.at),
        interval_s: rounded(seconds),
        requests_per_s: requests.requests_per_s,
        errors_per_s: requests.server_errors_per_s,
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
        latency: LiveLatency {
            span_s: SPAN,
            latency,
        },
        connections: state.readiness.connections(),
        problems: problems::texts(&problems::problems(state, ruleset)),
    }
}

fn rates(made: &Decisions, seconds: f64) -> PerDecision<f64> {
    made.map(|made| rounded(made as f64 / seconds)).into()
}
