//! `retries` of an upstream: further attempts at a request after the first has failed.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::validate::report_twice;
use crate::config::value::{Percentage, RetryCondition, Size, Whole};
use crate::config::{Findings, List, Located};
use crate::upstream::{RetryConditions, RetrySpec};

/// `retries` of an upstream.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
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

pub(super) fn check(retries: &Retries, findings: &Findings<'_>) {
    report_twice(&retries.retry_on, findings);
}

pub(super) fn compile(retries: &Retries) -> RetrySpec {
    let mut retry_on = RetryConditions::default();
    for condition in retries.retry_on.iter() {
        match condition.value {
            RetryCondition::ConnectFailure => retry_on.connect_failure = true,
            RetryCondition::Refused => retry_on.refused = true,
            RetryCondition::Reset => retry_on.reset = true,
            RetryCondition::Timeout => retry_on.timeout = true,
            RetryCondition::Status(status) => retry_on.statuses.push(status),
        }
    }
    RetrySpec {
        attempts: retries.attempts.get(),
        retry_on,
        budget: retries.budget.get(),
        min_per_second: retries.min_per_second.get(),
        max_body: retries.max_body.bytes() as usize,
        is_http2: false,
    }
}
