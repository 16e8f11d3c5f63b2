//! Predicts what [`PreparedRuleset::migrate_buckets`] does with the buckets of a ruleset under
//! another one.
//!
//! [`PreparedRuleset::migrate_buckets`]: super::build::PreparedRuleset::migrate_buckets

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use strum::IntoStaticStr;

use super::build::shares;
use super::{Policy, Ruleset, RulesetSpec};
use crate::limiter::Algorithm;
use crate::store::{Home, StoreNames, StoreSpec};

/// The tables of a ruleset that runs, or of one that may run: of each policy its own, then those of
/// its overrides.
pub struct PolicyTables<'a>(Vec<PolicyTable<'a>>);

/// A policy or an override, with the number of keys in its table.
struct PolicyTable<'a> {
    name: &'a str,
    key: &'a str,
    quota: &'a str,
    algorithm: &'a Algorithm,
    keys: usize,
    home: (Home, Option<StoreNames<'a>>),
    /// Its policy was removed earlier.
    is_kept: bool,
}

/// Compares all buckets of `old` and `new`: first those of `new` in order, then the removed ones.
pub fn compare<'a>(
    old: impl Into<PolicyTables<'a>>,
    new: impl Into<PolicyTables<'a>>,
) -> Vec<BucketChange> {
    let (PolicyTables(old), PolicyTables(new)) = (old.into(), new.into());
    let known: HashMap<_, _> = old.iter().map(|table| (table.id(), table)).collect();
    let now: HashSet<_> = new.iter().map(PolicyTable::id).collect();
    // The first table of a policy has its key.
    let keys: HashMap<_, _> = new.iter().rev().map(PolicyTable::id).collect();
    let stays = new.iter().map(|table| match known.get(&table.id()) {
        Some(before) => before.change_to(table),
        None => table.change(OutcomeKind::New, []),
    });
    let gone = (old.iter()).filter(|table| !table.is_kept && !now.contains(&table.id()));
    let gone = gone.map(|table| table.change_without_policy(keys.get(table.name).copied()));
    stays.chain(gone).collect()
}

impl<'a> From<&'a RulesetSpec> for PolicyTables<'a> {
    fn from(spec: &'a RulesetSpec) -> Self {
        let store = spec.store.as_ref();
        let policies = spec.policies.iter();
        let all = policies.flat_map(|policy| policy.quotas().map(move |quota| (policy, quota)));
        let shares = shares(&spec.policies, spec.max_size).into_iter();
        let tables = all.zip(shares).map(|((policy, quota), share)| PolicyTable {
            name: &policy.spec.name,
            key: &quota.id,
            quota: &quota.text,
            algorithm: &quota.algorithm,
            keys: share.keys,
            home: (policy.spec.home, store.map(StoreSpec::names)),
            is_kept: false,
        });
        PolicyTables(tables.collect())
    }
}

/// A ruleset, with the policies that it keeps, the latest first.
impl<'a> From<(&'a Ruleset, &'a [Arc<Policy>])> for PolicyTables<'a> {
    fn from((ruleset, kept): (&'a Ruleset, &'a [Arc<Policy>])) -> Self {
        let policies = ruleset.policies.iter().map(|policy| (policy, false));
        let all = kept
            .iter()
            .rev()
            .map(|policy| (policy, true))
            .chain(policies);
        let all = all.flat_map(|(policy, is_kept)| {
            policy.quotas().map(move |quota| (policy, quota, is_kept))
        });
        let tables = all.map(|(policy, quota, is_kept)| PolicyTable {
            name: &policy.name,
            key: &quota.id,
            quota: &quota.text,
            algorithm: quota.algorithm(),
            keys: quota.buckets.table.keys,
            home: (quota.buckets.home, ruleset.store.names()),
            is_kept,
        });
        PolicyTables(tables.collect())
    }
}

impl<'a> PolicyTable<'a> {
    fn id(&self) -> (&'a str, &'a str) {
        (self.name, self.key)
    }

    fn change(
        &self,
        outcome: OutcomeKind,
        reasons: impl IntoIterator<Item = String>,
    ) -> BucketChange {
        let reasons: Vec<_> = reasons.into_iter().collect();
        let exception = self.key.split_once(" where ");
        BucketChange {
            policy: self.name.to_owned(),
            key: shown_key(self.key),
            override_for: exception.map(|(_, one)| shown_exception(one)),
            outcome,
            reason: (!reasons.is_empty()).then(|| reasons.join(", ")),
        }
    }

    /// The change of a table that goes on as `next`. With room for fewer keys, those that used least
    /// are forgotten if it holds more.
    fn change_to(&self, next: &PolicyTable<'_>) -> BucketChange {
        let (outcome, reason) = self.outcome_under(next);
        let (old, new) = (self.keys, next.keys);
        let room = (old > new).then(|| format!("room for {new} keys instead of {old}"));
        next.change(outcome, reason.into_iter().chain(room))
    }

    /// The outcome under another policy, and the reason.
    fn outcome_under(&self, next: &PolicyTable<'_>) -> (OutcomeKind, Option<String>) {
        let becomes = |[old, new]: [&str; 2]| Some(format!("{old} becomes {new}"));
        if let Some(stores) = Home::move_of([self.home, next.home], next.algorithm) {
            return (OutcomeKind::Reset, becomes(stores));
        }
        let (old, new) = (self.algorithm, next.algorithm);
        let (old_quota, new_quota) = (self.quota, next.quota);
        if new == old {
            return (OutcomeKind::Survives, None);
        }
        if !new.keeps_use_of(old) {
            let reason = if new.kind() == old.kind() {
                Some("a quota of 0 has nothing to use".to_owned())
            } else {
                becomes([old.kind(), new.kind()])
            };
            return (OutcomeKind::Reset, reason);
        }
        let outcome = if next.home.0.keeps_units([old, new]) {
            OutcomeKind::Rescaled
        } else {
            OutcomeKind::Reset
        };
        if old_quota == new_quota {
            (outcome, Some(format!("{new_quota}, with other settings")))
        } else {
            (outcome, becomes([old_quota, new_quota]))
        }
    }

    /// The end of buckets that no policy has any more; `key` is that of a policy of the same name.
    fn change_without_policy(&self, key: Option<&str>) -> BucketChange {
        // A removed override or overflow bucket leaves the policy's own key.
        let key = key.filter(|key| {
            let rest = self.key.strip_prefix(*key);
            rest.is_none_or(|rest| !rest.starts_with(' '))
        });
        match key {
            None => self.change(OutcomeKind::Ends, []),
            Some(key) => {
                let reason = format!("the key becomes {}", shown_key(key));
                self.change(OutcomeKind::Reset, [reason])
            }
        }
    }
}

/// The outcome for the buckets of a policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct BucketChange {
    /// The policy's name.
    pub policy: String,
    /// The policy's key; of an override, followed by the override's.
    pub key: String,
    /// The override's requests, as the state of a key has them.
    #[serde(rename = "override")]
    pub override_for: Option<String>,
    /// The outcome.
    pub outcome: OutcomeKind,
    /// The reason, if there is one.
    pub reason: Option<String>,
}

/// The outcome for buckets, in a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema, IntoStaticStr)]
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
    /// True if clients may notice: buckets end or start anew, or have another quota or less room.
    pub fn is_notable(&self) -> bool {
        match self.outcome {
            OutcomeKind::Survives => self.reason.is_some(),
            OutcomeKind::Rescaled | OutcomeKind::Reset | OutcomeKind::Ends => true,
            OutcomeKind::New => false,
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

/// The requests of an override, without the values that they have.
pub fn shown_exception(exception: &str) -> String {
    let conditional = exception.strip_prefix("when ").and_then(condition_of);
    let Some((condition, clients)) = conditional else {
        return shown_clients(exception);
    };
    match clients {
        "anyone" => format!("when {condition}"),
        clients => format!("when {condition}, {}", shown_clients(clients)),
    }
}

/// The condition that a text begins with, without its hidden values, and the clients after those.
fn condition_of(text: &str) -> Option<(Value, &str)> {
    let mut values = serde_json::Deserializer::from_str(text).into_iter();
    let mut condition = values.next()?.ok()?;
    remove_absent(&mut condition);
    let rest = &text[values.byte_offset()..];
    let (mut is_quoted, mut is_escaped) = (false, false);
    let end = rest.find(|letter| {
        let is_end = letter == ']' && !is_quoted;
        is_quoted ^= letter == '"' && !is_escaped;
        is_escaped = letter == '\\' && !is_escaped;
        is_end
    })?;
    Some((condition, rest[end + 1..].trim()))
}

fn remove_absent(condition: &mut Value) {
    match condition {
        Value::Object(members) => {
            members.retain(|_, member| !member.is_null());
            members.values_mut().for_each(remove_absent);
        }
        Value::Array(items) => items.iter_mut().for_each(remove_absent),
        _ => {}
    }
}

/// Clients without their value or prefix.
fn shown_clients(exception: &str) -> String {
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
