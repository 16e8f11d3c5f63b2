//! What of an inquiry is asked of Redis.

use crate::clock::Timestamp;
use crate::limiter::Decision;
use crate::proxy::ruleset::{Limit, Policy};
use crate::rules::Head;
use crate::store::redis::{BucketName, BucketReply, LeaseGuard, Store};

/// What is asked of Redis for one limit.
#[derive(Debug)]
pub(in crate::proxy) struct Remote {
    /// The place of the limit among those of the route.
    pub place: u16,
    pub name: BucketName,
    /// The names of the buckets that it may overflow into.
    further: Vec<Vec<u8>>,
    /// The period that a window is which this opens, where the request says that.
    pub period: Option<(Timestamp, Timestamp)>,
    /// What Redis said.
    pub said: Option<BucketReply>,
    /// What it said, or memory in its place; `None` where nobody says anything, and the limit admits.
    pub decision: Option<Decision>,
    /// The units in use that are asked for.
    pub lending: Option<LeaseGuard>,
}

impl Remote {
    /// What this limit asks of the store for a request that it meets; `None` where its buckets are in memory.
    pub(in crate::proxy) fn of(
        (place, limit): (u16, &Limit),
        policy: &Policy,
        store: &Store,
        head: &Head<'_>,
        now: Timestamp,
    ) -> Option<Self> {
        let shared = policy.shared.as_ref()?;
        let mut namer = store.naming().namer();
        limit.spec.descriptor.feed(head, &mut namer).ok()?;
        let name = namer.name(&shared.label);
        let tiers = std::iter::successors(policy.overflow.as_ref(), |tier| {
            tier.policy.overflow.as_ref()
        });
        let further = tiers.filter_map(|tier| tier.policy.shared.as_ref());
        Some(Self {
            place,
            further: further
                .map(|shared| namer.name(&shared.label).bytes)
                .collect(),
            name,
            period: policy.period(head, store.time_at(now)),
            said: None,
            decision: None,
            lending: None,
        })
    }

    /// The names of its bucket, and of those that it may overflow into.
    pub(in crate::proxy) fn names(&self) -> impl Iterator<Item = &[u8]> {
        let further = self.further.iter().map(Vec::as_slice);
        std::iter::once(self.name.bytes.as_slice()).chain(further)
    }
}
