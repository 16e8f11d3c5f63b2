//! The part of a charge that only Redis needs.

use super::charge_list::ChargeEntry;
use super::redis::{BucketName, BucketReply, KeyKnowledge, LeaseGuard, Store};
use super::{ChargeSource, PolicyCharge};
use crate::clock::Timestamp;
use crate::limiter::Decision;

/// One policy's charge in Redis.
#[derive(Debug)]
pub(super) struct RedisEntry {
    /// The number of the limit.
    pub(super) limit: u16,
    pub(super) name: BucketName,
    /// The names of the overflow buckets.
    further: Vec<Vec<u8>>,
    /// The machine's knowledge of the key.
    pub(super) known: KeyKnowledge,
    /// The calendar period of the window that this charge may open.
    pub(super) period: Option<(Timestamp, Timestamp)>,
    /// The reply of Redis.
    pub(super) reply: Option<BucketReply>,
    /// The decision of Redis, or of memory in its place; `None` if neither decides and the policy
    /// admits.
    pub(super) decision: Option<Decision>,
    /// The lease for the units in use.
    pub(super) lease: Option<LeaseGuard>,
}

impl RedisEntry {
    /// The part of this charge; `None` if its buckets are in memory.
    pub(super) fn new(
        store: &Store,
        charge: &PolicyCharge<'_>,
        source: &dyn ChargeSource,
        now: Timestamp,
    ) -> Option<Self> {
        let binding = charge.buckets.redis()?;
        let mut builder = store.naming().name_builder();
        if !source.write_key(charge.id, &mut builder) {
            return None;
        }
        let name = builder.name(&binding.label);
        let tiers = ChargeEntry::from(charge).tiers().skip(1);
        let further = tiers.filter_map(|tier| tier.buckets.redis());
        Some(Self {
            limit: charge.id.limit,
            further: further
                .map(|binding| builder.name(&binding.label).bytes)
                .collect(),
            name,
            known: KeyKnowledge {
                steered_at: charge.steered.and_then(|steered| steered.at),
                banned_until: None,
            },
            period: source.period(charge.id, store.server_time_at(now)),
            reply: None,
            decision: None,
            lease: None,
        })
    }

    /// The names of its bucket and of its overflow buckets.
    pub(super) fn names(&self) -> impl Iterator<Item = &[u8]> {
        let further = self.further.iter().map(Vec::as_slice);
        std::iter::once(self.name.bytes.as_slice()).chain(further)
    }

    /// The cached refusal of one of its buckets.
    pub(super) fn cached_refusal<'a>(
        &self,
        entry: ChargeEntry<'a>,
        cost: u32,
        now: Timestamp,
    ) -> Option<(ChargeEntry<'a>, Decision)> {
        entry.tiers().find_map(|tier| {
            let refusals = &tier.buckets.redis()?.refusals;
            let refusal = refusals.get(self.name.key, cost, self.known, now)?;
            Some((tier, refusal))
        })
    }

    /// Ends the lease of a refused request: a refused lease holds nothing; any other may hold units,
    /// and is given back.
    pub(super) fn end_lease(&mut self) {
        if let Some(lease) = self.lease.take().filter(|_| self.reply.is_some()) {
            lease.forget();
        }
    }
}
