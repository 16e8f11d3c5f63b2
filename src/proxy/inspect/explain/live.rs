//! Explanations with the live state of keys: their buckets in memory and in Redis, bans, and units
//! that operators have granted. Nothing is charged.

use std::iter::once;
use std::net::IpAddr;

use super::limit::{LimitOutcome, LimitTrace, deciding};
use super::{Explanation, ExplanationReport, explain_in_memory};
use crate::clock::Timestamp;
use crate::http::message::Request;
use crate::limiter::{BucketView, Decision, Outcome, Secret};
use crate::proxy::admission::applicability::Applicability;
use crate::proxy::admission::mode::Enforcement;
use crate::proxy::inspect::key::PolicyKey;
use crate::proxy::inspect::key_state::KeyFacts;
use crate::proxy::ruleset::{Limit, Ruleset};
use crate::rules::{Head, Lookup};
use crate::store::{Home, OnStoreError, Probe, SteeringError};

/// The place of a value that stays secret.
const MASK: &str = "***";

/// An explanation that still lacks the live state of the request's keys.
#[derive(Debug)]
pub struct PendingExplanation<'r> {
    explanation: Explanation<'r>,
    /// The keys that the request charges, by the limits of its route.
    keys: Vec<Option<LiveKey<'r>>>,
}

/// A key that the request would charge, and the charge.
#[derive(Debug)]
struct LiveKey<'r> {
    key: PolicyKey<'r>,
    probe: Probe,
}

/// Begins to explain the decision of a running ruleset on `request` from the peer at `from`.
pub fn explain_live(
    ruleset: &Ruleset,
    request: Request<()>,
    from: IpAddr,
    now: Timestamp,
) -> PendingExplanation<'_> {
    let mut keys = Vec::new();
    let explanation = explain_in_memory(ruleset, request, from, now, |limit, applies, head| {
        keys.push(LiveKey::of(limit, applies, &ruleset.secret, head, now));
    });
    PendingExplanation { explanation, keys }
}

impl PendingExplanation<'_> {
    /// Reads the state of the keys, one after the other, each call of Redis within the client's
    /// deadline. Secrets of the request are masked: values of fields, cookies, parameters and
    /// claims.
    pub async fn conclude(mut self) -> ExplanationReport {
        let now = self.explanation.now;
        if let Ok(trace) = &mut self.explanation.trace {
            for (limit, key) in trace.limits.iter_mut().zip(&self.keys) {
                let Some(LiveKey { key, probe }) = key else {
                    continue;
                };
                match key.facts(*probe, now).await {
                    Ok(facts) => limit.decide_live(key, &facts, limit.cost),
                    Err(error) => limit.decide_without_store(&error),
                }
            }
        }
        self.explanation.conclude();
        self.explanation.mask_secrets();
        self.explanation.report()
    }
}

impl<'r> LiveKey<'r> {
    /// `None` if the request charges no bucket of the limit.
    fn of(
        limit: &'r Limit,
        applicability: Applicability,
        secret: &Secret,
        head: &Head<'_>,
        now: Timestamp,
    ) -> Option<Self> {
        let Applicability::Bucket(_, place) = applicability else {
            return None;
        };
        Some(Self {
            key: PolicyKey::of_request(limit, secret, head, place)?,
            probe: Probe {
                demand: limit.demand(place, Some(head), limit.spec.cost.of(head).ok()?),
                window_end: limit.quota(place).window_end(head, now),
            },
        })
    }
}

impl<'r> LimitTrace<'r> {
    /// Decides as the store would on a charge of `cost` units.
    fn decide_live(&mut self, key: &PolicyKey<'r>, facts: &KeyFacts, cost: u32) {
        let buckets = once(&facts.bucket).chain(&facts.overflow);
        let mut decisions: Vec<_> = buckets.map(|facts| facts.for_cost).collect();
        let is_bound = self.enforcement == Enforcement::Enforced || self.is_tag();
        let ban = facts.ban.as_ref().filter(|_| is_bound);
        let place = match ban {
            // A banned request tries no further bucket.
            Some(_) => 0,
            None => deciding(&decisions),
        };
        let payers = decisions.iter().map(|decision| decision.outcome);
        let outcome = Outcome::joint(payers.chain(facts.granted(cost)), None);
        let mut decision = decisions.swap_remove(place);
        let is_paid = decision.is_admitted();
        if let Some(granted) = &facts.granted {
            decision = with_grant(decision, &facts.bucket.decision, granted.left, cost);
        }
        let mut is_banned = ban.is_some();
        if let Some(ban) = ban {
            decision.outcome = outcome;
            decision.ban(ban.until);
        } else if !decision.is_admitted()
            && self.can_refuse()
            && let Some(until) = key.next_ban(facts.now)
        {
            decision.ban(until);
            is_banned = true;
        }
        self.decide_by(key.quota(), place);
        let is_others = is_banned || facts.granted.is_some() && !is_paid;
        self.paying = self.paying.filter(|_| !is_others);
        let is_queued = ban.is_none() && self.has_place_in_queue(&decision, &facts.bucket.view);
        self.outcome = if is_queued {
            LimitOutcome::Queued(decision)
        } else {
            LimitOutcome::Decided(decision)
        };
        self.state = Some(facts.state(key));
    }

    /// True if the request is not refused, but waits until others return their units.
    fn has_place_in_queue(&self, decision: &Decision, view: &BucketView) -> bool {
        let waits = matches!(decision.outcome, Outcome::Refuse { retry_at: Some(_) });
        let has_place = match view {
            BucketView::Concurrency { waiting, queue, .. } => waiting < queue,
            _ => false,
        };
        waits && has_place && self.can_refuse()
    }

    /// Decides as the policy says for a store that does not answer. Local buckets have decided
    /// already.
    fn decide_without_store(&mut self, error: &SteeringError) {
        self.store_error = Some(error.to_string());
        if let Home::Redis(on_error @ (OnStoreError::Admit | OnStoreError::Refuse)) =
            self.quota.buckets.home
        {
            self.outcome = LimitOutcome::Undecided(on_error);
        }
    }
}

impl Explanation<'_> {
    /// Masks the query of the URL, and the values of key parts that only the client has to know.
    fn mask_secrets(&mut self) {
        if let Some((target, _)) = self.url.split_once('?') {
            self.url = format!("{target}?{MASK}");
        }
        for limit in self.trace.iter_mut().flat_map(|trace| &mut trace.limits) {
            let state = limit.state.as_mut();
            let exception = state.and_then(|state| state.override_for.as_mut());
            if let Some(exception) = exception
                && limit.key.iter().any(|part| part.is_secret)
            {
                MASK.clone_into(exception);
            }
            for part in &mut limit.key {
                if let (true, Lookup::One(value)) = (part.is_secret, &mut part.value) {
                    MASK.clone_into(value);
                }
            }
        }
    }
}

/// The decision with the granted units of the key, which pay what the quota cannot.
fn with_grant(decision: Decision, quota: &Decision, granted: u32, cost: u32) -> Decision {
    match granted.checked_sub(cost) {
        _ if decision.is_admitted() => decision.with_granted(granted, None),
        Some(left) => Decision {
            outcome: Outcome::Admit,
            ..quota.with_granted(left, None)
        },
        None => decision.with_granted(granted, None),
    }
}
