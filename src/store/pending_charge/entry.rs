//! One charge of a request that waits for Redis, and what the reply makes of it.

use std::sync::Arc;

use super::TagReply;
use crate::clock::Timestamp;
use crate::limiter::{Decision, Fingerprint, WindowEnd};
use crate::store::charge_list::{ChargeEntry, Granted};
use crate::store::memory::{Charge, Refusals};
use crate::store::redis::{
    self, BucketReply, ChargeError, ChargedBucket, ChargedRefusals, Store, Tier,
};
use crate::store::redis_entry::RedisEntry;
use crate::store::{Buckets, ChargeId, InUse, OnStoreError, Penalties, QueuePlace, Reservation};

/// A charge, kept until Redis answers.
#[derive(Debug)]
pub(in crate::store) struct PendingEntry {
    pub(super) id: ChargeId,
    /// The deciding bucket.
    pub(super) buckets: Arc<Buckets>,
    key: Fingerprint,
    pub(super) cost: u32,
    window_end: Option<WindowEnd>,
    pub(super) settles: bool,
    penalties: Option<(Arc<Penalties>, Fingerprint)>,
    /// The buckets of granted units, and the quota that they come after.
    granted: Option<[Arc<Buckets>; 2]>,
    /// The place of the deciding bucket among the tiers.
    tier: usize,
    pub(super) home: EntryHome,
}

/// The place of a pending charge.
#[derive(Debug)]
pub(in crate::store) enum EntryHome {
    /// A bucket in memory, with its decision.
    Memory(Decision),
    Redis(Box<RedisEntry>),
}

impl From<RedisEntry> for EntryHome {
    fn from(redis: RedisEntry) -> Self {
        Self::Redis(Box::new(redis))
    }
}

impl PendingEntry {
    pub(in crate::store) fn new(
        entry: ChargeEntry<'_>,
        charge: &Charge<'_>,
        home: EntryHome,
    ) -> Self {
        let penalties = entry.penalties;
        Self {
            id: entry.id,
            buckets: Arc::clone(entry.buckets),
            key: charge.key,
            cost: charge.cost,
            window_end: charge.window_end,
            settles: entry.settles,
            penalties: penalties.map(|(penalties, key)| (Arc::clone(penalties), key)),
            granted: entry
                .granted
                .map(|granted| [granted.buckets, granted.quota].map(Arc::clone)),
            tier: 0,
            home,
        }
    }

    pub(super) fn entry(&self) -> ChargeEntry<'_> {
        ChargeEntry {
            id: self.id,
            buckets: &self.buckets,
            settles: self.settles,
            penalties: self
                .penalties
                .as_ref()
                .map(|(penalties, key)| (penalties, *key)),
            granted: self
                .granted
                .as_ref()
                .map(|[buckets, quota]| Granted { buckets, quota }),
        }
    }

    /// The charge in memory.
    pub(super) fn charge(&self) -> Charge<'_> {
        Charge {
            table: &self.buckets.table,
            key: self.key,
            cost: self.cost,
            window_end: self.window_end,
        }
    }

    pub(super) fn redis(&self) -> Option<&RedisEntry> {
        match &self.home {
            EntryHome::Redis(redis) => Some(redis),
            EntryHome::Memory(_) => None,
        }
    }

    fn redis_mut(&mut self) -> Option<&mut RedisEntry> {
        match &mut self.home {
            EntryHome::Redis(redis) => Some(redis),
            EntryHome::Memory(_) => None,
        }
    }

    /// The bucket in Redis, if it is there.
    pub(super) fn place(&self, store: &Arc<Store>, worker: usize) -> Option<ChargedBucket> {
        let redis = self.redis()?;
        Some(ChargedBucket {
            store: Arc::clone(store),
            worker,
            table: Arc::clone(&self.buckets.table),
            name: redis.names().nth(self.tier)?.into(),
            key: redis.name.key,
            cost: self.cost,
            period: redis.period,
        })
    }

    /// Adds the charge in Redis: its bucket, then its overflow buckets. Refusals are charged if the
    /// policy says so.
    pub(super) fn push_charges<'a>(
        &'a self,
        buckets: &mut Vec<redis::BucketCharge<'a>>,
        redis: &'a RedisEntry,
        settles: bool,
        refusals: ChargedRefusals,
    ) {
        for (tier, name) in self.entry().tiers().zip(redis.names()) {
            let table = &tier.buckets.table;
            buckets.push(redis::BucketCharge {
                algorithm: table.algorithm(),
                name,
                key: redis.name.key,
                cost: self.cost,
                charged_refusals: match table.refusals() {
                    Refusals::Free => ChargedRefusals::None,
                    Refusals::Charged => refusals,
                },
                settles,
                period: redis.period,
                tier: match tier.id == self.id {
                    true => Tier::First,
                    false => Tier::Overflow,
                },
            });
        }
    }

    /// Moves on to the overflow bucket that replied.
    pub(super) fn move_on(&mut self, tier: usize) {
        let next = self.entry().tiers().nth(tier);
        if let Some((id, buckets)) = next.map(|next| (next.id, Arc::clone(next.buckets))) {
            (self.id, self.buckets, self.tier) = (id, buckets, tier);
        }
    }

    /// Remembers a decision of Redis that is not in doubt, if it is a refusal or the key is banned.
    pub(super) fn remember(&self, decision: &Decision, now: Timestamp) {
        if let (Some(binding), Some(redis)) = (self.buckets.redis(), self.redis()) {
            let charged = (redis.name.key, self.cost);
            binding.remember(&self.buckets.table, charged, decision, redis.known, now);
        }
    }

    /// The treatment of a request that Redis did not decide; `None` for a bucket in memory.
    pub(super) fn on_error(&self, error: &ChargeError, now: Timestamp) -> Option<OnStoreError> {
        let binding = self.redis().and(self.buckets.redis())?;
        Some(binding.on_error(&self.buckets.table, error, now))
    }

    pub(super) fn is_refused_by_redis(&self) -> bool {
        let decision = self.redis().and_then(|redis| redis.decision);
        decision.is_some_and(|decision| !decision.is_admitted())
    }

    /// True if Redis refuses this charge and that is certain.
    pub(super) fn is_certain_refusal(&self) -> bool {
        let reply = self.redis().and_then(|redis| redis.reply.as_ref());
        self.is_refused_by_redis() && reply.is_none_or(|reply| !reply.is_doubted)
    }

    /// The final decision. A charge in memory that was given back, since it is not `is_kept`, tells
    /// what is left without it; if that is in doubt, until `decided_by`.
    pub(super) fn decision(
        &self,
        is_kept: bool,
        decided_by: Timestamp,
        now: Timestamp,
    ) -> Option<Decision> {
        match &self.home {
            EntryHome::Redis(redis) => redis.decision,
            EntryHome::Memory(decision) => {
                let charge = self.charge();
                let stays = is_kept || !decision.is_admitted() || charge.is_charged_if_refused();
                Some(match stays {
                    true => *decision,
                    false => self.entry().peek_spared(&charge, decided_by, now),
                })
            }
        }
    }

    pub(super) fn end_lease(&mut self) {
        if let Some(redis) = self.redis_mut() {
            redis.end_lease();
        }
    }

    /// The reply of a bucket that Redis charged.
    fn charged(&self) -> Option<&BucketReply> {
        let reply = self.redis()?.reply.as_ref()?;
        (reply.decision.is_admitted() && self.cost > 0).then_some(reply)
    }

    /// The leased units of an admitted request. If Redis has not answered, it is still told of
    /// them.
    pub(super) fn in_use(&mut self) -> Option<InUse> {
        let is_refused = self.is_refused_by_redis();
        let cost = self.cost;
        let redis = self.redis_mut()?;
        // If memory decided, it counts the units.
        let is_counted = redis.reply.is_none() && redis.decision.is_some();
        let mut lease = redis.lease.take_if(|_| !is_refused)?;
        lease.renew();
        let in_use = self.buckets.in_use.as_ref().filter(|_| !is_counted);
        Some(InUse::of_lease(lease, in_use, cost))
    }

    /// The reservation in Redis that the response settles.
    pub(super) fn reservation(&self, store: &Arc<Store>, worker: usize) -> Option<Reservation> {
        let reply = self.charged().filter(|_| self.settles)?;
        let place = self.place(store, worker)?;
        Some(Reservation::Redis(place.reservation(reply)))
    }

    /// The place in a queue in Redis.
    pub(super) fn queue_place(&self, store: &Arc<Store>, worker: usize) -> Option<QueuePlace> {
        let reply = self.charged()?;
        reply.decision.delayed_until()?;
        let place = self.place(store, worker)?.queue_place(reply)?;
        Some(QueuePlace::Redis(place))
    }

    /// The decision on a charge that tags an admitted request.
    pub(super) fn tag_reply(
        mut self,
        store: &Arc<Store>,
        worker: usize,
        error: Option<&ChargeError>,
        now: Timestamp,
    ) -> TagReply {
        let decision = match error.and_then(|error| self.on_error(error, now)) {
            Some(on_error) => Err(on_error),
            None => self.decision(true, now, now).ok_or(OnStoreError::Admit),
        };
        let in_use = match decision {
            Ok(_) => self.in_use(),
            // The lease may exist, and is given back.
            Err(_) => None,
        };
        self.end_lease();
        TagReply {
            limit: self.id.limit,
            decision,
            in_use,
            reservation: self.reservation(store, worker),
        }
    }
}
