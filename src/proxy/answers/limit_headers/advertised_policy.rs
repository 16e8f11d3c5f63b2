//! A policy's name, quota and capacity in the form of header fields, written once.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::IntoStaticStr;

use super::field_value;
use crate::http::headers::FieldValue;
use crate::limiter::algorithms::{FixedWindow, Start};
use crate::limiter::{Algorithm, Quota};

/// Largest integer of a structured field (RFC 9651 section 3.3.1).
const LARGEST_INTEGER: u64 = 999_999_999_999_999;
const MICROS_PER_SECOND: u64 = 1_000_000;

/// The unit of a quota.
// Its name is the plural.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema, IntoStaticStr,
)]
#[serde(rename_all = "snake_case")]
#[strum(const_into_str, serialize_all = "snake_case")]
#[schemars(rename = "Unit")]
pub enum QuotaUnit {
    /// Requests.
    #[default]
    Requests,
    /// Tokens of a language model, as costs say how many.
    Tokens,
    /// Tokens that requests have.
    InputTokens,
    /// Tokens that responses have.
    OutputTokens,
    /// Millionths of a dollar, as costs say how many. Quotas are written in dollars: `$500/1mo`.
    Usd,
}

impl QuotaUnit {
    /// True for tokens of any kind.
    pub(super) fn is_tokens(self) -> bool {
        matches!(self, Self::Tokens | Self::InputTokens | Self::OutputTokens)
    }
}

/// A policy in header fields.
#[derive(Clone, Debug)]
pub struct AdvertisedPolicy {
    pub(super) name: FieldValue,
    pub(super) limit: FieldValue,
    /// `"name";q=100;w=60`
    pub(super) policy_item: FieldValue,
    /// `100;w=60`, as in draft -07.
    pub(super) quota_item: FieldValue,
    /// `"name";r=`
    pub(super) state_prefix: Box<str>,
    /// Most units that can remain: the burst if there is one, else the quota.
    pub(in crate::proxy) capacity: u64,
    pub unit: QuotaUnit,
}

impl AdvertisedPolicy {
    /// Describes the policy `name` (of `A-Z a-z 0-9 . _ -` only) with this algorithm.
    pub fn new(name: &str, algorithm: &Algorithm, unit: QuotaUnit) -> Self {
        Self::with_capacity(name, algorithm, algorithm.capacity(), unit)
    }

    fn with_capacity(name: &str, algorithm: &Algorithm, capacity: u64, unit: QuotaUnit) -> Self {
        let rate = algorithm.rate();
        let advertised = rate.and_then(|rate| in_whole_seconds(rate, capacity));
        let (quota, window) = match (advertised, rate) {
            (Some((units, seconds)), _) => (units, format!(";w={seconds}")),
            (None, _) => (capacity, String::new()),
        };
        let quota = format!("{quota}{window}{}", quota_unit(algorithm, unit));
        AdvertisedPolicy {
            name: field_value(name.as_bytes()),
            limit: capacity.into(),
            policy_item: field_value(format!("\"{name}\";q={quota}").as_bytes()),
            quota_item: field_value(quota.as_bytes()),
            state_prefix: format!("\"{name}\";r=").into(),
            capacity,
            unit,
        }
    }
    /// The policy with a smaller burst.
    pub(in crate::proxy) fn with_burst(&self, burst: u64, algorithm: &Algorithm) -> Self {
        Self::with_capacity(self.name(), algorithm, burst, self.unit)
    }

    /// The policy with so many units per window.
    pub(in crate::proxy) fn with_limit(&self, limit: u64, window: Duration) -> Option<Self> {
        let quota = Quota::new(0, window).ok()?;
        let window = FixedWindow::new(quota, Start::EPOCH).with_limit(limit);
        let algorithm = Algorithm::FixedWindow(window);
        Some(Self::new(self.name(), &algorithm, self.unit))
    }

    /// The name that clients read.
    pub(crate) fn name(&self) -> &str {
        let name = self.state_prefix.strip_prefix('"');
        let name = name.and_then(|name| name.strip_suffix("\";r="));
        name.unwrap_or_default()
    }
}

/// The parameter that names a unit other than requests (draft-ietf-httpapi-ratelimit-headers-11
/// section 3.1.2). `tokens` and `usd-micros` are not among the units that the draft registers.
fn quota_unit(algorithm: &Algorithm, unit: QuotaUnit) -> &'static str {
    match algorithm.is_concurrency() {
        _ if unit.is_tokens() => ";qu=\"tokens\"",
        _ if unit == QuotaUnit::Usd => ";qu=\"usd-micros\"",
        true => ";qu=\"concurrent-requests\"",
        false => "",
    }
}

/// The shortest multiple of this rate (units in microseconds) with whole seconds and at least the
/// capacity: units, and seconds. `None` if a number exceeds the largest integer of a structured
/// field.
fn in_whole_seconds((units, micros): (u64, u64), capacity: u64) -> Option<(u64, u64)> {
    if units == 0 || capacity == 0 {
        return Some((0, micros.div_ceil(MICROS_PER_SECOND)));
    }
    let windows = MICROS_PER_SECOND / greatest_common_divisor(micros, MICROS_PER_SECOND);
    let fewest = units.checked_mul(windows)?;
    let windows = windows.checked_mul(capacity.div_ceil(fewest))?;
    let fitting = |number: u128| {
        let number = u64::try_from(number).ok()?;
        (number <= LARGEST_INTEGER).then_some(number)
    };
    let units = u128::from(units) * u128::from(windows);
    let micros = u128::from(micros) * u128::from(windows);
    Some((
        fitting(units)?,
        fitting(micros / u128::from(MICROS_PER_SECOND))?,
    ))
}

fn greatest_common_divisor(mut left: u64, mut right: u64) -> u64 {
    while right != 0 {
        (left, right) = (right, left % right);
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_is_advertised_in_whole_seconds_at_exactly_its_rate() {
        const SECOND: u64 = 1_000_000;
        for (rate, capacity, expected) in [
            ((100, 60 * SECOND), 100, Some((100, 60))),
            ((5, SECOND / 2), 5, Some((10, 1))),
            ((1, 1_500_000), 1, Some((2, 3))),
            ((10, 60 * SECOND), 50, Some((50, 300))),
            ((100, 60 * SECOND), 10, Some((100, 60))),
            ((1, SECOND / 100), 500, Some((500, 5))),
            ((7, 60 * SECOND), 10, Some((14, 120))),
            ((500, SECOND), 501, Some((1_000, 2))),
            ((0, SECOND / 2), 0, Some((0, 1))),
            ((u64::from(u32::MAX), SECOND + 1), u64::from(u32::MAX), None),
        ] {
            assert_eq!(in_whole_seconds(rate, capacity), expected, "{rate:?}");
        }
    }
}
