//! One charge of a request that waits for Redis, and what the reply makes of it.

use std::sync::Arc;

use crate::clock::Timestamp;
use crate::limiter::{Decision, Fingerprint};
use crate::store::charge_list::ListedCharge;
use crate::store::memory::Refusals;
use crate::store::redis::{
    self, BucketReply, ChargeError, ChargedBucket, ChargedRefusals, LeaseGuard, Store, Tier,
};
use crate::store::{
    ChargeResult, ChargeSource, InUse, OnStoreError, PolicyCharge, QueuePlace, Reservation,
    WithoutStore,
};

/// A charge, kept until Redis answers.
#[derive(Debug)]
pub(in crate::store) struct PendingEntry {
    pub(in crate::store) charge: PolicyCharge,
    /// The decision of memory or of Redis; `None` if neither decides, and the policy admits.
    pub(super) decision: Option<Decision>,
    pub(super) redis: Option<Box<RedisEntry>>,
}

/// The part of a charge that only Redis needs.
#[derive(Debug)]
pub(in crate::store) struct RedisEntry {
    /// The names of its bucket, and of its overflow buckets.
    names: Vec<Vec<u8>>,
    /// The fingerprint of the key, equal on all machines that share the buckets.
    key: Fingerprint,
    /// The calendar period of the window that this charge may open.
    period: Option<(Timestamp, Timestamp)>,
    /// The reply of Redis.
    pub(super) reply: Option<BucketReply>,
    /// The lease for the units in use.
    pub(super) lease: Option<LeaseGuard>,
}

impl PendingEntry {
    /// A charge to a bucket in memory, with its decision.
    pub(in crate::store) fn in_memory(charge: PolicyCharge, decision: Decision) -> Self {
        Self {
            charge,
            decision: Some(decision),
            redis: None,
        }
    }

    /// A charge in Redis; `None` if its buckets are in memory.
    pub(in crate::store) fn in_redis(
        store: &Store,
        listed: ListedCharge<'_>,
        source: &dyn ChargeSource,
        now: Timestamp,
    ) -> Option<Self> {
        let charge = listed.charge;
        listed.buckets.redis.as_ref()?;
        let mut builder = store.naming().name_builder();
        if !source.write_key(charge.id.limit, &mut builder) {
            return None;
        }
        let name = |tier: ListedCharge<'_>| {
            let binding = tier.buckets.redis.as_ref()?;
            Some(builder.name(&binding.label))
        };
        let redis = RedisEntry {
            names: listed.tiers().filter_map(name).collect(),
            key: builder.key(),
            period: source.period(charge.id, store.server_time_at(now)),
            reply: None,
            lease: None,
        };
        Some(Self {
            charge,
            decision: None,
            redis: Some(Box::new(redis)),
        })
    }

    /// The cached refusal of one of its buckets in Redis.
    pub(in crate::store) fn cached_refusal<'a>(
        &self,
        listed: ListedCharge<'a>,
        now: Timestamp,
    ) -> Option<(ListedCharge<'a>, Decision)> {
        let key = self.redis.as_ref()?.key;
        listed.tiers().find_map(|tier| {
            let refusals = &tier.buckets.redis.as_ref()?.refusals;
            let decision = refusals.get(key, tier.charge.terms(), now)?;
            Some((tier, tier.with_own_capacity(decision)))
        })
    }

    /// The bucket in Redis of this overflow tier, if it is there.
    pub(super) fn bucket(
        &self,
        listed: ListedCharge<'_>,
        tier: usize,
        (store, worker): (&Arc<Store>, usize),
    ) -> Option<ChargedBucket> {
        let redis = self.redis.as_ref()?;
        Some(ChargedBucket {
            store: Arc::clone(store),
            worker,
            table: Arc::clone(&listed.buckets.table),
            name: redis.names.get(tier)?.as_slice().into(),
            key: redis.key,
            cost: self.charge.demand.cost,
            period: redis.period,
        })
    }

    /// Adds the charge in Redis: its bucket, then its overflow buckets.
    pub(in crate::store) fn push_charges<'a>(
        &'a self,
        buckets: &mut Vec<redis::BucketCharge<'a>>,
        listed: ListedCharge<'a>,
    ) {
        let Some(redis) = &self.redis else { return };
        for (tier, name) in listed.tiers().zip(&redis.names) {
            buckets.push(redis::BucketCharge {
                algorithm: tier.buckets.algorithm(),
                name,
                key: redis.key,
                demand: tier.charge.demand_there(),
                charged_refusals: match tier.buckets.table.refusals {
                    Refusals::Free => ChargedRefusals::None,
                    Refusals::Charged if self.charge.role.is_tag() => ChargedRefusals::Own,
                    Refusals::Charged => ChargedRefusals::All,
                },
                settles: self.charge.settles,
                period: redis.period,
                tier: if tier.charge.id == self.charge.id {
                    Tier::First
                } else {
                    Tier::Overflow
                },
            });
        }
    }

    /// Takes the decision of Redis, and moves to the bucket that has decided.
    pub(super) fn apply_reply(
        &mut self,
        listed: ListedCharge<'_>,
        mut reply: BucketReply,
        is_remembered: bool,
        decided_by: Timestamp,
        now: Timestamp,
    ) {
        let listed = listed.tiers().nth(reply.tier).unwrap_or(listed);
        self.charge = listed.charge;
        if reply.is_doubted {
            reply.decision.doubt(decided_by);
        } else if is_remembered {
            let decision = reply.spared.unwrap_or(reply.decision);
            self.remember(listed, &decision, now);
        }
        self.decision = Some(reply.decision);
        if let Some(redis) = &mut self.redis {
            redis.reply = Some(reply);
        }
    }

    /// The decision of Redis on the request without this charge, if it was only looked at.
    pub(super) fn spared(&self) -> Option<Decision> {
        self.redis.as_ref()?.reply.as_ref()?.spared
    }

    /// Notes that the store does not answer.
    pub(super) fn note_error(
        &self,
        on_error: OnStoreError,
        error: &ChargeError,
        result: &mut ChargeResult,
    ) {
        result.held_mut().without_store.push(WithoutStore {
            limit: self.charge.id.limit,
            on_error,
            error: error.clone(),
        });
    }

    /// Remembers a refusal of Redis that is certain and lasts, unless Redis has to charge each refusal,
    /// or any decision on a banned key, which is charged nothing.
    fn remember(&self, listed: ListedCharge<'_>, decision: &Decision, now: Timestamp) {
        let (table, terms) = (&listed.buckets.table, listed.charge.terms());
        // Units that are given back arrive earlier than the refusal said.
        let is_given_back = table.algorithm().is_concurrency() || table.settles;
        let is_lasting = table.refusals == Refusals::Free && !is_given_back;
        if (is_lasting || terms.banned_until.is_some())
            && let (Some(binding), Some(redis)) = (&listed.buckets.redis, &self.redis)
        {
            binding.refusals.note(redis.key, terms, decision, now);
        }
    }

    /// The treatment of a request that Redis did not decide, which is logged; `None` for a bucket in
    /// memory.
    pub(in crate::store) fn on_error(
        &self,
        listed: ListedCharge<'_>,
        error: &ChargeError,
        now: Timestamp,
    ) -> Option<OnStoreError> {
        let binding = self.redis.as_ref().and(listed.buckets.redis.as_ref())?;
        // Faults of the whole server are logged elsewhere.
        if !error.is_server_fault()
            && let Some(omitted) = binding.undecided_log.admit(now)
        {
            let policy = listed.buckets.table.policy();
            tracing::warn!(policy, %error, omitted, "no decision from the store");
        }
        Some(binding.on_error)
    }

    /// True if Redis, or memory in its place, refuses this charge.
    pub(super) fn is_refused_by_redis(&self) -> bool {
        let decision = self.redis.as_ref().and(self.decision);
        decision.is_some_and(|decision| !decision.is_admitted())
    }

    /// True if Redis refuses this charge and that is certain.
    pub(super) fn is_certain_refusal(&self) -> bool {
        let reply = self.redis.as_ref().and_then(|redis| redis.reply.as_ref());
        self.is_refused_by_redis() && reply.is_none_or(|reply| !reply.is_doubted)
    }

    /// Keeps what an admitted request holds in Redis until it ends. Only an enforced limit delays it.
    pub(super) fn hold(
        &mut self,
        listed: ListedCharge<'_>,
        to: (&Arc<Store>, usize),
        result: &mut ChargeResult,
    ) {
        let PolicyCharge { id, settles, .. } = self.charge;
        let is_made = self.charge.demand.needed() > 0;
        if let Some(in_use) = self.in_use(listed) {
            result.held_mut().in_use.push(in_use);
        }
        let reply = self.redis.as_ref().and_then(|redis| redis.reply);
        let charged = reply.filter(|reply| reply.decision.is_admitted() && is_made);
        let Some(reply) = charged else { return };
        let bucket = || self.bucket(listed, reply.tier, to);
        if settles && let Some(bucket) = bucket() {
            let reservation = Reservation::Redis(bucket.reservation(&reply));
            result.held_mut().reservations.push((id.limit, reservation));
        }
        if listed.can_refuse()
            && reply.decision.delayed_until().is_some()
            && let Some(leave) = bucket().and_then(|bucket| bucket.queue_place(&reply))
        {
            let place = QueuePlace::new(move |_| leave());
            result.held_mut().queue_places.push((id.limit, place));
        }
    }

    /// The leased units of an admitted request. If Redis has not answered, it is still told of
    /// them.
    fn in_use(&mut self, listed: ListedCharge<'_>) -> Option<InUse> {
        let is_refused = self.is_refused_by_redis();
        let redis = self.redis.as_mut()?;
        // If memory decided, it counts the units.
        let is_counted = redis.reply.is_none() && self.decision.is_some();
        let mut lease = redis.lease.take_if(|_| !is_refused)?;
        if redis.reply.is_some() {
            lease.confirm();
        }
        lease.renew();
        let in_use = listed.buckets.in_use.as_ref().filter(|_| !is_counted);
        Some(InUse::of_lease(lease, in_use, self.charge.demand.cost))
    }

    /// Ends the lease of a refused request: a refused lease holds nothing; any other may hold units,
    /// and is given back.
    pub(super) fn end_lease(&mut self) {
        if let Some(redis) = &mut self.redis
            && let Some(lease) = redis.lease.take().filter(|_| redis.reply.is_some())
        {
            lease.forget();
        }
    }
}
