//! The state of a key as JSON: what it has used, what operators did to it, and its bucket.

use std::borrow::Cow;
use std::iter::once;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::cell::CellView;
use super::key::PolicyKey;
use crate::clock::Timestamp;
use crate::limiter::{BucketFacts, Outcome};
use crate::proxy::activity::KeyRefusals;
use crate::store::{Attribution, KeyChange, KeyRule};

/// The state of one key of a policy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct KeyState {
    /// The policy's name.
    pub policy: String,
    /// The name of the key in logs, on this machine.
    pub key_id: String,
    /// The algorithm.
    pub algorithm: Cow<'static, str>,
    /// The unit of the quota.
    pub unit: Cow<'static, str>,
    /// The quota as configured.
    pub quota: String,
    /// The largest number of units at one instant.
    pub limit: u32,
    /// Used units of the quota; with debt, not more than the limit.
    pub used: u32,
    /// Units of the quota that can be taken now.
    pub remaining: u32,
    /// The soft limit that a request of one unit exceeds, in units.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub soft_limit: Option<u32>,
    /// Seconds until the bucket is full.
    pub reset_s: f64,
    /// Seconds until the policy allows a request of one unit; none if it does, or if that is unknown.
    pub retry_after_s: Option<f64>,
    /// The policy allows one unit now. Whatever it says, it refuses nothing unless `mode` is
    /// `enforce`.
    pub allowed: bool,
    /// The effect of the policy's decisions on this key, by the configuration, a `percent`, or the
    /// mode that an operator has set. In `shadow` and `disabled` it refuses nothing.
    #[schemars(extend("enum" = ["enforce", "shadow", "disabled"]))]
    pub mode: Cow<'static, str>,
    /// The store has a bucket, a ban or a grant of the key. False for a key that is mistyped, and for
    /// one that has asked nothing since its bucket was full.
    pub stored: bool,
    /// The exception that gives the key another quota.
    #[serde(rename = "override")]
    pub override_for: Option<String>,
    /// True if the policy does not limit the key.
    pub exempt: bool,
    /// The place of the bucket.
    #[schemars(extend("enum" = ["memory", "redis"]))]
    pub store: Cow<'static, str>,
    /// The interval of synchronising with other machines, if a bucket in memory is synchronised.
    pub sync_s: Option<f64>,
    /// Units that an operator has granted.
    pub granted: Option<GrantState>,
    /// Units used beyond the limit.
    pub debt: u32,
    /// Units that requests in flight have in use, or are still to settle, on this machine.
    pub in_flight: u64,
    /// The ban that is in force.
    pub ban: Option<BanState>,
    /// The bucket as its algorithm sees it.
    pub cell: CellView,
    /// Refused requests of the key on this machine, over the last five minutes or since the start.
    /// Only in answers to `lookup`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limited: Option<Refusals>,
    /// The states under overrides that only some requests of the key have, by a condition or by their
    /// address, and whose buckets the store has. Only in answers to `lookup`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<KeyState>,
}

/// Refused requests of a key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Refusals {
    /// Their number.
    pub requests: u64,
    /// By how much the number may be wrong, in both directions: a flood of keys makes it uncertain.
    pub error_bound: u64,
    /// The time over which they were counted.
    pub counted_s: f64,
}

impl From<KeyRefusals> for Refusals {
    fn from(refusals: KeyRefusals) -> Self {
        Self {
            requests: refusals.requests,
            error_bound: refusals.error,
            counted_s: refusals.counted.as_secs_f64(),
        }
    }
}

/// Units that an operator has granted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GrantState {
    /// Units that are left.
    pub units: u32,
    /// Units of the grant.
    pub of_units: u32,
    /// The end of the grant (RFC 3339).
    #[schemars(extend("format" = "date-time"))]
    pub until: String,
    /// The operator, by role and place of the token; empty until this machine has read the
    /// announcement.
    pub actor: String,
    /// The operator's reason.
    pub reason: String,
}

/// A ban that is in force.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BanState {
    /// The end of the ban (RFC 3339).
    #[schemars(extend("format" = "date-time"))]
    pub until: String,
    /// Seconds until the end.
    pub for_s: f64,
    /// The number of the ban by the policy's penalty; none for a ban by an operator.
    pub number: Option<u32>,
    /// The operator, by role and place of the token; none for a ban by a penalty.
    pub actor: Option<String>,
    /// The operator's reason, or the penalty.
    pub reason: String,
}

/// The parts of a state.
#[derive(Clone, Debug)]
pub(super) struct KeyFacts {
    pub(super) now: Timestamp,
    /// The policy's first bucket.
    pub(super) bucket: BucketFacts,
    /// True if the store has a bucket of the key.
    pub(super) has_bucket: bool,
    /// The buckets of further overflow tiers.
    pub(super) overflow: Vec<BucketFacts>,
    pub(super) granted: Option<KeyRule>,
    pub(super) in_flight: u64,
    pub(super) ban: Option<KeyBan>,
    /// The ban by an operator, which a later one by a penalty hides.
    pub(super) operator_ban: Option<KeyRule>,
}

/// A ban in force.
#[derive(Clone, Debug)]
pub(super) struct KeyBan {
    pub(super) until: Timestamp,
    pub(super) number: Option<u32>,
    pub(super) actor: Option<String>,
    pub(super) reason: String,
}

impl KeyBan {
    /// A ban by an operator.
    pub(super) fn by_operator(until: Timestamp, by: &Attribution) -> Self {
        Self {
            until,
            number: None,
            actor: Some(by.actor.to_string()),
            reason: by.reason.to_string(),
        }
    }
}

impl KeyFacts {
    /// The instant at which a request of one unit is allowed, on which the first bucket has decided
    /// so; the outcome is the earliest of all buckets, and not before the end of a ban.
    fn outcome(&self, first: Outcome) -> Outcome {
        let further = self.overflow.iter().map(|tier| tier.next.outcome);
        let payers = once(first).chain(further).chain(self.granted(1));
        Outcome::joint(payers, self.ban.as_ref().map(|ban| ban.until))
    }

    /// The admission by granted units, if they suffice for `cost` and outlast the ban.
    pub(super) fn granted(&self, cost: u32) -> Option<Outcome> {
        let granted = self
            .granted
            .as_ref()
            .filter(|granted| granted.left >= cost)?;
        let outlasts = |ban: &KeyBan| ban.until < granted.until;
        self.ban
            .as_ref()
            .is_none_or(outlasts)
            .then_some(Outcome::Admit)
    }

    /// The state of this key.
    pub(super) fn state(&self, key: &PolicyKey<'_>) -> KeyState {
        let quota = key.quota();
        let decision = &self.bucket.decision;
        let left = self.granted.as_ref().map_or(0, |granted| granted.left);
        let (next, soft_limit) = key.soften(self.bucket.next.with_granted(left, None), self.now);
        let (outcome, is_exempt) = (self.outcome(next.outcome), key.is_exempt);
        let is_admitted = is_exempt || !matches!(outcome, Outcome::Refuse { .. });
        let retry_at = match outcome {
            Outcome::Refuse { retry_at } if !is_exempt => retry_at,
            _ => None,
        };
        let remaining = decision.remaining.min(decision.capacity);
        KeyState {
            policy: key.policy().name.to_string(),
            key_id: format!("k_{:016x}", key.fingerprint().bits()),
            algorithm: quota.algorithm().kind().into(),
            unit: quota.advertised.unit.into_str().into(),
            quota: quota.text.clone(),
            limit: decision.capacity,
            used: decision.capacity - remaining,
            remaining,
            soft_limit,
            reset_s: self.seconds_to(decision.reset),
            retry_after_s: retry_at.map(|at| self.seconds_to(at)),
            allowed: is_admitted,
            mode: key.mode().into(),
            stored: self.has_bucket || self.granted.is_some() || self.ban.is_some(),
            override_for: key.override_for(),
            exempt: is_exempt,
            store: quota.buckets.home.store_name().into(),
            sync_s: quota
                .buckets
                .home
                .sync_interval()
                .map(|interval| interval.as_secs_f64()),
            granted: self.granted.as_ref().map(|granted| GrantState {
                units: granted.left,
                of_units: granted.units,
                until: rfc_3339(granted.until),
                actor: granted.by.actor.to_string(),
                reason: granted.by.reason.to_string(),
            }),
            debt: self.bucket.owed,
            in_flight: self.in_flight,
            ban: self.ban.as_ref().map(|ban| BanState {
                until: rfc_3339(ban.until),
                for_s: self.seconds_to(ban.until),
                number: ban.number,
                actor: ban.actor.clone(),
                reason: ban.reason.clone(),
            }),
            cell: self.bucket.view.clone().into(),
            limited: None,
            others: Vec::new(),
        }
    }

    /// The ban or the grant by an operator that a change replaces, in words.
    pub(super) fn replaced(&self, change: KeyChange) -> Option<String> {
        let (what, rule) = match change {
            KeyChange::Ban { .. } => ("the ban".to_owned(), self.operator_ban.as_ref()?),
            KeyChange::Grant { units: 1.., .. } => {
                let rule = self.granted.as_ref()?;
                let (units, left) = (rule.units, rule.left);
                (
                    format!("the grant of {units} units, {left} of them left,"),
                    rule,
                )
            }
            KeyChange::Grant { .. } | KeyChange::Reset | KeyChange::Unban => return None,
        };
        let (until, Attribution { actor, reason }) = (rfc_3339(rule.until), &rule.by);
        let reason = match &**reason {
            "" => String::new(),
            reason => format!(" ({reason})"),
        };
        Some(format!("replaces {what} until {until} by {actor}{reason}"))
    }

    /// Seconds until an instant, rounded up to a millisecond.
    fn seconds_to(&self, at: Timestamp) -> f64 {
        let milliseconds = at.since(self.now).as_micros().div_ceil(1_000);
        Duration::from_millis(milliseconds as u64).as_secs_f64()
    }
}

/// An instant as RFC 3339 has it, in UTC, to the second; rounded up, since both grants and bans last
/// until then.
pub fn rfc_3339(at: Timestamp) -> String {
    let seconds = at.as_micros().div_ceil(1_000_000);
    let instant = i64::try_from(seconds)
        .ok()
        .and_then(|seconds| jiff::Timestamp::from_second(seconds).ok());
    instant.unwrap_or(jiff::Timestamp::MAX).to_string()
}
