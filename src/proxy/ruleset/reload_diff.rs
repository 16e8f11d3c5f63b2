//! Predicts what [`PreparedRuleset::migrate_buckets`] does with the buckets of a ruleset under
//! another one.
//!
//! [`PreparedRuleset::migrate_buckets`]: super::build::PreparedRuleset::migrate_buckets

use std::collections::{HashMap, HashSet};
use std::fmt;

use serde::Serialize;
use strum::IntoStaticStr;

use super::build::shares;
use super::{Ruleset, RulesetSpec};
use crate::limiter::{Algorithm, Compatibility};
use crate::store::{Home, StoreNames, StoreSpec};

/// The outcome for the buckets of a policy, or of an override.
#[derive(Debug)]
pub struct TableChange {
    /// The policy's name.
    pub name: String,
    /// The policy's key; of an override, followed by the override's.
    pub key: String,
    /// The outcome.
    pub outcome: BucketOutcome,
    /// The loss of room, if there is one.
    pub shrunk: Option<ShrunkTable>,
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

/// The tables of a ruleset that runs, or of one that may run.
pub struct PolicyTables<'a> {
    tables: Vec<PolicyTable<'a>>,
    /// The key of each policy, by name.
    keys: HashMap<&'a str, &'a str>,
}

/// A policy or an override, with the number of keys in its table.
struct PolicyTable<'a> {
    name: &'a str,
    key: &'a str,
    quota: &'a str,
    algorithm: &'a Algorithm,
    keys: usize,
    home: (Home, Option<StoreNames<'a>>),
}

/// Compares all buckets of `old` and `new`: first those of `new` in order, then the removed ones.
pub fn compare<'a>(
    old: impl Into<PolicyTables<'a>>,
    new: impl Into<PolicyTables<'a>>,
) -> Vec<TableChange> {
    let (old, new) = (old.into(), new.into());
    let known: HashMap<_, _> = old.tables.iter().map(|table| (table.id(), table)).collect();
    let now: HashSet<_> = new.tables.iter().map(PolicyTable::id).collect();
    let stays = new.tables.iter().map(|table| {
        let before = known.get(&table.id());
        let shrunk = before.filter(|before| before.keys > table.keys);
        let outcome = before.map_or(BucketOutcome::Added, |before| before.outcome_under(table));
        TableChange {
            shrunk: shrunk.map(|before| ShrunkTable {
                keys: [before.keys, table.keys],
            }),
            ..table.with(outcome)
        }
    });
    let gone = old.tables.iter().filter(|table| !now.contains(&table.id()));
    let gone = gone.map(|table| {
        let key = new.keys.get(table.name);
        table.with(table.outcome_without_policy(key.copied()))
    });
    stays.chain(gone).collect()
}

/// A table with room for fewer keys: if it holds more, those that used least are forgotten.
#[derive(Debug, PartialEq, Eq)]
pub struct ShrunkTable {
    /// The old and the new number of keys.
    pub keys: [usize; 2],
}

impl<'a> From<&'a RulesetSpec> for PolicyTables<'a> {
    fn from(spec: &'a RulesetSpec) -> Self {
        let store = spec.store.as_ref();
        let policies = spec.policies.iter();
        let all = policies.flat_map(|policy| policy.quotas().map(move |quota| (policy, quota)));
        let shares = shares(&spec.policies, spec.max_size).into_iter();
        let tables = all.zip(shares).map(|((policy, quota), share)| PolicyTable {
            name: &policy.name,
            key: &quota.key,
            quota: &quota.text,
            algorithm: &quota.algorithm,
            keys: share.keys,
            home: (policy.home, store.map(StoreSpec::names)),
        });
        let keys = spec.policies.iter();
        PolicyTables {
            tables: tables.collect(),
            keys: keys.map(|one| (&*one.name, &*one.quota.key)).collect(),
        }
    }
}

impl<'a> From<&'a Ruleset> for PolicyTables<'a> {
    fn from(ruleset: &'a Ruleset) -> Self {
        let policies = ruleset.policies.iter();
        let all = policies.flat_map(|policy| policy.quotas().map(move |quota| (policy, quota)));
        let tables = all.map(|(policy, quota)| PolicyTable {
            name: &policy.name,
            key: &quota.key,
            quota: &quota.text,
            algorithm: quota.algorithm(),
            keys: quota.buckets.table.keys(),
            home: (quota.buckets.home, ruleset.store.names()),
        });
        let keys = ruleset.policies.iter();
        PolicyTables {
            tables: tables.collect(),
            keys: keys.map(|one| (&*one.name, &*one.quota.key)).collect(),
        }
    }
}

impl<'a> PolicyTable<'a> {
    fn id(&self) -> (&'a str, &'a str) {
        (self.name, self.key)
    }

    fn with(&self, outcome: BucketOutcome) -> TableChange {
        TableChange {
            name: self.name.to_owned(),
            key: self.key.to_owned(),
            outcome,
            shrunk: None,
        }
    }

    fn outcome_under(&self, next: &PolicyTable<'_>) -> BucketOutcome {
        if let Some(stores) = Home::move_of([self.home, next.home], next.algorithm) {
            return BucketOutcome::StoreChanged { stores };
        }
        let (old, new) = (self.algorithm, next.algorithm);
        match new.compatibility(old) {
            Compatibility::Identical => BucketOutcome::Kept,
            Compatibility::Convertible => BucketOutcome::Rescaled {
                quotas: [self.quota, next.quota].map(str::to_owned),
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
            let rest = self.key.strip_prefix(*key);
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

/// A change as people and machines read it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BucketChange {
    /// The policy's name.
    pub policy: String,
    /// The policy's key; of an override, followed by the override's.
    pub key: String,
    /// The outcome.
    pub outcome: OutcomeKind,
    /// The reason, if there is one.
    pub reason: Option<String>,
}

/// The outcome for buckets, in a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum OutcomeKind {
    /// They stay as they are.
    Survives,
    /// Used units stay used, under another quota or other settings.
    Rescaled,
    /// They start anew.
    Reset,
    /// The policy is removed.
    Ends,
    /// The policy is new.
    New,
}

impl BucketChange {
    /// True if clients may notice: buckets start anew, or have another quota or less room.
    pub fn is_notable(&self) -> bool {
        match self.outcome {
            OutcomeKind::Survives => self.reason.is_some(),
            OutcomeKind::Rescaled | OutcomeKind::Reset => true,
            OutcomeKind::Ends | OutcomeKind::New => false,
        }
    }
}

impl fmt::Display for BucketChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word: &str = self.outcome.into();
        write!(f, "{word:<9} {} ({})", self.policy, self.key)?;
        match &self.reason {
            Some(reason) => write!(f, "  {reason}"),
            None => Ok(()),
        }
    }
}

impl From<TableChange> for BucketChange {
    fn from(change: TableChange) -> Self {
        let room = change.shrunk.map(|ShrunkTable { keys: [old, new] }| {
            format!("room for {new} keys instead of {old}")
        });
        let reasons: Vec<_> = change.outcome.reason().into_iter().chain(room).collect();
        BucketChange {
            outcome: change.outcome.kind(),
            reason: (!reasons.is_empty()).then(|| reasons.join(", ")),
            policy: change.name,
            key: shown_key(&change.key),
        }
    }
}

/// The key as people read it. The value or prefix that an override is for may be a client's secret,
/// and is hidden.
fn shown_key(key: &str) -> String {
    match key.split_once(" where ") {
        Some((own, exception)) => {
            format!("{} where {}", readable_key(own), shown_exception(exception))
        }
        None => readable_key(key),
    }
}

/// The clients of an override, without their value or prefix.
pub fn shown_exception(exception: &str) -> String {
    let kinds = ["value ", "prefix "].into_iter();
    let ends = kinds.filter_map(|kind| Some(exception.find(kind)? + kind.len()));
    match ends.min() {
        Some(end) => format!("{}***", &exception[..end]),
        None => exception.to_owned(),
    }
}

/// The key without a replacement that is the key itself: `client_ip or client_ip where ..` is
/// `client_ip where ..`.
fn readable_key(key: &str) -> String {
    let repeated = key.split_once(" or ").and_then(|(part, rest)| {
        let more = rest.strip_prefix(part)?;
        (more.is_empty() || more.starts_with(' ')).then(|| format!("{part}{more}"))
    });
    repeated.unwrap_or_else(|| key.to_owned())
}

impl BucketOutcome {
    fn kind(&self) -> OutcomeKind {
        match self {
            Self::Kept => OutcomeKind::Survives,
            Self::Rescaled { .. } => OutcomeKind::Rescaled,
            Self::KeyChanged { .. }
            | Self::AlgorithmChanged { .. }
            | Self::StoreChanged { .. }
            | Self::ZeroQuota => OutcomeKind::Reset,
            Self::Removed => OutcomeKind::Ends,
            Self::Added => OutcomeKind::New,
        }
    }

    fn reason(&self) -> Option<String> {
        Some(match self {
            Self::Kept | Self::Removed | Self::Added => return None,
            Self::Rescaled { quotas: [old, new] } if old == new => {
                format!("{new}, with other settings")
            }
            Self::Rescaled { quotas: [old, new] } => format!("{old} becomes {new}"),
            Self::KeyChanged { key } => format!("the key becomes {}", shown_key(key)),
            Self::AlgorithmChanged {
                algorithms: [old, new],
            }
            | Self::StoreChanged { stores: [old, new] } => format!("{old} becomes {new}"),
            Self::ZeroQuota => "a quota of 0 has nothing to use".to_owned(),
        })
    }
}
