//! The header fields that tell a client where it stands: the IETF draft's and the older styles, on
//! admitted and on refused responses alike. A new style is a variant of
//! [`Style`] and a function below.

mod styles;

use http::header::{HeaderName, RETRY_AFTER};

use crate::clock::Timestamp;
use crate::http_ext::headers::{FieldValue, Headers};
use crate::limiter::{Algorithm, Decision, Outcome};

pub use styles::{Exposure, Fields, Style, Styles};

const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const RETRY_AFTER_MS: HeaderName = HeaderName::from_static("retry-after-ms");

/// Room for what is said of the policies of most requests, in bytes.
const USUAL_LIST: usize = 64;

/// What a policy's name and quota look like in header fields, written once.
#[derive(Clone, Debug)]
pub struct Facts {
    name: FieldValue,
    limit: FieldValue,
    /// `"name";q=100;w=60`
    policy_item: FieldValue,
    /// `100;w=60`, as in draft -07.
    quota_item: FieldValue,
    /// `"name";r=`
    state_prefix: Box<str>,
    quota: u32,
}

/// A policy that decided on a request, and its decision.
pub(super) struct Applied<'a> {
    pub facts: &'a Facts,
    pub algorithm: &'a Algorithm,
    pub decision: &'a Decision,
}

impl Facts {
    /// The facts of the policy `name` (of `A-Z a-z 0-9 . _ -` only) with this algorithm.
    pub fn new(name: &str, algorithm: &Algorithm) -> Self {
        let limit = algorithm.limit();
        let of_what = match algorithm.window() {
            Some(window) => format!(";w={}", window.as_secs()),
            // What draft-ietf-httpapi-ratelimit-headers calls the unit of such a quota.
            None => ";qu=\"concurrent-requests\"".to_owned(),
        };
        Facts {
            name: visible(name.as_bytes()),
            limit: u64::from(limit).into(),
            policy_item: visible(format!("\"{name}\";q={limit}{of_what}").as_bytes()),
            quota_item: visible(format!("{limit}{of_what}").as_bytes()),
            state_prefix: format!("\"{name}\";r=").into(),
            quota: limit,
        }
    }
}

/// Adds the fields of every style in `styles`. `deciding` is the place of the deciding policy in
/// `applied`: the older styles speak of that one alone.
pub(super) fn write(
    styles: &Styles,
    applied: &[Applied<'_>],
    deciding: usize,
    now: Timestamp,
    headers: &mut Headers,
) {
    let Some(decider) = applied.get(deciding) else {
        return;
    };
    for fields in &styles.all {
        match fields.style {
            Style::Ietf => ietf(applied, now, headers),
            Style::Draft7 => draft7(decider, now, headers),
            Style::Draft6 | Style::XRateLimit => {
                plain(fields, decider, headers);
                headers.insert(&fields.reset, reset(decider, now));
            }
            Style::GitHub => github(fields, decider, now, headers),
            Style::OpenAi => openai(fields, decider, now, headers),
        }
    }
    styles.expose(headers);
}

/// Adds Retry-After (RFC 9110 section 10.2.3): whole seconds, rounded up, at least 1.
pub(super) fn write_retry_after(
    styles: &Styles,
    retry_at: Timestamp,
    now: Timestamp,
    headers: &mut Headers,
) {
    headers.insert(RETRY_AFTER, retry_after(retry_at, now));
    if styles.contains(Style::OpenAi) {
        let milliseconds = micros(retry_at, now).div_ceil(1_000);
        headers.insert(RETRY_AFTER_MS, milliseconds);
    }
}

/// The seconds that Retry-After says.
pub(super) fn retry_after(retry_at: Timestamp, now: Timestamp) -> u64 {
    seconds(retry_at, now).max(1)
}

/// Appended, so that what the upstream says of its own limits stays beside it in the list.
fn ietf(applied: &[Applied<'_>], now: Timestamp, headers: &mut Headers) {
    let policies = match applied {
        [only] => only.facts.policy_item.clone(),
        several => list(several, |limit, item| {
            item.extend_from_slice(limit.facts.policy_item.as_bytes());
        }),
    };
    headers.append(RATELIMIT_POLICY, policies);
    let states = list(applied, |limit, item| {
        let mut digits = itoa::Buffer::new();
        item.extend_from_slice(limit.facts.state_prefix.as_bytes());
        item.extend_from_slice(digits.format(limit.decision.remaining).as_bytes());
        if let Some(more_at) = limit.algorithm.more_at(limit.decision, now) {
            item.extend_from_slice(b";t=");
            item.extend_from_slice(digits.format(seconds(more_at, now)).as_bytes());
        }
    });
    headers.append(RATELIMIT, states);
}

/// A list (RFC 9651 section 3.1) of what `write` says of each limit.
fn list(applied: &[Applied<'_>], write: impl Fn(&Applied<'_>, &mut Vec<u8>)) -> FieldValue {
    let mut list = Vec::with_capacity(USUAL_LIST);
    for limit in applied {
        if !list.is_empty() {
            list.extend_from_slice(b", ");
        }
        write(limit, &mut list);
    }
    visible(&list)
}

const VISIBLE: &str = "names, digits and separators are visible ASCII";

fn visible(text: &[u8]) -> FieldValue {
    FieldValue::try_from(text).expect(VISIBLE)
}

/// `limit=100, remaining=50, reset=30`
fn draft7(decider: &Applied<'_>, now: Timestamp, headers: &mut Headers) {
    let (limit, remaining) = (decider.facts.quota, decider.decision.remaining);
    let reset = reset(decider, now);
    let state = format!("limit={limit}, remaining={remaining}, reset={reset}");
    headers.insert(RATELIMIT_POLICY, decider.facts.quota_item.clone());
    headers.insert(RATELIMIT, visible(state.as_bytes()));
}

fn plain(fields: &Fields, decider: &Applied<'_>, headers: &mut Headers) {
    headers.insert(&fields.limit, decider.facts.limit.clone());
    headers.insert(&fields.remaining, u64::from(decider.decision.remaining));
}

fn github(fields: &Fields, decider: &Applied<'_>, now: Timestamp, headers: &mut Headers) {
    plain(fields, decider, headers);
    let used = decider
        .facts
        .quota
        .saturating_sub(decider.decision.remaining);
    headers.insert(&fields.used, u64::from(used));
    headers.insert(&fields.resource, decider.facts.name.clone());
    let reset = reset_at(decider.decision, now)
        .as_micros()
        .div_ceil(1_000_000);
    headers.insert(&fields.reset, reset);
}

fn openai(fields: &Fields, decider: &Applied<'_>, now: Timestamp, headers: &mut Headers) {
    plain(fields, decider, headers);
    let text = short_duration(micros(reset_at(decider.decision, now), now));
    headers.insert(&fields.reset, visible(text.as_bytes()));
}

/// When the older styles say that the wait is over: a refused client is told when it is admitted.
fn reset_at(decision: &Decision, now: Timestamp) -> Timestamp {
    match decision.outcome {
        Outcome::Refuse { retry_at } => retry_at.unwrap_or(decision.reset).max(now),
        Outcome::Admit | Outcome::Delay { .. } => decision.reset.max(now),
    }
}

fn reset(decider: &Applied<'_>, now: Timestamp) -> u64 {
    seconds(reset_at(decider.decision, now), now)
}

fn micros(instant: Timestamp, now: Timestamp) -> u64 {
    instant.as_micros().saturating_sub(now.as_micros())
}

fn seconds(instant: Timestamp, now: Timestamp) -> u64 {
    micros(instant, now).div_ceil(1_000_000)
}

/// A duration as Go writes it: `120ms`, `1s`, `6m0s`, `1h0m0s`; rounded up to milliseconds below a
/// second, and to seconds above.
fn short_duration(micros: u64) -> String {
    let milliseconds = micros.div_ceil(1_000);
    if milliseconds < 1_000 {
        return format!("{milliseconds}ms");
    }
    let total = micros.div_ceil(1_000_000);
    let (hours, minutes, seconds) = (total / 3_600, total / 60 % 60, total % 60);
    match (hours, minutes) {
        (0, 0) => format!("{seconds}s"),
        (0, _) => format!("{minutes}m{seconds}s"),
        _ => format!("{hours}h{minutes}m{seconds}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_as_clients_of_that_style_expect() {
        let text = |milliseconds: u64| short_duration(milliseconds * 1_000);
        assert_eq!(text(0), "0ms");
        assert_eq!(text(120), "120ms");
        assert_eq!(text(999), "999ms");
        assert_eq!(text(1_000), "1s");
        assert_eq!(text(59_001), "1m0s");
        assert_eq!(text(360_000), "6m0s");
        assert_eq!(text(3_600_000), "1h0m0s");
    }
}
