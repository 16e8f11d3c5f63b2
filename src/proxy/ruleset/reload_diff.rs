//! Predicts what [`PreparedRuleset::migrate_buckets`] does with the buckets of a ruleset under
//! another one.
//!
//! [`PreparedRuleset::migrate_buckets`]: super::build::PreparedRuleset::migrate_buckets

use std::collections::{HashMap, HashSet};

use super::build::shares;
use super::{PolicySpec, RulesetSpec};
use crate::limiter::Compatibility;
use crate::store::HomeIdentity;

/// The outcome for the buckets of a policy, or of an override.
#[derive(Debug)]
pub struct TableChange {
    /// The policy's name.
    pub name: String,
    /// The policy's key; of an override, followed by the override's.
    pub key: String,
    /// The outcome.
    pub outcome: BucketOutcome,
}

/// Outcome for the buckets of one policy under another configuration.
#[derive(Debug, PartialEq, Eq)]
pub enum BucketOutcome {
    /// Unchanged.
    Kept,
    /// Used units stay used, under another quota or other settings.
    Rescaled {
        /// The old and the new quota.
        quotas: [String; 2],
    },
    /// They start anew: the policy has another key.
    KeyChanged {
        /// The new key.
        key: String,
    },
    /// They start anew: the algorithm differs.
    AlgorithmChanged {
        /// The old and the new algorithm.
        algorithms: [&'static str; 2],
    },
    /// They start anew in another store.
    StoreChanged {
        /// The old and the new store.
        stores: [&'static str; 2],
    },
    /// They start anew: the new quota is 0.
    ZeroQuota,
    /// The policy is removed.
    Removed,
    /// The policy is new.
    Added,
}

/// A policy or an override, with the number of keys in its table.
struct PolicyTable<'a> {
    spec: &'a PolicySpec,
    keys: usize,
    home: HomeIdentity<'a>,
}

/// Compares all buckets of `old` and `new`: first those of `new` in order, then the removed ones.
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

/// A table with room for fewer keys: if it holds more, those that used least are forgotten.
#[derive(Debug, PartialEq, Eq)]
pub struct ShrunkTable {
    /// The old and the new number of keys.
    pub keys: [usize; 2],
}

fn tables(spec: &RulesetSpec) -> Vec<PolicyTable<'_>> {
    let all = spec.policies.iter().flat_map(PolicySpec::all);
    let shares = shares(&spec.policies, spec.max_size).into_iter();
    all.zip(shares)
        .map(|(policy, share)| PolicyTable {
            home: policy.home.identity(spec.store.as_ref()),
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

    /// The outcome for buckets that no policy has any more; `key` is that of a policy of the same
    /// name.
    fn outcome_without_policy(&self, key: Option<&str>) -> BucketOutcome {
        // A removed override or overflow bucket leaves the policy's own key.
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
