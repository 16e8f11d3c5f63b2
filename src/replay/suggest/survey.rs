//! Reads a log, and keeps of each request its route, its key and its time: 16 bytes.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use foldhash::fast::FixedState;

use super::paths::Paths;
use super::report::NoLimit;
use crate::clock::Timestamp;
use crate::config::{self, Loaded, Report};
use crate::limiter::Fingerprint;
use crate::proxy::Ruleset;
use crate::proxy::inspect::dry_run::route;
use crate::proxy::ruleset::RulesetSpec;
use crate::replay::log::{LineError, LogEntry, MalformedRequest};
use crate::replay::simulation::{SECRET, build_all};
use crate::replay::tally::LinesReport;
use crate::rules::{Descriptor, Head, Key, KeyPart};

/// The key unless the user wants another.
pub const DEFAULT_KEY: &str = "client_ip";
/// The most requests and keys that are kept.
const MAX_REQUESTS: usize = 10_000_000;
const MAX_KEYS: usize = 1 << 20;
/// The key of requests without a bucket, because a part of the key has different values.
pub(super) const NO_BUCKET: u32 = u32::MAX;
/// The place of requests that no route takes.
const NO_ROUTE: u32 = u32::MAX;

/// What was read.
#[derive(Debug)]
pub(super) struct Survey {
    pub ruleset: Arc<Ruleset>,
    /// The paths, unless a configuration has routes.
    paths: Option<Paths>,
    pub key: RequestKeys,
    pub requests: Vec<Seen>,
    /// The first time and the latest.
    pub times: Option<(Timestamp, Timestamp)>,
    /// Requests that the proxy answers before any limit, by reason.
    pub answered: BTreeMap<&'static str, u64>,
    pub unparsable: LinesReport,
    /// The first line for which there was no room, and how many requests came after it.
    pub left_over: Option<(u64, u64)>,
}

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Seen {
    /// Its route; while the log is read without a configuration, its path.
    pub place: u32,
    pub key: u32,
    /// In microseconds.
    pub time: u64,
}

/// A route, found or configured.
#[derive(Debug)]
pub(super) struct KnownRoute {
    pub name: String,
    /// The paths of a found route; empty for a configured one.
    pub requests_for: String,
    pub no_limit: Option<NoLimit>,
}

/// The keys of a log's requests.
#[derive(Debug)]
pub(super) struct RequestKeys {
    descriptor: Descriptor,
    ids: HashMap<Fingerprint, u32, FixedState>,
    /// As people read them, by id.
    pub names: Vec<Box<str>>,
    /// Requests that lack a part of the key, and all.
    pub missing: u64,
    pub requests: u64,
}

impl Survey {
    /// Nothing read so far. Without `rules`, paths are routes.
    ///
    /// # Errors
    /// Reports a key that isn't valid.
    pub(super) fn new(rules: Option<RulesetSpec>, key: &str) -> Result<Self, Report> {
        let (key, key_rules) = RequestKeys::new(key, rules.as_ref())?;
        Ok(Self {
            paths: rules.is_none().then(Paths::new),
            ruleset: build_all(rules.unwrap_or(key_rules)),
            key,
            requests: Vec::new(),
            times: None,
            answered: BTreeMap::new(),
            unparsable: LinesReport::default(),
            left_over: None,
        })
    }

    /// Takes the next line.
    pub(super) fn take(&mut self, line: u64, entry: Result<(usize, LogEntry), LineError>) {
        let entry = match entry {
            Ok((_, entry)) => entry,
            Err(why) => return self.unparsable.note(line, || why.to_string()),
        };
        if let Some((_, count)) = &mut self.left_over {
            *count += 1;
            return;
        }
        let LogEntry { time, peer, .. } = entry;
        let (paths, key) = (&mut self.paths, &mut self.key);
        let seen = match &entry.head {
            Ok(request) => route(&self.ruleset, request, peer, time, |route, head| {
                let place = match paths {
                    Some(paths) => paths.place(head.path),
                    None => route.map_or(NO_ROUTE, |route| route as u32),
                };
                let (key, time) = (key.id(head)?, time.as_micros());
                Some(Seen { place, key, time })
            })
            .map_err(|error| error.detail()),
            Err(MalformedRequest(reason)) => Err(*reason),
        };
        match seen {
            Ok(Some(seen)) if self.requests.len() < MAX_REQUESTS => self.requests.push(seen),
            Ok(_) => {
                self.left_over = Some((line, 1));
                return;
            }
            Err(reason) => *self.answered.entry(reason).or_default() += 1,
        }
        let (first, latest) = self.times.unwrap_or((time, time));
        self.times = Some((first.min(time), latest.max(time)));
    }

    /// Sorts the requests by route, key and time, and returns the routes: those of the
    /// configuration, or those that the paths suggest.
    pub(super) fn sort_by_route(&mut self, config: Option<&Loaded>) -> Vec<KnownRoute> {
        let routes = match &self.paths {
            Some(paths) => paths.routes(&mut self.requests),
            None => {
                let routes = self.ruleset.routes.iter().enumerate();
                let routes = routes.map(|(place, route)| KnownRoute {
                    name: route.name.to_string(),
                    requests_for: String::new(),
                    no_limit: config.and_then(|config| NoLimit::of_configured(config, place)),
                });
                routes.collect()
            }
        };
        self.requests.sort_unstable();
        routes
    }

    /// The time between the first request and the latest.
    pub(super) fn span(&self) -> Duration {
        let span = self.times.map(|(first, latest)| latest.since(first));
        span.unwrap_or_default()
    }
}

impl RequestKeys {
    /// The key that a configuration has with `text`, and the rules of one that has nothing else.
    fn new(text: &str, rules: Option<&RulesetSpec>) -> Result<(Self, RulesetSpec), Report> {
        let mut configuration = serde_json::json!({
            "routes": [{ "upstream": "echo", "limits": [{ "key": text, "quota": "1/1s" }] }],
        });
        if let Some(rules) = rules {
            configuration["client_ip"]["ipv6_prefix"] = rules.client_ip.ipv6_prefix.into();
        }
        let loaded = config::parse("--key", configuration.to_string(), &|_| None)?;
        let mut rules = config::compile_rules(&loaded)?;
        let descriptor = rules.routes[0].limits.remove(0).descriptor;
        let is_of_route =
            |part: &KeyPart| matches!(part, KeyPart::Route(_) | KeyPart::Segment { .. });
        if descriptor.parts().iter().any(is_of_route) {
            let message = "suggest finds keys in requests, and this one depends on the route";
            return Err(Report::of_file("--key", message.to_owned(), None));
        }
        let keys = Self {
            descriptor,
            ids: HashMap::default(),
            names: Vec::new(),
            missing: 0,
            requests: 0,
        };
        Ok((keys, rules))
    }

    /// The id of a request's key. `None` if there is no room for another key.
    fn id(&mut self, head: &Head<'_>) -> Option<u32> {
        let mut parts = self.descriptor.parts().iter();
        let is_missing = |part: &KeyPart| part.is_from_fields() && part.is_missing(head);
        self.missing += u64::from(parts.any(is_missing));
        self.requests += 1;
        let Key::Bucket(fingerprint) = self.descriptor.fingerprint(&SECRET, head) else {
            return Some(NO_BUCKET);
        };
        if let Some(&id) = self.ids.get(&fingerprint) {
            return Some(id);
        }
        if self.names.len() == MAX_KEYS {
            return None;
        }
        let id = self.names.len() as u32;
        let parts = self.descriptor.describe(head);
        let parts: Vec<_> = parts.iter().map(ToString::to_string).collect();
        self.names.push(parts.join(", ").into());
        self.ids.insert(fingerprint, id);
        Some(id)
    }
}
