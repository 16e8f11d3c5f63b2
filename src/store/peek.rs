//! Looks at buckets, wherever they live, and charges nothing.

use super::charge_list::ListedCharge;
use super::memory::Ask;
use super::pending_charge::PendingEntry;
use super::redis::Tier;
use super::{Caller, ChargeSource, PolicyCharge, Store, redis};
use crate::clock::Timestamp;
use crate::limiter::{Algorithm, Decision, Outcome};

/// The state of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BucketState {
    /// The decision on a request of no units, with the key's granted units. It is a refusal while
    /// the key is banned. `None` if Redis does not answer.
    pub decision: Option<Decision>,
    /// The end of the key's ban.
    pub banned_until: Option<Timestamp>,
}

/// The states at `now` of the buckets that these charges of no units name. Redis is called once, in
/// a cluster once for each slot, within its deadline.
pub async fn peek(
    store: &Store,
    caller: Caller,
    charges: &[PolicyCharge],
    source: &dyn ChargeSource,
    now: Timestamp,
) -> Vec<BucketState> {
    let charges = charges.iter();
    let charges = charges.map(|charge| ListedCharge::new(source.limits(), *charge));
    let charges: Vec<_> = charges.collect();
    let mut decisions: Vec<_> = charges
        .iter()
        .map(|charge| Some(charge.peek(Ask::Peek, now).1))
        .collect();
    if let Store::Redis(store) = store {
        peek_redis(store, caller, &charges, source, now, &mut decisions).await;
    }
    let states = charges.iter().zip(decisions);
    states
        .map(|(charge, decision)| BucketState::new(charge, decision, now))
        .collect()
}

/// Replaces the decisions on buckets in Redis.
async fn peek_redis(
    store: &redis::Store,
    caller: Caller,
    charges: &[ListedCharge<'_>],
    source: &dyn ChargeSource,
    now: Timestamp,
    decisions: &mut [Option<Decision>],
) {
    let in_redis = charges
        .iter()
        .zip(decisions)
        .filter_map(|(charge, decision)| {
            let entry = PendingEntry::in_redis(store, *charge, source, now)?;
            Some((charge, entry, decision))
        });
    let in_redis: Vec<_> = in_redis.collect();
    let replies = {
        let mut buckets = Vec::new();
        for (charge, entry, _) in &in_redis {
            entry.push_charges(&mut buckets, **charge);
        }
        // The first bucket of each, and its granted units.
        buckets.retain(|bucket| {
            bucket.tier == Tier::First || matches!(bucket.algorithm, Algorithm::Grant(_))
        });
        store.peek(caller, &buckets, Ask::Peek, now).await
    };
    for ((charge, entry, decision), reply) in in_redis.into_iter().zip(replies) {
        if let Err(error) = &reply {
            entry.on_error(*charge, error, now);
        }
        *decision = reply.ok().map(|reply| {
            let mut decision = reply.decision;
            if reply.is_doubted {
                decision.doubt(store.decided_by(now));
            }
            decision
        });
    }
}

impl BucketState {
    fn new(charge: &ListedCharge<'_>, mut decision: Option<Decision>, now: Timestamp) -> Self {
        let banned_until = charge.charge.banned_until;
        if let (Some(decision), Some(until)) = (&mut decision, banned_until) {
            // The next unit may be there only after the ban.
            if decision.remaining == 0 {
                let retry_at = charge.buckets.algorithm().more_at(decision, now);
                decision.outcome = Outcome::Refuse { retry_at };
            }
            decision.ban(until);
        }
        Self {
            decision,
            banned_until,
        }
    }
}
