//! Looks at buckets, wherever they live, and charges nothing.

use super::redis::{self, BucketCharge, ChargedRefusals, Tier};
use super::redis_entry::RedisEntry;
use super::{ChargeSource, PolicyCharge, Store};
use crate::clock::Timestamp;
use crate::limiter::{Decision, Verdict};

/// The state of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BucketState {
    /// The decision on a request of no units, which is refused while the key is banned. `None` if
    /// Redis does not answer.
    pub decision: Option<Decision>,
    /// The end of the key's ban.
    pub banned_until: Option<Timestamp>,
}

/// The states at `now` of the buckets that these charges of no units name. Redis is called once, in
/// a cluster once for each slot, within its deadline.
pub async fn peek(
    store: &Store,
    worker: usize,
    charges: &[PolicyCharge<'_>],
    source: &dyn ChargeSource,
    now: Timestamp,
) -> Vec<BucketState> {
    let mut decisions = charges
        .iter()
        .map(|charge| Some(charge.buckets.peek(charge.key, 0, charge.window_end, now)))
        .collect::<Vec<_>>();
    if let Store::Redis(store) = store {
        peek_redis(store, worker, charges, source, now, &mut decisions).await;
    }
    let states = charges.iter().zip(decisions);
    states
        .map(|(charge, decision)| BucketState::new(charge, decision, now))
        .collect()
}

/// Replaces the decisions on buckets in Redis.
async fn peek_redis(
    store: &redis::Store,
    worker: usize,
    charges: &[PolicyCharge<'_>],
    source: &dyn ChargeSource,
    now: Timestamp,
    decisions: &mut [Option<Decision>],
) {
    let entry = |(place, charge)| Some((place, RedisEntry::new(store, charge, source, now)?));
    let entries: Vec<_> = charges.iter().enumerate().filter_map(entry).collect();
    let buckets = entries.iter().map(|(place, entry)| BucketCharge {
        algorithm: charges[*place].buckets.algorithm(),
        name: &entry.name.bytes,
        key: entry.name.key,
        cost: 0,
        charged_refusals: ChargedRefusals::None,
        settles: false,
        period: entry.period,
        tier: Tier::First,
    });
    let buckets: Vec<_> = buckets.collect();
    let replies = store.peek(worker, &buckets, now).await;
    for ((place, _), reply) in entries.iter().zip(replies) {
        let buckets = charges[*place].buckets;
        if let (Err(error), Some(binding)) = (&reply, buckets.redis()) {
            binding.log_undecided(&buckets.table, error, now);
        }
        decisions[*place] = reply.ok();
    }
}

impl BucketState {
    fn new(charge: &PolicyCharge<'_>, decision: Option<Decision>, now: Timestamp) -> Self {
        let penalties = charge.penalties;
        let banned_until = penalties.and_then(|(penalties, key)| penalties.banned_until(key, now));
        let Some(until) = banned_until else {
            return BucketState {
                decision,
                banned_until,
            };
        };
        let mut verdict = Verdict::of(decision, 1);
        if decision.is_some() {
            verdict.ban(0, until);
        }
        BucketState {
            decision: verdict.decisions.first().copied(),
            banned_until,
        }
    }
}
