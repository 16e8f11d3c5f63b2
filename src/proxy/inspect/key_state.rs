//! The state of a key as JSON: what it has used, what operators did to it, and its bucket.

use std::borrow::Cow;
use std::iter::once;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::cell::CellView;
use super::key::PolicyKey;
use crate::clock::Timestamp;
use crate::clock::text::Span;
use crate::limiter::Outcome;
use crate::limiter::bucket::BucketView;
use crate::limiter::penalty::Ban;
use crate::proxy::activity::Refusals;
use crate::proxy::answers::action::Action;
use crate::store::{Attribution, KeyChange, KeyRule, SteeredFacts};

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
    /// The units that the quota allows a second, on average; null for `concurrency`.
    #[serde(default)]
    pub quota_per_s: Option<f64>,
    /// The largest number of units at one instant.
    pub limit: u64,
    /// Used units of the quota; with debt, not more than the limit.
    pub used: u64,
    /// Units of the quota that can be taken now.
    pub remaining: u64,
    /// The soft limit that a request of one unit exceeds, in units.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub soft_limit: Option<u64>,
    /// Seconds until the bucket is full.
    pub reset_s: f64,
    /// Seconds until the policy allows a request of one unit; none if it does, or if that is unknown.
    pub retry_after_s: Option<f64>,
    /// The policy allows one unit now. Whatever it says, it refuses nothing unless `mode` is
    /// `enforce`.
    pub allowed: bool,
    /// The outcome of the next request of one unit, in words.
    #[serde(default)]
    pub verdict: String,
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
    pub debt: u64,
    /// Units that requests in flight have in use, or are still to settle, on this machine.
    pub in_flight: u64,
    /// Requests that wait for units or places of the key, on this machine.
    #[serde(default)]
    pub waiting: usize,
    /// The ban that is in force.
    pub ban: Option<BanState>,
    /// The bucket as its algorithm sees it.
    pub cell: CellView,
    /// Refused requests of the key on this machine, over the last five minutes or since the start.
    /// Only in answers to `lookup` and `find`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limited: Option<Refusals>,
    /// The states under overrides that only some requests of the key have, by a condition or by their
    /// address, and whose buckets the store has.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<KeyState>,
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

impl KeyState {
    /// True if anything is known of the key: a bucket, a ban, a grant, or refusals.
    pub fn is_known(&self) -> bool {
        let requests = self.limited.as_ref().map_or(0, |limited| limited.requests);
        self.stored || !self.others.is_empty() || requests > 0
    }

    /// The outcome of the next request under a policy with this action, in words.
    fn verdict(&self, action: &Action) -> String {
        let is_enforced = self.mode == "enforce";
        let would = if is_enforced { "" } else { "would be " };
        let done = match (action, self.ban.is_some()) {
            (Action::Tag(_), _) => "forwarded with a tag",
            (Action::Route(_), _) => "sent to another upstream",
            (Action::Wait(_), false) => "kept waiting, or refused",
            (_, true) if is_enforced => "banned",
            (_, true) => "refused, by a ban",
            (_, false) => "refused",
        };
        let why = format!("{would}{done}");
        let wait = self.retry_after_s.map(Duration::from_secs_f64).map(Span);
        match (&self.cell, wait) {
            _ if self.exempt => "allowed: exempt from the policy".to_owned(),
            _ if self.allowed => "allowed".to_owned(),
            (
                CellView::Concurrency {
                    waiting_requests: waiting,
                    queue_requests: queue,
                    ..
                },
                _,
            ) if self.ban.is_none() && waiting < queue => {
                let waits = if is_enforced { "waits" } else { "would wait" };
                format!("{waits} until another request ends")
            }
            (CellView::Concurrency { .. }, Some(wait)) if self.ban.is_none() => {
                format!("{why} until a request ends; clients are told to wait {wait}")
            }
            (_, Some(wait)) => format!("{why}; allowed again in {wait}"),
            (_, None) => why,
        }
    }

    /// Orders states: those that limit most first, others by the used share of the quota.
    pub fn urgency(&self) -> impl Ord + use<> {
        let is_enforced = self.mode == "enforce";
        let requests = self.limited.as_ref().map(|limited| limited.requests);
        let share = self.used.saturating_mul(1_000) / self.limit.max(1);
        (
            is_enforced && self.ban.is_some(),
            requests,
            is_enforced,
            share,
        )
    }
}

/// The parts of a state.
#[derive(Clone, Debug)]
pub(super) struct KeyFacts {
    pub(super) now: Timestamp,
    /// The buckets, and what operators did to the key.
    pub(super) steered: SteeredFacts,
    /// The ban by the policy's penalty.
    pub(super) penalty: Option<Ban>,
}

impl KeyFacts {
    /// The end of the ban in force: the later of both.
    fn banned_until(&self) -> Option<Timestamp> {
        let by_operator = self.steered.ban.as_ref().map(|ban| ban.until);
        by_operator.max(self.penalty.map(|ban| ban.until))
    }

    /// The outcome of a request of one unit, on which the first bucket has decided so: that of the
    /// bucket or grant that pays first, and not before the end of a ban.
    fn outcome(&self, first: Outcome) -> Outcome {
        let banned_until = self.banned_until();
        let further = self.steered.buckets.iter().skip(1);
        let further = further.map(|tier| tier.next.outcome);
        let granted = self.steered.granted.as_ref();
        let pays = |grant: &&KeyRule| {
            grant.left >= 1 && banned_until.is_none_or(|banned| banned < grant.until)
        };
        let granted = granted.filter(pays).map(|_| Outcome::Admit);
        Outcome::joint(once(first).chain(further).chain(granted), banned_until)
    }

    /// The state of this key.
    pub(super) fn state(&self, key: &PolicyKey<'_>) -> KeyState {
        let SteeredFacts {
            buckets,
            has_bucket,
            granted,
            ban,
        } = &self.steered;
        let (quota, bucket) = (key.quota(), &buckets[0]);
        let (home, decision) = (quota.buckets.home, &bucket.decision);
        let left = granted.as_ref().map_or(0, |granted| granted.left.into());
        let (next, soft_limit) = key.soften(bucket.next.with_granted(left, None), self.now);
        let (outcome, is_exempt) = (self.outcome(next.outcome), key.is_exempt);
        let is_admitted = is_exempt || !matches!(outcome, Outcome::Refuse { .. });
        let retry_at = match outcome {
            Outcome::Refuse { retry_at } if !is_exempt => retry_at,
            _ => None,
        };
        let remaining = decision.remaining.min(decision.capacity);
        let banned_until = self.banned_until();
        let mut state = KeyState {
            policy: key.policy().name.to_string(),
            key_id: key.fingerprint().to_string(),
            algorithm: quota.algorithm().kind().into(),
            unit: quota.advertised.unit.into_str().into(),
            quota: quota.text.clone(),
            quota_per_s: (quota.algorithm().window())
                .map(|window| quota.algorithm().limit() as f64 / window.as_secs_f64()),
            limit: decision.capacity,
            used: decision.capacity - remaining,
            remaining,
            soft_limit,
            reset_s: self.seconds_to(decision.reset),
            retry_after_s: retry_at.map(|at| self.seconds_to(at)),
            allowed: is_admitted,
            verdict: String::new(),
            mode: key.mode().into(),
            stored: *has_bucket || granted.is_some() || banned_until.is_some(),
            override_for: key.override_for(),
            exempt: is_exempt,
            store: home.store_name().into(),
            sync_s: home.sync_interval().map(|interval| interval.as_secs_f64()),
            granted: granted.as_ref().map(|granted| GrantState {
                units: granted.left,
                of_units: granted.units,
                until: rfc_3339(granted.until),
                actor: granted.by.actor.to_string(),
                reason: granted.by.reason.to_string(),
            }),
            debt: bucket.owed,
            in_flight: match bucket.view {
                BucketView::Concurrency { in_use, .. } => in_use.into(),
                _ => quota.buckets.units_in_flight(key.fingerprint()),
            },
            waiting: match bucket.view {
                BucketView::Concurrency { waiting, .. } => waiting as usize,
                _ => key.waiting(),
            },
            ban: banned_until.map(|until| {
                let penalty = self.penalty.filter(|ban| ban.until == until);
                let operator = ban.as_ref().filter(|_| penalty.is_none());
                let operator = operator.map(|ban| &ban.by);
                BanState {
                    until: rfc_3339(until),
                    for_s: self.seconds_to(until),
                    number: penalty.map(|ban| ban.number),
                    actor: operator.map(|by| by.actor.to_string()),
                    reason: operator.map_or_else(|| key.penalty(), |by| by.reason.to_string()),
                }
            }),
            cell: bucket.view.clone().into(),
            limited: None,
            others: Vec::new(),
        };
        state.verdict = state.verdict(&key.policy().action);
        state
    }

    /// The ban or the grant by an operator that a change replaces, in words.
    pub(super) fn replaced(&self, change: KeyChange) -> Option<String> {
        let (what, rule) = match change {
            KeyChange::Ban { .. } => ("the ban".to_owned(), self.steered.ban.as_ref()?),
            KeyChange::Grant { units: 1.., .. } => {
                let rule = self.steered.granted.as_ref()?;
                let (units, left) = (rule.units, rule.left);
                let what = format!("the grant of {units} units, {left} of them left,");
                (what, rule)
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

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// A state with these fields.
    fn state_with(fields: Value) -> KeyState {
        let mut state = json!({
            "policy": "login", "quota": "5/1h", "key_id": "k_1", "unit": "requests",
            "limit": 5, "used": 5, "remaining": 0, "reset_s": 90.0, "retry_after_s": 90.0,
            "allowed": false, "mode": "enforce", "store": "memory", "algorithm": "gcra",
            "debt": 0, "stored": true, "override": null, "exempt": false, "sync_s": null,
            "granted": null, "in_flight": 0, "ban": null,
            "cell": {
                "algorithm": "gcra", "tat_in_ms": 0.0, "tau_ms": 0.0, "interval_ms": 0.0,
                "burst_units": 5,
            },
        });
        let Value::Object(fields) = fields else {
            panic!("fields")
        };
        state.as_object_mut().expect("an object").extend(fields);
        serde_json::from_value(state).expect("a state")
    }

    fn ban() -> Value {
        let until = "2026-11-24T18:00:00Z";
        json!({ "until": until, "for_s": 90.0, "number": null, "actor": null, "reason": "" })
    }

    fn permits(waiting: u32) -> Value {
        json!({
            "algorithm": "concurrency", "in_use_units": 1, "max_units": 1,
            "waiting_requests": waiting, "queue_requests": 1,
        })
    }

    #[test]
    fn a_verdict_says_what_becomes_of_the_next_request() {
        for (fields, verdict) in [
            (json!({}), "refused; allowed again in 1m 30s"),
            (json!({ "retry_after_s": null }), "refused"),
            (json!({ "allowed": true }), "allowed"),
            (json!({ "exempt": true }), "allowed: exempt from the policy"),
            (json!({ "ban": ban() }), "banned; allowed again in 1m 30s"),
            (
                json!({ "mode": "shadow" }),
                "would be refused; allowed again in 1m 30s",
            ),
            (
                json!({ "mode": "disabled", "ban": ban() }),
                "would be refused, by a ban; allowed again in 1m 30s",
            ),
            (
                json!({ "algorithm": "concurrency", "cell": permits(0) }),
                "waits until another request ends",
            ),
            (
                json!({ "mode": "shadow", "algorithm": "concurrency", "cell": permits(0) }),
                "would wait until another request ends",
            ),
            (
                json!({ "algorithm": "concurrency", "cell": permits(1) }),
                "refused until a request ends; clients are told to wait 1m 30s",
            ),
            (
                json!({ "algorithm": "concurrency", "cell": permits(0), "ban": ban() }),
                "banned; allowed again in 1m 30s",
            ),
        ] {
            let state = state_with(fields.clone());
            assert_eq!(state.verdict(&Action::Reject), verdict, "{fields}");
        }
    }

    #[test]
    fn what_limits_most_comes_first() {
        let of = |fields: Value, requests| {
            let mut state = state_with(fields);
            state.limited = Some(Refusals {
                requests,
                error_bound: 0,
                counted_s: 300.0,
                first_s: None,
                last_s: None,
            });
            state
        };
        let states = [
            of(json!({ "ban": ban() }), 0),
            of(json!({ "used": 1 }), 7),
            of(json!({}), 2),
            of(json!({}), 0),
            of(json!({ "used": 1 }), 0),
            of(json!({ "ban": ban(), "mode": "shadow" }), 0),
        ];
        let places: Vec<_> = states.iter().map(KeyState::urgency).collect();
        assert!(places.is_sorted_by(|one, next| one > next));
    }
}
