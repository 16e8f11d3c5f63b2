//! The report on a policy: its buckets, and the keys that it limited most.

use std::sync::Arc;

use limiter::{Algorithm, Timestamp};
use readable::time::{Millis, rfc_3339};
use serde::Serialize;

use super::CountRange;
use crate::tally::{MetKey, PolicyKeys, Tally};
use crate::top_keys::TopKeys;

/// The most keys of a policy in a report.
pub(crate) const MAX_KEYS: usize = 10;

/// A policy whose decisions were counted.
#[derive(Debug)]
pub struct PolicyFacts<'a> {
    /// Its name.
    pub name: &'a Arc<str>,
    /// Its algorithm.
    pub algorithm: &'a Algorithm,
    /// Its quota, as configured.
    pub quota: &'a str,
    /// Buckets that were forgotten, or merged, for want of room.
    pub evictions: u64,
}

#[derive(Debug, Serialize)]
pub(super) struct PolicyReport {
    pub policy: Arc<str>,
    pub algorithm: &'static str,
    pub quota: String,
    /// Algorithm, quota and burst.
    #[serde(skip)]
    pub rule: String,
    /// It refused nobody, but would have, if it were in force and didn't tag.
    #[serde(skip)]
    pub would_limit: bool,
    /// Buckets that were forgotten, or merged, for want of room.
    pub evictions: u64,
    /// The keys of its requests, and those of them that it limited; 2048 for that many or more.
    pub clients: usize,
    pub limited_clients: usize,
    pub clients_by_use: ClientsByUse,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub longest: Option<LongestReport>,
    pub most_limited: Vec<KeyReport>,
    pub busiest: Vec<KeyReport>,
}

/// The followed clients by the most that they used of their buckets.
#[derive(Debug, Default, Serialize)]
pub(super) struct ClientsByUse {
    /// Keys that were never limited: up to 9 percent, 19 percent, ..., 100 percent.
    pub tenths: [usize; 10],
    pub limited: usize,
}

/// The longest time that a key was limited.
#[derive(Debug, Serialize)]
pub(super) struct LongestReport {
    pub key: String,
    pub from: String,
    pub limited_ms: Millis,
}

/// A key, and how often it was met or limited.
#[derive(Debug, Serialize)]
pub(super) struct KeyReport {
    pub key: String,
    #[serde(flatten)]
    pub count: CountRange,
    /// All requests of a limited key, if they are followed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests: Option<CountRange>,
}

impl ClientsByUse {
    fn of(keys: &TopKeys<MetKey>) -> Self {
        let mut counted = Self::default();
        for entry in keys.entries() {
            let key = &entry.value;
            if key.is_limited {
                counted.limited += 1;
            } else {
                counted.tenths[usize::from(key.most_used / 10).min(9)] += 1;
            }
        }
        counted
    }
}

impl PolicyReport {
    /// The words for limited clients, in a sentence.
    pub(super) fn verb(&self) -> &'static str {
        if self.would_limit {
            "would be limited"
        } else {
            "limited"
        }
    }

    /// `None` for a policy that no request met with a key.
    pub(super) fn new(policy: &PolicyFacts<'_>, tally: &Tally, latest: Timestamp) -> Option<Self> {
        let PolicyKeys {
            busiest,
            limited,
            longest,
            ..
        } = tally.policies.get(policy.name)?;
        let (clients, limited_clients) = (busiest.entries().len(), limited.entries().len());
        let limited = limited.most(MAX_KEYS).into_iter().map(|entry| KeyReport {
            key: entry.value.name.clone(),
            count: CountRange::of(entry),
            requests: busiest.find(entry.key).map(CountRange::of),
        });
        let limited: Vec<_> = limited.collect();
        let clients_by_use = ClientsByUse::of(busiest);
        let busiest = busiest.most(MAX_KEYS).into_iter().map(|entry| KeyReport {
            key: entry.value.name.clone(),
            count: CountRange::of(entry),
            requests: None,
        });
        let busiest: Vec<_> = busiest.collect();
        (!busiest.is_empty()).then(|| PolicyReport {
            policy: Arc::clone(policy.name),
            algorithm: policy.algorithm.kind(),
            quota: policy.quota.to_owned(),
            rule: rule(policy.algorithm, policy.quota),
            would_limit: false,
            evictions: policy.evictions,
            clients,
            limited_clients,
            clients_by_use,
            longest: longest.as_ref().map(|limited| LongestReport {
                key: limited.name.clone(),
                from: rfc_3339(limited.span.since),
                limited_ms: Millis(limited.span.length(latest)),
            }),
            most_limited: limited,
            busiest,
        })
    }
}

fn rule(algorithm: &Algorithm, quota: &str) -> String {
    let (kind, limit) = (algorithm.kind(), algorithm.limit());
    match algorithm {
        Algorithm::Gcra(gcra) | Algorithm::TokenBucket(gcra)
            if u64::from(gcra.burst()) != limit =>
        {
            format!("{kind}, {quota}, burst {}", gcra.burst())
        }
        _ => format!("{kind}, {quota}"),
    }
}
