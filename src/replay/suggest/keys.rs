//! The keys by which requests are counted: the one that is asked for, and others that the log has.

use std::collections::{HashMap, HashSet};

use foldhash::fast::FixedState;
use http::HeaderName;

use crate::config::{self, Report};
use crate::limiter::{Fingerprint, Secret};
use crate::rules::{Descriptor, Head, Key, KeyPart};

/// The key unless the user wants another.
pub const DEFAULT_KEY: &str = "client_ip";
/// The most keys of one kind that are told apart.
pub(super) const MAX_KEYS: usize = 1 << 20;
/// How many of the first requests are looked at for other keys.
pub(super) const SAMPLE: usize = 1_000;
/// The most other keys.
const MAX_OTHERS: usize = 3;
/// A field is a key if this share of the sample has it.
const MIN_SHARE: f64 = 0.1;
/// It is none if its values differ in more than this share of requests: they identify the request.
const MAX_DISTINCT: f64 = 0.5;

/// Fields that are about the connection, the content or the client's software.
const NO_KEYS: [&str; 28] = [
    "accept",
    "accept-encoding",
    "accept-language",
    "cache-control",
    "connection",
    "content-length",
    "content-type",
    "cookie",
    "date",
    "dnt",
    "forwarded",
    "host",
    "if-modified-since",
    "if-none-match",
    "origin",
    "pragma",
    "range",
    "referer",
    "te",
    "traceparent",
    "tracestate",
    "upgrade-insecure-requests",
    "user-agent",
    "via",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-proto",
    "x-request-id",
];

/// The id of requests that have no bucket, because a part of the key has different values.
pub(super) const NO_BUCKET: u32 = u32::MAX;

/// A kind of key, and the keys that the log has of it.
#[derive(Debug)]
pub(super) struct KeyKind {
    /// As the configuration writes it.
    pub text: String,
    descriptor: Descriptor,
    ids: HashMap<Fingerprint, u32, FixedState>,
    /// By id.
    pub keys: Vec<KnownKey>,
    /// A part of it is in a header field, which a log may lack.
    is_from_fields: bool,
    /// Requests that lack such a part, and all.
    pub missing: u64,
    pub requests: u64,
}

#[derive(Debug)]
pub(super) struct KnownKey {
    pub fingerprint: Fingerprint,
    /// As people read it.
    pub name: Box<str>,
}

impl KeyKind {
    /// The key that the configuration would have with `text`.
    ///
    /// # Errors
    /// Reports a text that is none.
    pub(super) fn new(text: &str, ipv6_prefix: u8) -> Result<Self, Report> {
        let configuration = serde_json::json!({
            "client_ip": { "ipv6_prefix": ipv6_prefix },
            "routes": [{ "upstream": "echo", "limits": [{ "key": text, "quota": "1/1s" }] }],
        });
        let loaded = config::parse("--key", configuration.to_string(), &|_| None)?;
        let mut rules = config::compile_rules(&loaded)?;
        let limit = rules.routes.remove(0).limits.remove(0);
        let is_of_route =
            |part: &KeyPart| matches!(part, KeyPart::Route(_) | KeyPart::Segment { .. });
        if limit.descriptor.parts().iter().any(is_of_route) {
            let message = "suggest finds keys in requests, and this one depends on the route";
            return Err(Report::of_file("--key", message.to_owned(), None));
        }
        let mut parts = limit.descriptor.parts().iter();
        Ok(Self {
            is_from_fields: parts.any(KeyPart::is_from_fields),
            missing: 0,
            requests: 0,
            text: text.to_owned(),
            descriptor: limit.descriptor,
            ids: HashMap::default(),
            keys: Vec::new(),
        })
    }

    /// The id of a request's key. `None` if there is no room for another key.
    pub(super) fn id(&mut self, secret: &Secret, head: &Head<'_>) -> Option<u32> {
        self.requests += 1;
        if self.is_from_fields {
            let mut parts = self.descriptor.parts().iter();
            self.missing += u64::from(parts.any(|part| part.is_missing(head)));
        }
        let Key::Bucket(fingerprint) = self.descriptor.fingerprint(secret, head) else {
            return Some(NO_BUCKET);
        };
        if let Some(&id) = self.ids.get(&fingerprint) {
            return Some(id);
        }
        if self.keys.len() == MAX_KEYS {
            return None;
        }
        let id = self.keys.len() as u32;
        let parts = self.descriptor.describe(head);
        let parts: Vec<_> = parts.iter().map(ToString::to_string).collect();
        self.keys.push(KnownKey {
            fingerprint,
            name: parts.join(", ").into(),
        });
        self.ids.insert(fingerprint, id);
        Some(id)
    }
}

/// Fields of a sample of requests, to find keys among them.
#[derive(Debug, Default)]
pub(super) struct FieldSample {
    requests: usize,
    fields: HashMap<HeaderName, FieldCount>,
}

#[derive(Debug, Default)]
struct FieldCount {
    requests: usize,
    values: HashSet<Vec<u8>>,
}

/// The most names of fields of a sample: a log lists those that it has.
const MAX_FIELDS: usize = 64;

impl FieldSample {
    pub(super) fn add<'a>(&mut self, fields: impl Iterator<Item = (&'a HeaderName, &'a [u8])>) {
        self.requests += 1;
        for (name, value) in fields {
            if NO_KEYS.contains(&name.as_str()) || value.is_empty() {
                continue;
            }
            if self.fields.len() < MAX_FIELDS || self.fields.contains_key(name) {
                let count = self.fields.entry(name.clone()).or_default();
                count.requests += 1;
                count.values.insert(value.to_vec());
            }
        }
    }

    /// The keys that clients could be told apart by, the most frequent first.
    pub(super) fn keys(&self) -> Vec<String> {
        let is_key = |count: &FieldCount| {
            let (requests, values) = (count.requests as f64, count.values.len() as f64);
            requests >= self.requests as f64 * MIN_SHARE
                && count.values.len() > 1
                && values <= requests * MAX_DISTINCT
        };
        let keys = self.fields.iter().filter(|(_, count)| is_key(count));
        let mut keys: Vec<_> = keys.collect();
        keys.sort_by_key(|(name, count)| (std::cmp::Reverse(count.requests), name.as_str()));
        let keys = keys.iter().take(MAX_OTHERS);
        keys.map(|(name, _)| format!("header:{name}")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_that_tell_clients_apart_are_keys() {
        let mut sample = FieldSample::default();
        let name = HeaderName::from_static;
        for number in 0..100 {
            let client = format!("key-{}", number % 7);
            let unique = format!("id-{number}");
            let fields = [
                (name("x-api-key"), client.as_str()),
                (name("x-trace"), &unique),
                (name("user-agent"), &client),
                (name("x-version"), "1"),
                (name("x-rare"), if number < 5 { &client } else { "" }),
            ];
            sample.add(fields.iter().map(|(name, value)| (name, value.as_bytes())));
        }
        assert_eq!(sample.keys(), ["header:x-api-key"]);
    }
}
