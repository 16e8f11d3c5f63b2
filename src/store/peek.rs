//! Looks at buckets, wherever they live, and charges nothing.

use super::charge_list::ChargeEntry;
use super::redis::{self, BucketCharge, ChargedRefusals, Tier};
use super::redis_entry::RedisEntry;
use super::{ChargeSource, Payer, PolicyCharge, Store};
use crate::clock::Timestamp;
use crate::limiter::{Decision, Outcome};

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
    worker: usize,
    charges: &[PolicyCharge<'_>],
    source: &dyn ChargeSource,
    now: Timestamp,
) -> Vec<BucketState> {
    let charges: Vec<_> = charges
        .iter()
        .map(|charge| charge.after_ban(charge.banned_until(now)))
        .collect();
    let mut decisions = charges
        .iter()
        .map(|charge| {
            let in_memory = charge.in_memory();
            let decision = in_memory.peek(now);
            Some(ChargeEntry::from(charge).with_granted(&in_memory, decision, now))
        })
        .collect::<Vec<_>>();
    if let Store::Redis(store) = store {
        peek_redis(store, worker, &charges, source, now, &mut decisions).await;
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
    // The first bucket of each, and its granted units.
    let buckets = entries.iter().flat_map(|(place, entry)| {
        let tiers = ChargeEntry::from(&charges[*place]).tiers();
        let tiers = tiers.zip(entry.names()).enumerate();
        let tiers =
            tiers.filter(|(number, (tier, _))| *number == 0 || tier.id.payer == Payer::Grant);
        tiers.map(|(number, (tier, name))| BucketCharge {
            algorithm: tier.buckets.table.algorithm(),
            name,
            key: entry.name.key,
            cost: 0,
            charged_refusals: ChargedRefusals::None,
            settles: false,
            period: entry.period,
            tier: match number {
                0 => Tier::First,
                _ => Tier::Overflow,
            },
        })
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
        let banned_until = charge.banned_until(now);
        let mut state = BucketState {
            decision,
            banned_until,
        };
        if let (Some(decision), Some(until)) = (&mut state.decision, banned_until) {
            // The next unit may be there only after the ban.
            if decision.remaining == 0 {
                let retry_at = charge.buckets.algorithm().more_at(decision, now);
                decision.outcome = Outcome::Refuse { retry_at };
            }
            decision.ban(until);
        }
        state
    }
}
