//! Rate-limit fields in the styles of the IETF drafts, GitHub, OpenAI, Anthropic and others, on all responses.
//!
//! A new style is a variant of [`Style`] and a function here.

mod advertised_policy;
mod items;
mod styles;
#[cfg(test)]
mod tests;

use http::header::{HeaderName, RETRY_AFTER};
use readable::time::rfc_3339;

use crate::clock::Timestamp;
use crate::http::headers::{FieldValue, Headers};
use crate::limiter::{Algorithm, Decision, Outcome, Verdict};

pub use advertised_policy::{AdvertisedPolicy, QuotaUnit};
pub use styles::{Exposure, HeaderStyles, Style, StyleFields};

const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const RETRY_AFTER_MS: HeaderName = HeaderName::from_static("retry-after-ms");
const GRPC_RETRY_PUSHBACK_MS: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");

/// Initial capacity of a list, in bytes: enough for the policies of most requests.
const LIST_CAPACITY: usize = 64;

/// A policy and its decision on a request.
pub(crate) struct AppliedPolicy<'a> {
    pub policy: &'a AdvertisedPolicy,
    /// The policy under the request's own limit: one that it states, or the burst of an override.
    pub own: Option<Box<AdvertisedPolicy>>,
    pub algorithm: &'a Algorithm,
    pub decision: &'a Decision,
}

impl AppliedPolicy<'_> {
    fn advertised(&self) -> &AdvertisedPolicy {
        self.own.as_deref().unwrap_or(self.policy)
    }

    /// Remaining units, without any that were granted beyond the capacity.
    pub(crate) fn remaining(&self) -> u64 {
        self.decision.remaining.min(self.advertised().capacity)
    }

    /// Used units.
    pub(crate) fn used(&self) -> u64 {
        self.advertised().capacity - self.remaining()
    }

    /// The instant at which more units remain, if that is known.
    pub(crate) fn more_at(&self, now: Timestamp) -> Option<Timestamp> {
        let more_at = self.algorithm.more_at(self.decision, now)?;
        Some(more_at.max(self.earliest_reset(now)))
    }

    /// The reset of the older styles; for a refused client the time of its admission. `None` with a
    /// quota of 0.
    pub(crate) fn reset_at(&self, now: Timestamp) -> Option<Timestamp> {
        let reset = match self.decision.outcome {
            Outcome::Refuse { retry_at } => retry_at.unwrap_or(self.decision.reset),
            Outcome::Admit | Outcome::Delay { .. } => self.decision.reset,
        };
        (self.advertised().capacity > 0).then(|| reset.max(now).max(self.earliest_reset(now)))
    }

    /// The earliest reset. A refused client never gets the present instant, as in Retry-After.
    fn earliest_reset(&self, now: Timestamp) -> Timestamp {
        match self.decision.outcome {
            Outcome::Refuse { retry_at: Some(_) } => now.saturating_add_micros(1),
            _ => now,
        }
    }

    /// Seconds until the reset.
    fn seconds_to_reset(&self, now: Timestamp) -> Option<u64> {
        self.reset_at(now).map(|reset| seconds_until(reset, now))
    }
}

/// Adds the fields of all `styles`. `deciding` is the index of the deciding policy in `applied`:
/// the older styles describe only that one.
pub(crate) fn write(
    styles: &HeaderStyles,
    applied: &[AppliedPolicy<'_>],
    deciding: usize,
    now: Timestamp,
    headers: &mut Headers,
) {
    if applied.is_empty() {
        return;
    }
    let rate = deciding_rate(applied, deciding, |_| true);
    for StyleFields { style, names } in &styles.all {
        match (style, rate) {
            (Style::Ietf, _) => write_ietf(applied, now, headers),
            (_, None) => {}
            (Style::Draft7, Some(rate)) => write_draft7(rate, now, headers),
            (Style::Draft6 | Style::XRateLimit, Some(rate)) => {
                let reset = write_limit_and_remaining(names, rate, headers);
                if let Some(at) = rate.seconds_to_reset(now) {
                    headers.insert(reset, at);
                }
            }
            (Style::GitHub, Some(rate)) => write_github(names, rate, now, headers),
            (Style::OpenAi, Some(_)) => {
                let text = |at| go_duration(micros_until(at, now));
                write_units(names, applied, deciding, now, headers, text);
            }
            (Style::Anthropic, Some(_)) => {
                write_units(names, applied, deciding, now, headers, whole_second);
            }
        }
    }
    styles.expose(headers);
}

/// Adds items to the lists of a response by which the upstream refuses, and nothing else: fields
/// without the upstream's limit would announce more than the upstream does
/// (draft-ietf-httpapi-ratelimit-headers-11 section 7.2).
pub(crate) fn join(
    styles: &HeaderStyles,
    applied: &[AppliedPolicy<'_>],
    now: Timestamp,
    headers: &mut Headers,
) {
    let mut lists = headers.get_all(RATELIMIT);
    let has_list = headers.contains(RATELIMIT) && lists.all(items::is_list_of_policies);
    drop(lists);
    if has_list && styles.contains(Style::Ietf) && !applied.is_empty() {
        write_ietf(applied, now, headers);
    }
    styles.expose(headers);
}

/// Adds Retry-After (RFC 9110 section 10.2.3): whole seconds, rounded up, at least 1.
pub(crate) fn write_retry_after(
    styles: &HeaderStyles,
    retry_at: Timestamp,
    now: Timestamp,
    headers: &mut Headers,
) {
    headers.insert(RETRY_AFTER, retry_after(retry_at, now));
    if styles.contains(Style::OpenAi) {
        headers.insert(RETRY_AFTER_MS, milliseconds(retry_at, now));
    }
}

/// Adds the wait before a client of gRPC tries again (gRFC A6), in milliseconds: a signed number of 32
/// bits.
pub(crate) fn write_pushback(retry_at: Timestamp, now: Timestamp, headers: &mut Headers) {
    let wait = milliseconds(retry_at, now).min(i32::MAX as u64);
    headers.insert(GRPC_RETRY_PUSHBACK_MS, wait);
}

/// Milliseconds, rounded up, at least 1.
fn milliseconds(retry_at: Timestamp, now: Timestamp) -> u64 {
    micros_until(retry_at, now).div_ceil(1_000).max(1)
}

/// The value of Retry-After, in seconds.
pub(crate) fn retry_after(retry_at: Timestamp, now: Timestamp) -> u64 {
    seconds_until(retry_at, now).max(1)
}

/// Appends to lists of the upstream's own limits. Anything else in these fields is replaced: with
/// ours it would make a field that no client can read.
fn write_ietf(applied: &[AppliedPolicy<'_>], now: Timestamp, headers: &mut Headers) {
    let policies = match applied {
        [only] => only.advertised().policy_item.clone(),
        several => list(several, |limit, item| {
            item.extend_from_slice(limit.advertised().policy_item.as_bytes());
        }),
    };
    let is_list = |name: &HeaderName| *name == RATELIMIT || *name == RATELIMIT_POLICY;
    let has_lists = headers.names().any(is_list);
    add(headers, RATELIMIT_POLICY, policies, has_lists);
    let states = list(applied, |limit, item| {
        let mut digits = itoa::Buffer::new();
        item.extend_from_slice(limit.advertised().state_prefix.as_bytes());
        item.extend_from_slice(digits.format(limit.remaining()).as_bytes());
        if let Some(more_at) = limit.more_at(now) {
            item.extend_from_slice(b";t=");
            item.extend_from_slice(digits.format(seconds_until(more_at, now)).as_bytes());
        }
    });
    add(headers, RATELIMIT, states, has_lists);
}

fn add(headers: &mut Headers, name: HeaderName, list: FieldValue, has_lists: bool) {
    if !has_lists || headers.get_all(&name).all(items::is_list_of_policies) {
        headers.append(name, list)
    } else {
        headers.insert(name, list)
    }
}

/// Builds a list (RFC 9651 section 3.1), with one item for each policy.
fn list(
    applied: &[AppliedPolicy<'_>],
    write: impl Fn(&AppliedPolicy<'_>, &mut Vec<u8>),
) -> FieldValue {
    let mut list = Vec::with_capacity(LIST_CAPACITY);
    for limit in applied {
        if !list.is_empty() {
            list.extend_from_slice(b", ");
        }
        write(limit, &mut list);
    }
    field_value(&list)
}

const VISIBLE: &str = "names, digits and separators are visible ASCII";

fn field_value(text: &[u8]) -> FieldValue {
    FieldValue::try_from(text).expect(VISIBLE)
}

/// `limit=100, remaining=50, reset=30`
fn write_draft7(decider: &AppliedPolicy<'_>, now: Timestamp, headers: &mut Headers) {
    let (limit, remaining) = (decider.advertised().capacity, decider.remaining());
    let mut state = format!("limit={limit}, remaining={remaining}");
    if let Some(reset) = decider.seconds_to_reset(now) {
        state += &format!(", reset={reset}");
    }
    headers.insert(RATELIMIT_POLICY, decider.advertised().quota_item.clone());
    headers.insert(RATELIMIT, field_value(state.as_bytes()));
}

/// Writes the fields with the first two of these names, and returns the third.
fn write_limit_and_remaining<'n>(
    names: &'n [HeaderName],
    decider: &AppliedPolicy<'_>,
    headers: &mut Headers,
) -> &'n HeaderName {
    headers.insert(&names[0], decider.advertised().limit.clone());
    headers.insert(&names[1], decider.remaining());
    &names[2]
}

fn write_github(
    names: &[HeaderName],
    decider: &AppliedPolicy<'_>,
    now: Timestamp,
    headers: &mut Headers,
) {
    let reset = write_limit_and_remaining(names, decider, headers);
    headers.insert(&names[3], decider.used());
    headers.insert(&names[4], decider.advertised().name.clone());
    if let Some(at) = decider.reset_at(now) {
        headers.insert(reset, at.as_micros().div_ceil(1_000_000));
    }
}

/// Writes three fields for requests, for all tokens, and for those of each kind if there are names:
/// each of the deciding policy among those in that unit.
fn write_units(
    names: &[HeaderName],
    applied: &[AppliedPolicy<'_>],
    deciding: usize,
    now: Timestamp,
    headers: &mut Headers,
    text: impl Fn(Timestamp) -> String,
) {
    let units: [fn(QuotaUnit) -> bool; 4] = [
        |unit| unit == QuotaUnit::Requests,
        QuotaUnit::is_tokens,
        |unit| unit == QuotaUnit::InputTokens,
        |unit| unit == QuotaUnit::OutputTokens,
    ];
    for (is_wanted, names) in units.into_iter().zip(names.chunks(3)) {
        let is_in = |limit: &AppliedPolicy<'_>| is_wanted(limit.advertised().unit);
        let Some(decider) = deciding_rate(applied, deciding, is_in) else {
            continue;
        };
        let reset = write_limit_and_remaining(names, decider, headers);
        if let Some(at) = decider.reset_at(now) {
            headers.insert(reset, field_value(text(at).as_bytes()));
        }
    }
}

/// The deciding policy among those that are `wanted`. The older styles know rates only: requests in
/// flight are none.
fn deciding_rate<'a, 'b>(
    applied: &'a [AppliedPolicy<'b>],
    deciding: usize,
    wanted: impl Fn(&AppliedPolicy<'_>) -> bool,
) -> Option<&'a AppliedPolicy<'b>> {
    let is_in = |limit: &&AppliedPolicy<'_>| !limit.algorithm.is_concurrency() && wanted(limit);
    if let Some(decider) = applied.get(deciding).filter(is_in) {
        return Some(decider);
    }
    let place = index_of_deciding(applied.iter().filter(is_in))?;
    applied.iter().filter(is_in).nth(place)
}

/// The index of the deciding policy among these.
pub(crate) fn index_of_deciding<'a>(
    applied: impl Iterator<Item = &'a AppliedPolicy<'a>>,
) -> Option<usize> {
    let mut verdict = Verdict::default();
    for one in applied {
        verdict.push(*one.decision);
    }
    verdict.decision().map(|_| verdict.deciding)
}

fn micros_until(instant: Timestamp, now: Timestamp) -> u64 {
    instant.as_micros().saturating_sub(now.as_micros())
}

fn seconds_until(instant: Timestamp, now: Timestamp) -> u64 {
    micros_until(instant, now).div_ceil(1_000_000)
}

/// Formats an instant as Anthropic does, rounded up: `2026-11-29T17:00:00Z`.
fn whole_second(instant: Timestamp) -> String {
    let seconds = instant.as_micros().div_ceil(1_000_000);
    rfc_3339(Timestamp::from_micros(seconds.saturating_mul(1_000_000)))
}

/// Formats a duration as Go and OpenAI do: `120ms`, `1s`, `8.64s`, `6m0s`, `1h0m0s`; rounded up to
/// milliseconds.
fn go_duration(micros: u64) -> String {
    let milliseconds = micros.div_ceil(1_000);
    if milliseconds < 1_000 {
        return format!("{milliseconds}ms");
    }
    let total = milliseconds / 1_000;
    let (hours, minutes, seconds) = (total / 3_600, total / 60 % 60, total % 60);
    let fraction = format!(".{:03}", milliseconds % 1_000);
    let fraction = fraction.trim_end_matches('0').trim_end_matches('.');
    match (hours, minutes) {
        (0, 0) => format!("{seconds}{fraction}s"),
        (0, _) => format!("{minutes}m{seconds}{fraction}s"),
        _ => format!("{hours}h{minutes}m{seconds}{fraction}s"),
    }
}
