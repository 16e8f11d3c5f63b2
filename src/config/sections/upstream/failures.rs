//! Failures of an upstream: `timeouts`, `retries` (further attempts at a request after the first has
//! failed), and `ejection` (addresses that fail get no requests for a while).

use crate::config::sections::prelude::*;
use crate::upstream::{ClusterTimeouts, EjectionSpec, RetryCondition, RetrySpec};

/// `timeouts` of an upstream: each `1ms` to `1d`.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
pub struct UpstreamTimeouts {
    /// For a connection to be there, TLS included; 504 beyond.
    pub connect: Located<Timeout<SECOND>>,
    /// For the head of a response, at each attempt: beyond, another address is tried, or 504. None
    /// unless given.
    pub attempt: Option<Located<Timeout<SECOND>>>,
    /// For the head of a response, from the end of the request; 504 beyond.
    pub response: Located<Timeout<{ 30 * SECOND }>>,
    /// For the whole request, attempts and response included: 504 beyond, or the response is cut.
    /// None unless given.
    pub request: Option<Located<Timeout<SECOND>>>,
    /// For the next part of a body, and for the reuse of a connection.
    pub idle: Located<Timeout<{ 60 * SECOND }>>,
    /// For the next byte in either direction of a WebSocket; `idle` once either side has ended its
    /// own.
    pub tunnel: Located<Timeout<{ 3_600 * SECOND }>>,
}

pub(super) fn timeouts(timeouts: &UpstreamTimeouts) -> ClusterTimeouts {
    ClusterTimeouts {
        connect: timeouts.connect.get(),
        response: timeouts.response.get(),
        idle: timeouts.idle.get(),
        tunnel: timeouts.tunnel.get(),
        attempt: timeouts.attempt.as_ref().map(|time| time.get()),
        request: timeouts.request.as_ref().map(|time| time.get()),
    }
}

/// `retries` of an upstream.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
pub struct Retries {
    /// The most attempts after the first, each at another address. 0 to 10; 0 switches retries off.
    pub attempts: Located<Whole<0, 10, 2>>,
    /// The failures after which another address is tried. After `reset`, `timeout` and a status
    /// only idempotent requests are.
    pub retry_on: List<RetryCondition>,
    /// Retries as a part of the requests of the last 10 s.
    pub budget: Located<Percentage<0, 100, 20>>,
    /// Retries a second beside that part, 0 to 10000.
    pub min_per_second: Located<Whole<0, 10_000, 10>>,
    /// The most of a request's body that is kept for another attempt, `0B` to `16MiB`. Requests
    /// with more are sent once.
    pub max_body: Located<Size<0, { 16 << 20 }, { 64 << 10 }>>,
}

impl Default for Retries {
    fn default() -> Self {
        use RetryCondition::{ConnectFailure, Refused, Reset, Timeout};
        let conditions = [ConnectFailure, Refused, Reset, Timeout].map(Located::from);
        Retries {
            attempts: Located::default(),
            retry_on: Vec::from(conditions).into(),
            budget: Located::default(),
            min_per_second: Located::default(),
            max_body: Located::default(),
        }
    }
}

pub(super) fn retries(upstream: &Upstream) -> RetrySpec {
    let retries = &upstream.retries;
    RetrySpec {
        attempts: retries.attempts.get(),
        retry_on: retries.retry_on.values(),
        budget: retries.budget.get(),
        min_per_second: retries.min_per_second.get(),
        max_body: retries.max_body.get() as usize,
        is_http2: upstream.protocol.value != UpstreamProtocol::Http1,
    }
}

by_form! {
    /// `ejection` of an upstream.
    pub enum Ejection("Ejection", "`off`, or a mapping: `{ for: 10s }`") {
        /// When and for how long an address is ejected.
        On(EjectionRules) = "mapping",
        /// Addresses that fail stay in use.
        Off(Off) = "scalar",
    }
}

/// The word that switches it off.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Off {
    /// Off.
    #[default]
    Off,
}

/// When and for how long an address that fails is ejected.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
pub struct EjectionRules {
    /// Failures in a row that eject an address: resets, invalid responses, time-outs and statuses
    /// from 500 to 599 except 501 and 505. 1 to 1000.
    pub consecutive_failures: Located<Whole<1, 1_000, 5>>,
    /// The part of its requests that fail, of at least 100 in 10 s, that ejects an address; none
    /// unless given.
    pub failure_rate: Option<Located<Percentage<1, 100>>>,
    /// The length of the first ejection; each further one in a row is longer by this. `100ms` to
    /// `1h`.
    #[serde(rename = "for")]
    pub base: Located<Duration<100, HOUR, { 10 * SECOND }>>,
    /// The length of the longest ejection, `100ms` to `1d`.
    #[serde(rename = "max_for")]
    pub max: Located<Duration<100, DAY, { 5 * MINUTE }>>,
    /// The part of the addresses that may be ejected at once: at least one of two, and never the
    /// last. Addresses that take no connection are ejected beyond it.
    pub max_ejected: Located<Percentage<0, 100, 50>>,
}

pub(super) fn check(upstream: &Upstream, findings: &Findings<'_>) {
    report_twice(&upstream.retries.retry_on, findings);
    let Ejection::On(rules) = &upstream.ejection.value else {
        return;
    };
    let (base, max) = (&rules.base, &rules.max);
    if max.get() < base.get() {
        let message = format!("the longest ejection, {max}, is shorter than the first");
        let finding = conflict(max.node.or(base.node), message).related(base.node, "the first");
        findings.add(finding.help(format!("write `max_for: {base}` or more")));
    }
}

pub(super) fn ejection(ejection: &Ejection) -> Option<EjectionSpec> {
    match ejection {
        Ejection::Off(_) => None,
        Ejection::On(rules) => Some(EjectionSpec {
            consecutive_failures: rules.consecutive_failures.get(),
            failure_rate: rules.failure_rate.as_ref().map(|rate| rate.get()),
            base: rules.base.get(),
            max: rules.max.get(),
            max_ejected: rules.max_ejected.get(),
        }),
    }
}
