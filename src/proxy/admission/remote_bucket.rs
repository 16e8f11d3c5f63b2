//! The part of a charge that only Redis needs.

use crate::clock::Timestamp;
use crate::limiter::Decision;
use crate::proxy::ruleset::{Limit, Policy};
use crate::rules::Head;
use crate::store::redis::{BucketName, BucketReply, LeaseGuard, Store};

/// One limit's charge in Redis.
#[derive(Debug)]
pub(in crate::proxy) struct RemoteBucket {
    /// The limit's place in the route.
    pub place: u16,
    pub name: BucketName,
    /// The names of the overflow buckets.
    further: Vec<Vec<u8>>,
    /// The calendar period of the window that this charge may open.
    pub period: Option<(Timestamp, Timestamp)>,
    /// The reply of Redis.
    pub said: Option<BucketReply>,
    /// The decision of Redis, or of memory in its place; `None` if neither decides and the limit
    /// admits.
    pub decision: Option<Decision>,
    /// The lease for the units in use.
    pub lending: Option<LeaseGuard>,
}

impl RemoteBucket {
    /// The charge of this limit in Redis; `None` if its buckets are in memory.
    pub(in crate::proxy) fn of(
        (place, limit): (u16, &Limit),
        policy: &Policy,
        store: &Store,
        head: &Head<'_>,
        now: Timestamp,
    ) -> Option<Self> {
        let shared = policy.shared.as_ref()?;
        let mut builder = store.naming().name_builder();
        limit.spec.descriptor.feed(head, &mut builder).ok()?;
        let name = builder.name(&shared.label);
        let tiers = std::iter::successors(policy.overflow.as_ref(), |tier| {
            tier.policy.overflow.as_ref()
        });
        let further = tiers.filter_map(|tier| tier.policy.shared.as_ref());
        Some(Self {
            place,
            further: further
                .map(|shared| builder.name(&shared.label).bytes)
                .collect(),
            name,
            period: policy.period(head, store.server_time_at(now)),
            said: None,
            decision: None,
            lending: None,
        })
    }

    /// The names of its bucket and of its overflow buckets.
    pub(in crate::proxy) fn names(&self) -> impl Iterator<Item = &[u8]> {
        let further = self.further.iter().map(Vec::as_slice);
        std::iter::once(self.name.bytes.as_slice()).chain(further)
    }
}
