//! Charges in Redis. Memory is charged first, then Redis decides; if Redis refuses, the charges in
//! memory are given back.

mod finish;
mod start;

use std::sync::Arc;

use smallvec::SmallVec;

use super::acquired_permits::AcquiredPermits;
use super::applicability::Applicability;
use super::in_flight::InFlightGuard;
use super::{MatchedLimit, RemoteBucket};
use crate::clock::Timestamp;
use crate::limiter::{Decision, Fingerprint, Secret, WindowEnd};
use crate::proxy::ruleset::{Limit, Policy, Route};
use crate::rules::Head;
use crate::store::redis::{
    self, BucketReplies, ChargeError, ChargedBucket, ChargedRefusals, Store, Tier,
};
use crate::store::{Charge, Refusals, Reservation};
use crate::telemetry::metrics::LimitDecision;

/// A charge, kept until Redis answers.
#[derive(Debug)]
pub(crate) struct PendingCharge {
    pub matched: MatchedLimit,
    pub key: Fingerprint,
    pub cost: u32,
    pub window_end: Option<WindowEnd>,
    pub home: BucketHome,
}

#[derive(Debug)]
pub(crate) enum BucketHome {
    /// A bucket in memory, with its decision.
    Memory(Decision),
    Redis(Box<RemoteBucket>),
}

/// A request that waits for Redis. If it is dropped, the charges in memory stay.
#[derive(Debug)]
pub(crate) struct PendingRedisCharge {
    /// All charges; enforced limits come first.
    pub entries: SmallVec<[PendingCharge; 4]>,
    pub binding: usize,
    /// The charges of limits that tag.
    pub tags: Vec<PendingCharge>,
    /// True if memory refuses the request. Redis then only charges refusals.
    pub is_refused: bool,
    /// Reservations in memory, by the indices of the entries.
    pub reserved: Vec<(usize, Reservation)>,
    pub taken: Vec<InFlightGuard>,
    pub acquired: AcquiredPermits,
    pub noted: SmallVec<[(u16, LimitDecision); 1]>,
    /// The store and the worker that are asked.
    pub through: Option<Through>,
    pub answer: Option<Result<BucketReplies, ChargeError>>,
}

/// A store, and the worker that asks it.
type Through = (Arc<Store>, usize);

/// Builds the entries of limits that tag. The same Redis call has them as shadowed limits.
pub(super) fn pending_tag_charges(
    route: &Route,
    secret: &Secret,
    head: &Head<'_>,
    store: &Store,
    now: Timestamp,
) -> Vec<PendingCharge> {
    let entry = |(place, limit): (u16, &Limit)| {
        let Applicability::Bucket(key, chosen) = limit.evaluate(secret, head) else {
            return None;
        };
        let policy = limit.chosen(chosen);
        Some(PendingCharge {
            matched: MatchedLimit::new((place, limit), chosen, head, key),
            key,
            cost: limit.spec.cost.of(head).ok()?,
            window_end: policy.window_end(head, now),
            home: BucketHome::Redis(
                RemoteBucket::of((place, limit), policy, store, head, now)?.into(),
            ),
        })
    };
    (0..).zip(route.tags_for(head)).filter_map(entry).collect()
}

/// The decision of a bucket in memory that another bucket's refusal spares.
pub(crate) fn peek_spared(charge: &Charge<'_>, now: Timestamp) -> Decision {
    let decision = charge.peek(now);
    match decision.is_admitted() {
        true => Charge { cost: 0, ..*charge }.peek(now),
        false => decision,
    }
}

impl PendingRedisCharge {
    /// Calls Redis, and keeps the answer.
    pub(crate) async fn call(
        mut self: Box<Self>,
        store: &Arc<Store>,
        route: &Route,
        worker: usize,
        now: Timestamp,
    ) -> Box<Self> {
        let lease = self.take_leases(store, route, worker);
        let (buckets, binding) = self.buckets(route);
        let lease = lease.as_deref().unwrap_or_default();
        let answer = store.charge(worker, &buckets, binding, lease, now).await;
        drop(buckets);
        self.through = Some((Arc::clone(store), worker));
        self.answer = Some(answer);
        self
    }

    /// Takes leases for the units in use. If the request ends now, they are given back.
    fn take_leases(
        &mut self,
        store: &Arc<Store>,
        route: &Route,
        worker: usize,
    ) -> Option<Arc<str>> {
        let mut lease = None;
        let entries = self.entries.iter_mut().map(|entry| (entry, &route.limits));
        let tags = self.tags.iter_mut().map(|tag| (tag, &route.tags));
        for (entry, limits) in entries.chain(tags) {
            if entry.policy(limits).table.algorithm().is_concurrency() && entry.cost > 0 {
                let id = lease.get_or_insert_with(|| store.new_lease());
                let lending = entry.place(limits, store, worker).map(|it| it.lease(id));
                if let BucketHome::Redis(remote) = &mut entry.home {
                    remote.lending = lending;
                }
            }
        }
        lease
    }

    /// The charges for Redis, enforced ones first, and the number of enforced ones.
    fn buckets<'a>(&'a self, route: &'a Route) -> (Vec<redis::BucketCharge<'a>>, usize) {
        let mut buckets = Vec::new();
        let mut binding = 0;
        for (index, entry, remote) in self.remote() {
            // Charges of a refused request are independent of each other.
            binding += usize::from(index < self.binding && !self.is_refused);
            let limit = entry.matched.limit(&route.limits);
            let settles = limit.spec.settlement.is_some() && !self.is_refused;
            entry.push_charges(&mut buckets, limit, remote, settles, ChargedRefusals::All);
        }
        for tag in &self.tags {
            if let BucketHome::Redis(remote) = &tag.home {
                let limit = tag.matched.limit(&route.tags);
                let settles = limit.spec.settlement.is_some();
                tag.push_charges(&mut buckets, limit, remote, settles, ChargedRefusals::Own);
            }
        }
        (buckets, binding)
    }

    /// The entries in Redis, with their indices.
    fn remote(&self) -> impl Iterator<Item = (usize, &PendingCharge, &RemoteBucket)> {
        let entries = self.entries.iter().enumerate();
        entries.filter_map(|(index, entry)| match &entry.home {
            BucketHome::Redis(remote) => Some((index, entry, &**remote)),
            BucketHome::Memory(_) => None,
        })
    }
}

impl PendingCharge {
    fn policy<'r>(&self, limits: &'r [Limit]) -> &'r Policy {
        self.matched.policy(limits)
    }

    /// The charge in memory.
    fn charge<'r>(&self, limits: &'r [Limit]) -> Charge<'r> {
        Charge {
            table: &self.policy(limits).table,
            key: self.key,
            cost: self.cost,
            window_end: self.window_end,
        }
    }

    /// The bucket in Redis, if it is there.
    fn place(&self, limits: &[Limit], store: &Arc<Store>, worker: usize) -> Option<ChargedBucket> {
        let BucketHome::Redis(remote) = &self.home else {
            return None;
        };
        Some(ChargedBucket {
            store: Arc::clone(store),
            worker,
            table: Arc::clone(&self.policy(limits).table),
            name: remote.name.bytes.clone().into(),
            key: remote.name.key,
            cost: self.cost,
            period: remote.period,
        })
    }

    /// Adds the charge in Redis: its bucket, then its overflow buckets. Refusals are charged if the
    /// policy says so.
    fn push_charges<'a>(
        &self,
        buckets: &mut Vec<redis::BucketCharge<'a>>,
        limit: &'a Limit,
        remote: &'a RemoteBucket,
        settles: bool,
        refusals: ChargedRefusals,
    ) {
        let mut next = Some(self.matched.chosen);
        for name in remote.names() {
            let Some(chosen) = next else { break };
            next = limit.after(chosen);
            let table = &limit.chosen(chosen).table;
            buckets.push(redis::BucketCharge {
                algorithm: table.algorithm(),
                name,
                key: remote.name.key,
                cost: self.cost,
                charged_refusals: match table.refusals() {
                    Refusals::Free => ChargedRefusals::None,
                    Refusals::Charged => refusals,
                },
                settles,
                period: remote.period,
                tier: match chosen == self.matched.chosen {
                    true => Tier::First,
                    false => Tier::Overflow,
                },
            });
        }
    }
}
