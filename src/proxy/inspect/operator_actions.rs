//! The bans and grants of operators that are in force: a page of them, the newest first, and the end of
//! one. Keys have the ids under which they are stored.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::key::Execution;
use super::key_state::rfc_3339;
use crate::clock::{Timestamp, text};
use crate::limiter::Fingerprint;
use crate::proxy::ruleset::Policy;
use crate::store::{KeyRule, OperatorActionKind, SteeringError};

/// A ban or a grant by an operator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ListedAction {
    /// The policy's name.
    pub policy: String,
    /// The hash of the key. It is the key's id in logs, unless machines share the key: then it is the
    /// same on all of them.
    #[schemars(regex(pattern = "^k_[0-9a-f]{16}$"))]
    pub id: String,
    /// A ban or a grant.
    pub what: OperatorActionKind,
    /// The start (RFC 3339).
    #[schemars(extend("format" = "date-time"))]
    pub since: String,
    /// The end (RFC 3339).
    #[schemars(extend("format" = "date-time"))]
    pub until: String,
    /// Granted units that are left; none for a ban, and for a key that machines share.
    pub units: Option<u32>,
    /// Granted units; none for a ban.
    pub of_units: Option<u32>,
    /// The operator, by role and place of the token.
    pub actor: String,
    /// The operator's reason.
    pub reason: String,
}

/// Bans and grants, the newest first.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ActionPage {
    /// The number of all, on this page or not.
    pub total: usize,
    /// The bans and grants of this page.
    pub items: Vec<ListedAction>,
    /// The place at which the next page begins; none after the last.
    pub next: Option<String>,
}

/// The place of a ban or a grant in the list.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ListPlace {
    since: Reverse<Timestamp>,
    key: u64,
    kind: OperatorActionKind,
    policy: Arc<str>,
}

/// `1795236063000000.5f0c1a2b3c4d5e6f.ban.per-key`.
impl fmt::Display for ListPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (since, kind) = (self.since.0.as_micros(), <&str>::from(self.kind));
        write!(f, "{since}.{:016x}.{kind}.{}", self.key, self.policy)
    }
}

impl FromStr for ListPlace {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let mut parts = text.splitn(4, '.');
        let mut part = || parts.next().ok_or(());
        Ok(Self {
            since: Reverse(Timestamp::from_micros(part()?.parse().map_err(drop)?)),
            key: u64::from_str_radix(part()?, 16).map_err(drop)?,
            kind: part()?.parse().map_err(drop)?,
            policy: part()?.into(),
        })
    }
}

/// A page of at most `most` bans and grants of these policies, from behind `after` on.
pub fn operator_actions<'a>(
    policies: impl Iterator<Item = &'a Arc<Policy>>,
    after: Option<&ListPlace>,
    most: usize,
    now: Timestamp,
) -> ActionPage {
    let (mut total, mut listed) = (0, BTreeMap::new());
    for policy in policies {
        for (key, kind, rule) in policy.steering.keys().rules(now) {
            total += 1;
            let place = ListPlace {
                since: Reverse(rule.since),
                key: key.bits(),
                kind,
                policy: Arc::clone(&policy.name),
            };
            if after.is_none_or(|after| place > *after) {
                listed.insert(place, listed_action(policy, key, kind, rule));
                if listed.len() > most + 1 {
                    listed.pop_last();
                }
            }
        }
    }
    let is_last = listed.len() <= most;
    let places = listed.keys().take(most).next_back().filter(|_| !is_last);
    ActionPage {
        total,
        next: places.map(ListPlace::to_string),
        items: listed.into_values().take(most).collect(),
    }
}

fn listed_action(
    policy: &Policy,
    key: Fingerprint,
    what: OperatorActionKind,
    rule: KeyRule,
) -> ListedAction {
    let is_shared = policy.steering.keys().is_shared();
    let is_grant = what == OperatorActionKind::Grant;
    ListedAction {
        policy: policy.name.to_string(),
        id: key.to_string(),
        what,
        since: text::rfc_3339(rule.since),
        until: rfc_3339(rule.until),
        units: (is_grant && !is_shared).then_some(rule.left),
        of_units: is_grant.then_some(rule.units),
        actor: rule.by.actor.into(),
        reason: rule.by.reason.into(),
    }
}

/// Lifts a ban of a policy, or takes a grant back, and returns it; `None` if there is none.
///
/// # Errors
/// The store does not answer.
pub async fn revoke(
    policy: &Policy,
    (key, kind): (Fingerprint, OperatorActionKind),
    execution: Execution,
    now: Timestamp,
) -> Result<Option<ListedAction>, SteeringError> {
    let steering = &policy.steering;
    let Some(rule) = steering.keys().rule(key, kind, now) else {
        return Ok(None);
    };
    if execution == Execution::Apply {
        steering.revoke(key, (kind, &rule), now).await?;
        let actions = &steering.keys().metrics.actions;
        actions.record(kind.end(&rule).action());
    }
    Ok(Some(listed_action(policy, key, kind, rule)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_survives_its_text() {
        for policy in ["a", "search#0", "a.b. c"] {
            let place = ListPlace {
                since: Reverse(Timestamp::from_micros(7)),
                key: 0xfe,
                kind: OperatorActionKind::Grant,
                policy: policy.into(),
            };
            assert_eq!(place.to_string().parse(), Ok(place));
        }
        for wrong in ["", "1.2.ban", "x.2.ban.p", "1.g.ban.p", "1.2.bun.p"] {
            assert_eq!(wrong.parse::<ListPlace>(), Err(()), "{wrong}");
        }
    }
}
