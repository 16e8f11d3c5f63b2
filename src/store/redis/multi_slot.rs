//! A request with buckets in several slots of a cluster: one call for each slot, in turn. After a
//! refusal the earlier charges are given back. This file does no I/O.

use smallvec::SmallVec;

use super::reply::{BucketReply, ChargeReply};
use super::script_call::{BucketCharge, ScriptCall, Tier};
use crate::store::Ask;

/// The reply to each charge of a request; `None` if the charge was given back, or not sent.
pub type BucketReplies = SmallVec<[Option<BucketReply>; 4]>;

/// The places of the buckets in each slot, in the order of each slot's first bucket.
pub(super) fn group_by_slot(
    buckets: &[BucketCharge<'_>],
    slot_of: impl Fn(&[u8]) -> u16,
) -> Vec<Vec<usize>> {
    let mut groups: Vec<(u16, Vec<usize>)> = Vec::new();
    for (place, bucket) in buckets.iter().enumerate() {
        let slot = slot_of(bucket.name);
        match groups.iter_mut().find(|(known, _)| *known == slot) {
            Some((_, places)) => places.push(place),
            None => groups.push((slot, vec![place])),
        }
    }
    groups.into_iter().map(|(_, places)| places).collect()
}

/// The state of a request between its calls.
#[derive(Debug)]
pub(super) struct MultiSlotCharge<'a> {
    buckets: &'a [BucketCharge<'a>],
    enforced: usize,
    pub(super) replies: BucketReplies,
    /// The calls that give back all charges so far.
    pub(super) reversals: Vec<ScriptCall>,
    /// The keys that say that this request is undecided.
    pub(super) undecided: Vec<Vec<u8>>,
    /// True if a slot has refused, or memory.
    pub(super) is_refused: bool,
}

/// The call for one slot.
#[derive(Debug)]
pub(super) struct SlotCall<'a> {
    pub(super) buckets: Vec<BucketCharge<'a>>,
    /// The number of its enforced charges.
    pub(super) enforced: usize,
    /// The places of its charges among all.
    pub(super) charges: Vec<usize>,
}

impl<'a> MultiSlotCharge<'a> {
    /// A request with these charges, of which the first `enforced` may refuse.
    pub(super) fn new(buckets: &'a [BucketCharge<'a>], enforced: usize, ask: Ask) -> Self {
        Self {
            buckets,
            enforced,
            replies: first_buckets(buckets).map(|_| None).collect(),
            reversals: Vec::new(),
            undecided: Vec::new(),
            is_refused: ask == Ask::RefusedElsewhere,
        }
    }

    /// The question of the next call.
    pub(super) fn ask(&self) -> Ask {
        if self.is_refused {
            Ask::RefusedElsewhere
        } else {
            Ask::Charge
        }
    }

    /// The call for a slot. After a refusal it has only the charges that count refusals, none of
    /// them enforced; `None` if there are none.
    pub(super) fn call_for(&self, group: &[usize]) -> Option<SlotCall<'a>> {
        let is_included = |place: &&usize| !self.is_refused || self.buckets[**place].is_owed();
        let places = || group.iter().filter(is_included);
        let buckets: Vec<_> = places()
            .map(|&place| BucketCharge {
                settles: self.buckets[place].settles && !self.is_refused,
                ..self.buckets[place]
            })
            .collect();
        let charges: Vec<_> = places()
            .filter(|place| self.buckets[**place].tier == Tier::First)
            .map(|&place| first_buckets(&self.buckets[..place]).count())
            .collect();
        let binds = |charge: &&usize| **charge < self.enforced && !self.is_refused;
        (!buckets.is_empty()).then(|| SlotCall {
            enforced: charges.iter().filter(binds).count(),
            buckets,
            charges,
        })
    }

    pub(super) fn apply_reply(&mut self, call: &SlotCall<'_>, reply: &ChargeReply) {
        if !reply.is_admitted {
            self.is_refused = true;
            for (answer, charge) in self.replies.iter_mut().zip(first_buckets(self.buckets)) {
                *answer = answer.filter(|_| charge.is_owed());
            }
        }
        for (&charge, reply) in call.charges.iter().zip(&reply.replies) {
            self.replies[charge] = Some(*reply);
        }
        if !self.is_refused {
            let made = reply.replies.iter();
            for reply in made.filter(|reply| reply.decision.is_admitted()) {
                let charge = &call.buckets[reply.bucket];
                self.reversals.extend(reversal(charge, reply));
                if charge.demand.cost > 0 {
                    self.undecided.push(charge.undecided_key());
                }
            }
        }
    }
}

/// The call that gives back a charge.
fn reversal(charge: &BucketCharge<'_>, reply: &BucketReply) -> Option<ScriptCall> {
    // Units in use return with their lease guard.
    if charge.is_owed() || charge.algorithm.is_concurrency() {
        return None;
    }
    let leave = ScriptCall::leave_queue(charge, reply.decision.cell);
    leave.or_else(|| reply.reversal_call(charge))
}

/// The first bucket of each charge.
fn first_buckets<'a, 'b>(
    buckets: &'a [BucketCharge<'b>],
) -> impl Iterator<Item = &'a BucketCharge<'b>> {
    let buckets = buckets.iter();
    buckets.filter(|bucket| bucket.tier == Tier::First)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::limiter::algorithms::Gcra;
    use crate::limiter::{Algorithm, Fingerprint, Quota};
    use crate::store::redis::ChargedRefusals;

    /// Three charges in slot `a`, the first with an overflow bucket and the second free of
    /// refusals, and one in slot `b`.
    fn buckets(algorithm: &Algorithm) -> [BucketCharge<'_>; 5] {
        let key = Fingerprint::from_bits(1);
        let charge = |name, charged_refusals, tier| BucketCharge {
            charged_refusals,
            settles: true,
            tier,
            ..BucketCharge::new(algorithm, name, key, 1)
        };
        [
            charge(b"a1", ChargedRefusals::All, Tier::First),
            charge(b"a2", ChargedRefusals::All, Tier::Overflow),
            charge(b"b1", ChargedRefusals::All, Tier::First),
            charge(b"a3", ChargedRefusals::None, Tier::First),
            charge(b"a4", ChargedRefusals::All, Tier::First),
        ]
    }

    fn algorithm() -> Algorithm {
        let quota = Quota::new(1, Duration::from_secs(1)).expect("a quota");
        Algorithm::Gcra(Gcra::new(quota, 1).expect("a burst"))
    }

    #[test]
    fn each_charge_goes_to_its_slot_and_keeps_its_place() {
        let algorithm = algorithm();
        let buckets = buckets(&algorithm);
        let groups = group_by_slot(&buckets, |name| u16::from(name[0]));
        let request = MultiSlotCharge::new(&buckets, 3, Ask::Charge);
        let call = groups
            .iter()
            .map(|group| request.call_for(group).expect("a call"));
        let call: Vec<_> = call
            .map(|call| (call.buckets.len(), call.charges, call.enforced))
            .collect();
        assert_eq!(call, [(4, vec![0, 2, 3], 2), (1, vec![1], 1)]);
    }

    #[test]
    fn after_a_refusal_only_charges_that_count_it_are_sent() {
        let algorithm = algorithm();
        let buckets = buckets(&algorithm);
        let groups = group_by_slot(&buckets, |name| u16::from(name[0]));
        let request = MultiSlotCharge {
            is_refused: true,
            ..MultiSlotCharge::new(&buckets, 4, Ask::Charge)
        };
        let call = request.call_for(&groups[0]).expect("a call");
        let names: Vec<_> = call.buckets.iter().map(|bucket| bucket.name).collect();
        assert_eq!(names, [b"a1", b"a2", b"a4"]);
        // An overflow bucket is no charge: a4 is the last of four.
        assert_eq!((call.charges, call.enforced), (vec![0, 3], 0));
        assert!(call.buckets.iter().all(|bucket| !bucket.settles));
        let watching = BucketCharge {
            charged_refusals: ChargedRefusals::None,
            ..buckets[0]
        };
        let watching = [watching, buckets[2]];
        let request = MultiSlotCharge {
            is_refused: true,
            ..MultiSlotCharge::new(&watching, 2, Ask::Charge)
        };
        let groups = group_by_slot(&watching, |name| u16::from(name[0]));
        assert!(request.call_for(&groups[0]).is_none());
    }
}
