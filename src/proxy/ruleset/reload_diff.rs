//! What becomes of the buckets of one ruleset under another: the same as [`PreparedRuleset::migrate_buckets`] does, said
//! beforehand.
//!
//! [`PreparedRuleset::migrate_buckets`]: super::build::PreparedRuleset::migrate_buckets

use std::collections::{HashMap, HashSet};

use super::build::shares;
use super::{PolicySpec, RedisSpec, RulesetSpec};
use crate::limiter::{Algorithm, Compatibility, Start};
use crate::store::redis::Naming;

/// What becomes of the buckets of a policy, or of one of its overrides.
#[derive(Debug)]
pub struct TableChange {
    /// The policy's name.
    pub name: String,
    /// Its key; of an override, also for whom it is.
    pub key: String,
    /// What becomes of them.
    pub outcome: BucketOutcome,
}

/// What becomes of buckets.
#[derive(Debug, PartialEq, Eq)]
pub enum BucketOutcome {
    /// They go on as they are.
    Kept,
    /// What was used stays used, under another quota or other settings.
    Rescaled {
        /// The quota before, and the new one.
        quotas: [String; 2],
    },
    /// They start anew: a policy of this name has another key.
    KeyChanged {
        /// The key of the policy of this name now.
        key: String,
    },
    /// They start anew: the algorithm is another.
    AlgorithmChanged {
        /// The algorithm before, and the new one.
        algorithms: [&'static str; 2],
    },
    /// They start anew: they are elsewhere.
    StoreChanged {
        /// Where they were, and where they are now.
        stores: [&'static str; 2],
    },
    /// They start anew: a quota of 0 has nothing to use.
    ZeroQuota,
    /// There is no such policy any more.
    Removed,
    /// There was no such policy.
    Added,
}

/// A policy, or an override, with the keys that it has room for.
struct PolicyTable<'a> {
    spec: &'a PolicySpec,
    keys: usize,
    home: BucketStore<'a>,
}

/// Where buckets are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum BucketStore<'a> {
    Memory,
    /// By the names that they have in which database.
    Redis(&'a Naming, u32),
    /// In memory, of which other machines are told by these names.
    Synchronised(&'a Naming),
}

impl<'a> BucketStore<'a> {
    fn of(spec: &PolicySpec, redis: Option<&'a RedisSpec>) -> Self {
        match redis {
            Some(redis) if spec.sync.is_some() => Self::Synchronised(&redis.naming),
            Some(redis) if spec.shared.is_some() => {
                Self::Redis(&redis.naming, redis.client.database)
            }
            _ => Self::Memory,
        }
    }

    /// What is said of it where buckets do not come along to the next one; `None` where they do.
    fn move_to(self, next: Self, algorithm: &Algorithm) -> Option<[&'static str; 2]> {
        let is_staggered = matches!(algorithm, Algorithm::FixedWindow(window)
            if matches!(window.start(), Start::Staggered));
        match (self, next) {
            _ if self == next => None,
            (Self::Redis(..), Self::Redis(..)) => Some(["redis", "redis with other names"]),
            (Self::Synchronised(_), Self::Synchronised(_)) if is_staggered => {
                Some(["synchronised memory", "the same with other names"])
            }
            (Self::Redis(..), _) | (_, Self::Redis(..)) => Some([self.name(), next.name()]),
            _ => is_staggered.then(|| [self.name(), next.name()]),
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Redis(..) => "redis",
            Self::Synchronised(_) => "synchronised memory",
        }
    }
}

/// What becomes of every bucket of `old` under `new`, in the order of `new`, with what ends after it.
pub fn compare(old: &RulesetSpec, new: &RulesetSpec) -> Vec<(TableChange, Option<ShrunkTable>)> {
    let (before, after) = (tables(old), tables(new));
    let known: HashMap<_, _> = before.iter().map(|table| (table.id(), table)).collect();
    let now: HashSet<_> = after.iter().map(PolicyTable::id).collect();
    let stays = after.iter().map(|table| {
        let before = known.get(&table.id());
        let shrunk = before.filter(|before| before.keys > table.keys);
        let shrunk = shrunk.map(|before| ShrunkTable {
            keys: [before.keys, table.keys],
        });
        let fate = before.map_or(BucketOutcome::Added, |before| before.outcome_under(table));
        (table.with(fate), shrunk)
    });
    let keys: HashMap<_, _> = new
        .policies
        .iter()
        .map(|policy| (policy.name.as_str(), policy.key.as_str()))
        .collect();
    let gone = before.iter().filter(|table| !now.contains(&table.id()));
    let gone = gone.map(|table| {
        let key = keys.get(table.spec.name.as_str());
        (table.with(table.outcome_without_policy(key.copied())), None)
    });
    stays.chain(gone).collect()
}

/// There is room for fewer keys: where there are more, those who have used least are forgotten.
#[derive(Debug, PartialEq, Eq)]
pub struct ShrunkTable {
    /// For how many keys there was room, and is.
    pub keys: [usize; 2],
}

fn tables(spec: &RulesetSpec) -> Vec<PolicyTable<'_>> {
    let all = spec.policies.iter().flat_map(PolicySpec::all);
    let shares = shares(&spec.policies, spec.max_size).into_iter();
    all.zip(shares)
        .map(|(policy, share)| PolicyTable {
            home: BucketStore::of(policy, spec.redis.as_ref()),
            spec: policy,
            keys: share.keys,
        })
        .collect()
}

impl<'a> PolicyTable<'a> {
    fn id(&self) -> (&'a str, &'a str) {
        (&self.spec.name, &self.spec.key)
    }

    fn with(&self, fate: BucketOutcome) -> TableChange {
        TableChange {
            name: self.spec.name.clone(),
            key: self.spec.key.clone(),
            outcome: fate,
        }
    }

    fn outcome_under(&self, next: &PolicyTable<'_>) -> BucketOutcome {
        if let Some(stores) = self.home.move_to(next.home, &next.spec.algorithm) {
            return BucketOutcome::StoreChanged { stores };
        }
        let (old, new) = (&self.spec.algorithm, &next.spec.algorithm);
        match new.compatibility(old) {
            Compatibility::Identical => BucketOutcome::Kept,
            Compatibility::Convertible => BucketOutcome::Rescaled {
                quotas: [self.spec.quota.clone(), next.spec.quota.clone()],
            },
            Compatibility::Incompatible if old.kind() != new.kind() => {
                BucketOutcome::AlgorithmChanged {
                    algorithms: [old.kind(), new.kind()],
                }
            }
            Compatibility::Incompatible => BucketOutcome::ZeroQuota,
        }
    }

    /// The fate of buckets that no policy has any more, where a policy of the same name has this key.
    fn outcome_without_policy(&self, key: Option<&str>) -> BucketOutcome {
        // An override or a further bucket that is gone leaves the policy's own key.
        let key = key.filter(|key| {
            let rest = self.spec.key.strip_prefix(*key);
            rest.is_none_or(|rest| !rest.starts_with(' '))
        });
        match key {
            None => BucketOutcome::Removed,
            Some(key) => BucketOutcome::KeyChanged {
                key: key.to_owned(),
            },
        }
    }
}
