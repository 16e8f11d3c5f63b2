//! The header fields that tell a client where it stands: the IETF draft's and the older styles, on
//! admitted and on refused responses alike. A new style is a variant of
//! [`Style`] and a function below.

mod advertised_policy;
mod styles;
#[cfg(test)]
mod tests;

use http::header::{HeaderName, RETRY_AFTER};

use crate::clock::Timestamp;
use crate::http::headers::{FieldValue, Headers};
use crate::limiter::{Algorithm, Decision, Outcome, Verdict};

pub use advertised_policy::{AdvertisedPolicy, QuotaUnit};
pub use styles::{Exposure, HeaderStyles, Style, StyleFields};

const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const RETRY_AFTER_MS: HeaderName = HeaderName::from_static("retry-after-ms");

/// Room for what is said of the policies of most requests, in bytes.
const LIST_CAPACITY: usize = 64;

/// A policy that decided on a request, and its decision.
pub(crate) struct AppliedPolicy<'a> {
    pub facts: &'a AdvertisedPolicy,
    pub algorithm: &'a Algorithm,
    pub decision: &'a Decision,
}

impl AppliedPolicy<'_> {
    /// The units that remain. What was granted beyond the capacity is not told.
    fn remaining(&self) -> u32 {
        self.decision.remaining.min(self.facts.capacity)
    }

    /// When the older styles say that the wait is over: a refused client is told when it is admitted. `None`
    /// where nothing is ever admitted.
    fn reset_at(&self, now: Timestamp) -> Option<Timestamp> {
        let reset = match self.decision.outcome {
            Outcome::Refuse { retry_at } => retry_at.unwrap_or(self.decision.reset),
            Outcome::Admit | Outcome::Delay { .. } => self.decision.reset,
        };
        (self.facts.capacity > 0).then(|| reset.max(now).max(self.earliest(now)))
    }

    /// The least instant that can be told: that of a refused client is never the present one, as with Retry-After.
    fn earliest(&self, now: Timestamp) -> Timestamp {
        match self.decision.outcome {
            Outcome::Refuse { retry_at: Some(_) } => now.saturating_add_micros(1),
            _ => now,
        }
    }

    /// Seconds until then.
    fn reset(&self, now: Timestamp) -> Option<u64> {
        self.reset_at(now).map(|reset| seconds(reset, now))
    }
}

/// Adds the fields of every style in `styles`. `deciding` is the place of the deciding policy in
/// `applied`: the older styles speak of that one alone.
pub(crate) fn write(
    styles: &HeaderStyles,
    applied: &[AppliedPolicy<'_>],
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
                if let Some(reset) = decider.reset(now) {
                    headers.insert(&fields.reset, reset);
                }
            }
            Style::GitHub => github(fields, decider, now, headers),
            Style::OpenAi => openai(fields, applied, deciding, now, headers),
        }
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
        let milliseconds = micros(retry_at, now).div_ceil(1_000).max(1);
        headers.insert(RETRY_AFTER_MS, milliseconds);
    }
}

/// The seconds that Retry-After says.
pub(crate) fn retry_after(retry_at: Timestamp, now: Timestamp) -> u64 {
    seconds(retry_at, now).max(1)
}

/// Appended, so that what the upstream says of its own limits stays beside it in the list.
fn ietf(applied: &[AppliedPolicy<'_>], now: Timestamp, headers: &mut Headers) {
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
        item.extend_from_slice(digits.format(limit.remaining()).as_bytes());
        if let Some(more_at) = limit.algorithm.more_at(limit.decision, now) {
            let more_at = more_at.max(limit.earliest(now));
            item.extend_from_slice(b";t=");
            item.extend_from_slice(digits.format(seconds(more_at, now)).as_bytes());
        }
    });
    headers.append(RATELIMIT, states);
}

/// A list (RFC 9651 section 3.1) of what `write` says of each limit.
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
    visible(&list)
}

const VISIBLE: &str = "names, digits and separators are visible ASCII";

fn visible(text: &[u8]) -> FieldValue {
    FieldValue::try_from(text).expect(VISIBLE)
}

/// `limit=100, remaining=50, reset=30`
fn draft7(decider: &AppliedPolicy<'_>, now: Timestamp, headers: &mut Headers) {
    let (limit, remaining) = (decider.facts.capacity, decider.remaining());
    let mut state = format!("limit={limit}, remaining={remaining}");
    if let Some(reset) = decider.reset(now) {
        state += &format!(", reset={reset}");
    }
    headers.insert(RATELIMIT_POLICY, decider.facts.quota_item.clone());
    headers.insert(RATELIMIT, visible(state.as_bytes()));
}

fn plain(fields: &StyleFields, decider: &AppliedPolicy<'_>, headers: &mut Headers) {
    headers.insert(&fields.limit, decider.facts.limit.clone());
    headers.insert(&fields.remaining, u64::from(decider.remaining()));
}

fn github(
    fields: &StyleFields,
    decider: &AppliedPolicy<'_>,
    now: Timestamp,
    headers: &mut Headers,
) {
    plain(fields, decider, headers);
    let used = decider.facts.capacity - decider.remaining();
    headers.insert(&fields.used, u64::from(used));
    headers.insert(&fields.resource, decider.facts.name.clone());
    if let Some(reset) = decider.reset_at(now) {
        headers.insert(&fields.reset, reset.as_micros().div_ceil(1_000_000));
    }
}

/// Fields for requests and for tokens, each of the deciding limit among those in that unit.
fn openai(
    fields: &StyleFields,
    applied: &[AppliedPolicy<'_>],
    deciding: usize,
    now: Timestamp,
    headers: &mut Headers,
) {
    let of_requests = [&fields.limit, &fields.remaining, &fields.reset];
    let of_tokens = fields.tokens.each_ref();
    for (unit, names) in [
        (QuotaUnit::Requests, of_requests),
        (QuotaUnit::Tokens, of_tokens),
    ] {
        let Some(decider) = deciding_in(unit, applied, deciding) else {
            continue;
        };
        let [limit, remaining, reset] = names;
        headers.insert(limit, decider.facts.limit.clone());
        headers.insert(remaining, u64::from(decider.remaining()));
        if let Some(at) = decider.reset_at(now) {
            let text = go_duration(micros(at, now));
            headers.insert(reset, visible(text.as_bytes()));
        }
    }
}

/// The limit that decides, were there only those in this unit.
fn deciding_in<'a, 'b>(
    unit: QuotaUnit,
    applied: &'a [AppliedPolicy<'b>],
    deciding: usize,
) -> Option<&'a AppliedPolicy<'b>> {
    let is_in = |limit: &&AppliedPolicy<'_>| limit.facts.unit == unit;
    if let Some(decider) = applied.get(deciding).filter(is_in) {
        return Some(decider);
    }
    let place = index_of_deciding(applied.iter().filter(is_in))?;
    applied.iter().filter(is_in).nth(place)
}

/// The place of the limit that decides, were there only these.
pub(crate) fn index_of_deciding<'a>(
    applied: impl Iterator<Item = &'a AppliedPolicy<'a>>,
) -> Option<usize> {
    let mut verdict = Verdict::default();
    for one in applied {
        verdict.push(*one.decision);
    }
    verdict.decision().map(|_| verdict.deciding)
}

fn micros(instant: Timestamp, now: Timestamp) -> u64 {
    instant.as_micros().saturating_sub(now.as_micros())
}

fn seconds(instant: Timestamp, now: Timestamp) -> u64 {
    micros(instant, now).div_ceil(1_000_000)
}

/// A duration as Go, and so OpenAI, writes it: `120ms`, `1s`, `8.64s`, `6m0s`, `1h0m0s`; rounded up to
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
