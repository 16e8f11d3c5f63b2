//! The keys by which requests are counted.

use std::collections::HashMap;

use crate::config::{self, Report};
use crate::limiter::{Fingerprint, Secret};
use crate::rules::{Descriptor, Head, Key, KeyPart};
use foldhash::fast::FixedState;

/// The key unless the user wants another.
pub const DEFAULT_KEY: &str = "client_ip";
/// The most keys of one kind that are told apart.
pub(super) const MAX_KEYS: usize = 1 << 20;
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
