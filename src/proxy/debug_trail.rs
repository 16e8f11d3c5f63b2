//! The debug header: a request with the configured token gets the decisions of its limits back.
//!
//! The value is a list of structured fields (RFC 9651 section 3.1): the request, then each limit of
//! its route. It names keys by their fingerprints, never by their text.

use std::fmt::Write;
use std::time::Duration;

use http::header::{CACHE_CONTROL, HeaderValue};

use super::ruleset::{DebugSpec, Limit, Quota, Route};
use crate::clock::Timestamp;
use crate::http::headers::Headers;
use crate::http::token_digest::TokenDigest;
use crate::limiter::{Decision, Fingerprint, Outcome};
use crate::proxy::admission::applicability::Applicability;
use crate::proxy::admission::mode::Enforcement;
use crate::proxy::admission::{Admission, AdmissionInputs, LimitRecord};
use crate::proxy::answers::limit_headers;
use crate::store::DecidedBucket;
use crate::telemetry::metrics::LimitDecision;

/// The longest value, in bytes: many clients and proxies take heads of 8 KiB.
const MAX_BYTES: usize = 4096;
/// Room for the number of limits that are left out, in bytes.
const REST_BYTES: usize = ", more;limits=".len() + 5;

/// The decisions of limits on one request, an item of the field each.
#[derive(Debug, Default)]
pub(super) struct DebugTrail {
    limits: Vec<String>,
}

/// The outcome of a request, beside its limits.
pub(super) struct RequestOutcome<'a> {
    pub route: &'a Route,
    /// The deciding policy and its decision, once the limits have decided.
    pub decision: Option<(&'a str, LimitDecision)>,
    /// The reason for an error of the proxy.
    pub error: Option<&'a str>,
    /// The time to the head of the response.
    pub elapsed: Duration,
    /// The upstream and the endpoint that the request was sent to.
    pub upstream: Option<(&'a str, &'a str)>,
    /// The time to the head of the upstream's response.
    pub upstream_time: Option<Duration>,
}

impl DebugSpec {
    /// A trail for a request with the token. Several fields, or another token, make none.
    pub(super) fn begin(&self, headers: &Headers) -> Option<Box<DebugTrail>> {
        let mut given = headers.get_all(&self.header);
        let token = given.next()?;
        let is_right = given.next().is_none() && self.token.matches(&TokenDigest::of(token));
        is_right.then(Box::default)
    }

    /// Writes the trail into the response, which no cache may store.
    pub(super) fn write(
        &self,
        trail: &DebugTrail,
        request: &RequestOutcome<'_>,
        headers: &mut Headers,
    ) {
        let mut value = request.item();
        for (place, limit) in trail.limits.iter().enumerate() {
            if value.len() + ", ".len() + limit.len() + REST_BYTES > MAX_BYTES {
                let rest = trail.limits.len() - place;
                _ = write!(value, ", more;limits={rest}");
                break;
            }
            value.push_str(", ");
            value.push_str(limit);
        }
        if let Ok(value) = HeaderValue::try_from(value) {
            headers.insert(&self.header, value);
            headers.insert(
                CACHE_CONTROL,
                const { HeaderValue::from_static("no-store") },
            );
        }
    }
}

impl DebugTrail {
    /// Records the final decisions of all limits of the route.
    pub(super) fn record(&mut self, inputs: &AdmissionInputs<'_>, admission: &Admission) {
        let limits = (0_u16..).zip(&inputs.route.limits);
        let items = limits.map(|(number, limit)| {
            let mut records = admission.records().iter();
            let record = records.find(|record| record.limit == number);
            let decided = record.and_then(|record| admission.decision_of(record));
            let mut item = LimitItem::new(limit);
            match (record, decided) {
                (Some(record), Some((bucket, decision))) => {
                    let mode = admission.enforcement_of(record);
                    item.decided((limit, record), (bucket, decision), mode, inputs.now);
                }
                _ => item.undecided((number, limit), record, inputs),
            }
            item.0
        });
        self.limits = items.collect();
    }
}

impl RequestOutcome<'_> {
    /// `request;route="search";decision=limited;policy="per-key";ms=0.412`
    fn item(&self) -> String {
        let mut item = String::from("request");
        text(&mut item, "route", &self.route.name);
        if let Some((policy, decision)) = self.decision {
            token(&mut item, "decision", decision.as_str());
            if !policy.is_empty() {
                text(&mut item, "policy", policy);
            }
        }
        if let Some(error) = self.error {
            text(&mut item, "error", error);
        }
        if let Some((upstream, endpoint)) = self.upstream {
            text(&mut item, "upstream", upstream);
            text(&mut item, "endpoint", endpoint);
        }
        milliseconds(&mut item, "ms", self.elapsed);
        if let Some(time) = self.upstream_time {
            milliseconds(&mut item, "upstream-ms", time);
        }
        item
    }
}

/// `limit;policy="per-key";decision=limited;..`
struct LimitItem(String);

impl LimitItem {
    fn new(limit: &Limit) -> Self {
        let mut item = String::from("limit");
        text(&mut item, "policy", &limit.policy.name);
        Self(item)
    }

    fn decided(
        &mut self,
        (limit, record): (&Limit, &LimitRecord),
        (bucket, decision): (&DecidedBucket, &Decision),
        mode: Enforcement,
        now: Timestamp,
    ) {
        let id = bucket.id;
        token(&mut self.0, "decision", record.word.as_str());
        number(&mut self.0, "limit", decision.capacity.into());
        number(&mut self.0, "remaining", decision.remaining.into());
        self.wait(decision, now);
        self.mode(mode);
        self.bucket(limit.chosen(id), bucket.key);
        if id.place.is_some() {
            self.0.push_str(";override");
        }
        if let Some(soft) = limit.soft_limit(id) {
            number(&mut self.0, "soft-limit", soft.above.into());
        }
        if id.tier > 0 {
            number(&mut self.0, "tier", id.tier.into());
        }
    }

    /// A limit without a decision of its bucket.
    fn undecided(
        &mut self,
        (number, limit): (u16, &Limit),
        record: Option<&LimitRecord>,
        inputs: &AdmissionInputs<'_>,
    ) {
        let applicability = limit.evaluate(inputs.secret, inputs.head);
        let place = applicability.place();
        let enforcement = limit.enforcement(place, inputs.head);
        let is_tag = inputs.route.is_tag(number);
        let word = match (record, applicability) {
            (Some(record), _) => record.word.as_str(),
            (None, Applicability::Elsewhere) => "not_applicable",
            (None, Applicability::Exempt | Applicability::Skipped) => {
                LimitDecision::Exempt.as_str()
            }
            (None, Applicability::Keyless(_)) if !is_tag => match enforcement {
                Enforcement::Enforced => LimitDecision::Limited.as_str(),
                Enforcement::Shadowed => LimitDecision::Shadowed.as_str(),
            },
            (None, Applicability::Keyless(_) | Applicability::Bucket(..)) => "not_asked",
        };
        token(&mut self.0, "decision", word);
        self.mode(enforcement);
        if let Applicability::Bucket(key, place) = applicability {
            self.bucket(limit.quota(place), key);
        }
    }

    fn wait(&mut self, decision: &Decision, now: Timestamp) {
        let (name, until) = match decision.outcome {
            Outcome::Admit => return,
            Outcome::Delay { until } => ("delay", until),
            Outcome::Refuse { retry_at: None } => return self.0.push_str(";never"),
            Outcome::Refuse { retry_at: Some(at) } => ("retry-after", at),
        };
        number(&mut self.0, name, limit_headers::retry_after(until, now));
    }

    fn mode(&mut self, enforcement: Enforcement) {
        let mode = match enforcement {
            Enforcement::Enforced => "enforce",
            Enforcement::Shadowed => "shadow",
        };
        token(&mut self.0, "mode", mode);
    }

    fn bucket(&mut self, quota: &Quota, key: Fingerprint) {
        text(&mut self.0, "key", &key.to_string());
        token(&mut self.0, "store", quota.buckets.home.into_str());
    }
}

/// Adds a parameter that is a token.
fn token(item: &mut String, name: &str, value: &str) {
    _ = write!(item, ";{name}={value}");
}

/// Adds a parameter that is a string.
fn text(item: &mut String, name: &str, value: &str) {
    _ = write!(item, ";{name}=\"");
    for character in value.chars() {
        match character {
            '"' | '\\' => item.extend(['\\', character]),
            ' '..='~' => item.push(character),
            _ => item.push('?'),
        }
    }
    item.push('"');
}

/// The largest integer of a structured field (RFC 9651 section 3.3.1).
const LARGEST_INTEGER: u64 = 999_999_999_999_999;

/// Adds a parameter that is an integer.
fn number(item: &mut String, name: &str, value: u64) {
    _ = write!(item, ";{name}={}", value.min(LARGEST_INTEGER));
}

/// Adds a parameter that is a decimal.
fn milliseconds(item: &mut String, name: &str, value: Duration) {
    let micros = value.as_micros().min(LARGEST_INTEGER.into());
    _ = write!(item, ";{name}={}.{:03}", micros / 1_000, micros % 1_000);
}
