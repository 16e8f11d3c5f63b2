//! Explanations with the live state of keys: their buckets in memory and in Redis, bans, and units
//! that operators have granted. Nothing is charged.

use std::net::IpAddr;

use super::{Explanation, ExplanationReport, begin};
use crate::clock::Timestamp;
use crate::http::message::Request;
use crate::limiter::Secret;
use crate::proxy::admission::applicability::Applicability;
use crate::proxy::inspect::key::PolicyKey;
use crate::proxy::ruleset::{Limit, Ruleset};
use crate::rules::{Head, Lookup};
use crate::store::{Caller, Probe};

/// The place of a value that stays secret.
const MASK: &str = "***";

/// An explanation that still lacks the decisions of Redis and the state of the request's keys.
#[derive(Debug)]
pub struct PendingExplanation<'r> {
    ruleset: &'r Ruleset,
    explanation: Explanation<'r>,
    /// The keys that the request charges, by the limits of its route.
    keys: Vec<Option<LiveKey<'r>>>,
}

/// A key that the request would charge, and a request of one unit.
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
    let store = &ruleset.store;
    let explanation = begin(
        ruleset,
        store,
        request,
        from,
        now,
        |limit, applies, head| {
            keys.push(LiveKey::of(limit, applies, &ruleset.secret, head, now));
        },
    );
    PendingExplanation {
        ruleset,
        explanation,
        keys,
    }
}

impl PendingExplanation<'_> {
    /// Asks Redis, and reads the state of the keys, one after the other, each call within the client's
    /// deadline. Secrets of the request are masked: values of fields, cookies, parameters and
    /// claims.
    pub async fn conclude(mut self) -> ExplanationReport {
        let now = self.explanation.now;
        if let Ok(trace) = &mut self.explanation.trace {
            if let (Some(pending), Some(redis)) =
                (trace.peeked.pending.take(), self.ruleset.store.redis())
            {
                let caller = Caller {
                    worker: redis.operator_worker(),
                    client: None,
                };
                let (limits, result) = (&trace.rules.limits, &mut trace.admission.result);
                trace.is_undecided = pending.decide(caller, limits, result).await.is_err();
            }
            for (limit, key) in trace.limits.iter_mut().zip(&self.keys) {
                if let Some(LiveKey { key, probe }) = key {
                    let facts = key.facts(*probe, now).await;
                    limit.state = facts.ok().map(|facts| facts.state(key));
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
        limit.spec.cost.of(head).ok()?;
        Some(Self {
            key: PolicyKey::of_request(limit, secret, head, place)?,
            probe: Probe {
                demand: limit.demand(place, Some(head), 1),
                window_end: limit.quota(place).window_end(head, now),
            },
        })
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
