//! The result of charging a request: the decisions, and all that the request holds until it ends.

use smallvec::SmallVec;

use super::{ChargeId, InUse, OnStoreError, QueuePlace, Reservation};
use crate::clock::Timestamp;
use crate::limiter::{Decision, Fingerprint, Verdict};

/// A bucket that has decided on a request.
#[derive(Clone, Copy, Debug)]
pub struct DecidedBucket {
    /// The limit, and which of its buckets.
    pub id: ChargeId,
    /// The key of the bucket.
    pub key: Fingerprint,
}

/// The decision on a request, and all that the request holds until it ends.
#[derive(Debug, Default)]
pub struct ChargeResult {
    /// A decision for each charge that has one: enforced ones first, then shadowed ones.
    pub verdict: Verdict,
    /// The deciding buckets, in the order of the decisions.
    pub buckets: SmallVec<[DecidedBucket; 4]>,
    /// Units in use, returned on drop.
    pub in_use: Vec<InUse>,
    /// The charges that the response settles, by the numbers of their limits.
    pub reservations: Vec<(u16, Reservation)>,
    /// The places of a delayed request in queues, by the numbers of their limits.
    pub queue_places: Vec<(u16, QueuePlace)>,
    /// The decisions of Redis on charges that tag an admitted request, by the numbers of their
    /// limits; or the treatment of the request without one.
    pub tags: Vec<(u16, Result<Decision, OnStoreError>)>,
    /// The numbers of the limits without a decision, since their store does not answer.
    pub without_store: Vec<u16>,
    /// The request is refused only because of charges that may be given back, since another store
    /// may refuse their requests: those are decided by this instant. No strike is counted.
    pub doubted_until: Option<Timestamp>,
}

impl ChargeResult {
    /// Returns what a refused request would hold.
    pub(super) fn release(&mut self) {
        self.in_use.clear();
        self.queue_places.clear();
    }
}
