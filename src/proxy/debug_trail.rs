//! The debug header: a request with the configured token gets the decisions of its limits back.
//!
//! The value is a list of structured fields (RFC 9651 section 3.1): the request, then each limit of
//! its route. It names keys by their fingerprints, never by their text.

use std::fmt::Write;
use std::time::Duration;

use http::header::{CACHE_CONTROL, HeaderValue};

use super::ruleset::{DebugSpec, Limit, Quota};
use crate::clock::Timestamp;
use crate::http::headers::Headers;
use crate::http::token_digest::TokenDigest;
use crate::limiter::{Decision, Fingerprint, Outcome};
use crate::proxy::admission::applicability::Applicability;
use crate::proxy::admission::mode::Enforcement;
use crate::proxy::admission::{Admission, AdmissionInputs, LimitRecord};
use crate::proxy::answers::limit_headers;
use crate::telemetry::metrics::LimitDecision;

/// The longest value, in bytes: many clients and proxies take heads of 8 KiB.
const MAX_BYTES: usize = 4096;
/// Room for the number of limits that are left out, in bytes.
const REST_BYTES: usize = ", more;limits=".len() + 5;

impl DebugSpec {
    /// An empty trail, for a request with the token. Several fields, or another token, make none.
    pub(super) fn begin(&self, headers: &Headers) -> Option<Box<[DebugItem]>> {
        let mut given = headers.get_all(&self.header);
        let token = given.next()?;
        let is_right = given.next().is_none() && self.token.matches(&TokenDigest::of(token));
        is_right.then(Box::default)
    }

    /// Writes the request's own item and those of its limits into the response, which no cache may
    /// store.
    pub(super) fn write(&self, request: DebugItem, limits: &[DebugItem], headers: &mut Headers) {
        let DebugItem(mut value) = request;
        for (place, DebugItem(limit)) in limits.iter().enumerate() {
            if value.len() + ", ".len() + limit.len() + REST_BYTES > MAX_BYTES {
                let rest = limits.len() - place;
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

/// The final decisions of all limits of the route.
pub(super) fn decisions(inputs: &AdmissionInputs<'_>, admission: &Admission) -> Box<[DebugItem]> {
    let limits = (0_u16..).zip(&inputs.route.limits);
    let items = limits.map(|(number, limit)| DebugItem::of(number, limit, inputs, admission));
    items.collect()
}

/// An item of the field: its name, and parameters.
#[derive(Debug)]
pub(super) struct DebugItem(String);

impl DebugItem {
    pub(super) fn new(name: &str) -> Self {
        Self(name.to_owned())
    }

    /// `limit;policy="per-key";decision=limited;..`
    fn of(number: u16, limit: &Limit, inputs: &AdmissionInputs<'_>, admission: &Admission) -> Self {
        let mut item = Self::new("limit");
        item.text("policy", &limit.policy.name);
        let mut records = admission.records.iter();
        let record = records.find(|record| record.limit == number);
        let decided = record.and_then(|record| Some((record, admission.decision_of(record)?)));
        let Some((record, (bucket, decision))) = decided else {
            item.undecided(number, limit, record, inputs);
            return item;
        };
        let id = bucket.id;
        item.token("decision", record.word.as_str());
        item.number("limit", decision.capacity);
        item.number("remaining", decision.remaining);
        item.wait(decision, inputs.now);
        item.token("mode", admission.enforcement_of(record).into_str());
        item.bucket(limit.chosen(id), bucket.key);
        if id.place.is_some() {
            item.0.push_str(";override");
        }
        if let Some(soft) = limit.soft_limit(id) {
            item.number("soft-limit", soft.above);
        }
        if id.tier > 0 {
            item.number("tier", id.tier.into());
        }
        item
    }

    /// Adds what is known of a limit without a decision of its bucket.
    fn undecided(
        &mut self,
        number: u16,
        limit: &Limit,
        record: Option<&LimitRecord>,
        inputs: &AdmissionInputs<'_>,
    ) {
        let applicability = limit.evaluate(inputs.head);
        let enforcement = limit.enforcement(applicability.place(), inputs.head);
        let word = match (record, applicability) {
            (Some(record), _) => record.word.as_str(),
            (None, Applicability::Elsewhere) => "not_applicable",
            (None, Applicability::Exempt | Applicability::Skipped) => {
                LimitDecision::Exempt.as_str()
            }
            (None, Applicability::Keyless(_)) if !inputs.route.is_tag(number) => {
                match enforcement {
                    Enforcement::Enforced => LimitDecision::Limited.as_str(),
                    Enforcement::Shadowed => LimitDecision::Shadowed.as_str(),
                }
            }
            (None, Applicability::Keyless(_) | Applicability::Bucket(..)) => "not_asked",
        };
        self.token("decision", word);
        self.token("mode", enforcement.into_str());
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
        self.number(name, limit_headers::retry_after(until, now));
    }

    fn bucket(&mut self, quota: &Quota, key: Fingerprint) {
        self.text("key", &key.to_string());
        self.token("store", quota.buckets.home.into_str());
    }

    /// Adds a parameter that is a token.
    pub(super) fn token(&mut self, name: &str, value: &str) {
        _ = write!(self.0, ";{name}={value}");
    }

    /// Adds a parameter that is a string.
    pub(super) fn text(&mut self, name: &str, value: &str) {
        _ = write!(self.0, ";{name}=\"");
        for character in value.chars() {
            match character {
                '"' | '\\' => self.0.extend(['\\', character]),
                ' '..='~' => self.0.push(character),
                _ => self.0.push('?'),
            }
        }
        self.0.push('"');
    }

    /// Adds a parameter that is an integer.
    fn number(&mut self, name: &str, value: u64) {
        _ = write!(self.0, ";{name}={}", value.min(LARGEST_INTEGER));
    }

    /// Adds a parameter that is a decimal.
    pub(super) fn milliseconds(&mut self, name: &str, value: Duration) {
        let micros = value.as_micros().min(LARGEST_INTEGER.into());
        _ = write!(self.0, ";{name}={}.{:03}", micros / 1_000, micros % 1_000);
    }
}

/// The largest integer of a structured field (RFC 9651 section 3.3.1).
const LARGEST_INTEGER: u64 = 999_999_999_999_999;
