//! Reading buckets in Redis, without charging them.

use tokio::time::Instant;

use super::client::Caller;
use super::multi_slot::SlotGroup;
use super::reply::BucketReply;
use super::script_call::{BucketCharge, ChargeRequest, Tier};
use super::store::{ChargeError, Store};
use crate::clock::Timestamp;
use crate::store::Ask;

impl Store {
    /// The replies on these charges, which are not made, in the order of their first buckets, with
    /// instants of the local clock as if decided at `now`. In a cluster each slot takes a call of its own, one after the other.
    ///
    /// # Panics
    /// Outside a runtime, or if there is no such worker.
    pub async fn peek(
        &self,
        caller: Caller,
        buckets: &[BucketCharge<'_>],
        ask: Ask,
        now: Timestamp,
    ) -> Vec<Result<BucketReply, ChargeError>> {
        let deadline = Instant::now() + self.client().spec().timeout;
        let firsts = |buckets: &[BucketCharge<'_>]| {
            let firsts = buckets.iter().filter(|bucket| bucket.tier == Tier::First);
            firsts.count()
        };
        let mut replies = vec![Err(ChargeError::OtherPeriod); firsts(buckets)];
        for group in SlotGroup::group(buckets, |name| self.slot_of(name)) {
            let in_slot = group.places().iter().map(|&place| buckets[place]);
            let in_slot: Vec<_> = in_slot.collect();
            let places = group.places().iter();
            let places = places.filter(|&&place| buckets[place].tier == Tier::First);
            let places = places.map(|&place| firsts(&buckets[..place]));
            let request = ChargeRequest {
                ask,
                ..self.request(&in_slot, firsts(&in_slot), now)
            };
            let reply = self.charge_in_one_call(deadline, caller, &request, now, || false);
            match reply.await {
                Ok(reply) => {
                    for (place, reply) in places.zip(reply.replies) {
                        replies[place] = Ok(reply);
                    }
                }
                Err(error) => {
                    for place in places {
                        replies[place] = Err(error.clone());
                    }
                }
            }
        }
        replies
    }
}
