//! A request whose buckets are in several slots of a cluster: one call for each, one after the other, and what is given back of
//! those before once one refuses. Nothing is sent here.

use smallvec::SmallVec;

use super::reply::{BucketReply, ChargeReply};
use super::script_call::{BucketCharge, ScriptCall, Tier};

/// What each of some charges was told, in their order; `None` where nothing was.
pub type BucketReplies = SmallVec<[Option<BucketReply>; 4]>;

/// The places of the buckets that one call can charge.
#[derive(Debug)]
pub(super) struct SlotGroup {
    slot: u16,
    buckets: Vec<usize>,
}

impl SlotGroup {
    /// Those of these buckets, in the order of their first ones.
    pub(super) fn all(buckets: &[BucketCharge<'_>], slot_of: impl Fn(&[u8]) -> u16) -> Vec<Self> {
        let mut parts: Vec<Self> = Vec::new();
        for (place, bucket) in buckets.iter().enumerate() {
            let slot = slot_of(bucket.name);
            match parts.iter_mut().find(|part| part.slot == slot) {
                Some(part) => part.buckets.push(place),
                None => parts.push(Self {
                    slot,
                    buckets: vec![place],
                }),
            }
        }
        parts
    }
}

/// A request as it is asked part by part.
#[derive(Debug)]
pub(super) struct MultiSlotCharge<'a> {
    buckets: &'a [BucketCharge<'a>],
    binding: usize,
    answers: BucketReplies,
    reversals: Vec<ScriptCall>,
    is_refused: bool,
}

/// What is asked of a part.
#[derive(Debug)]
pub(super) struct SlotCall<'a> {
    pub(super) buckets: Vec<BucketCharge<'a>>,
    /// How many of its charges may refuse.
    pub(super) binding: usize,
    /// The places of these charges among all.
    charges: Vec<usize>,
}

impl<'a> MultiSlotCharge<'a> {
    /// A request by the charges to these buckets, of which the first `binding` may refuse.
    pub(super) fn new(buckets: &'a [BucketCharge<'a>], binding: usize) -> Self {
        Self {
            buckets,
            binding,
            answers: heads(buckets).map(|_| None).collect(),
            reversals: Vec::new(),
            is_refused: false,
        }
    }

    /// What is to be asked of a part; once one has refused, only who charges refusals is told of it, and refuses nothing
    /// any more. `None` where that is nobody.
    pub(super) fn ask(&self, part: &SlotGroup) -> Option<SlotCall<'a>> {
        let is_asked = |place: &&usize| !self.is_refused || self.buckets[**place].is_owed();
        let places = || part.buckets.iter().filter(is_asked);
        let buckets: Vec<_> = places()
            .map(|&place| BucketCharge {
                settles: self.buckets[place].settles && !self.is_refused,
                ..self.buckets[place]
            })
            .collect();
        let charges: Vec<_> = places()
            .filter(|place| self.buckets[**place].tier == Tier::First)
            .map(|&place| heads(&self.buckets[..place]).count())
            .collect();
        let binds = |charge: &&usize| **charge < self.binding && !self.is_refused;
        (!buckets.is_empty()).then(|| SlotCall {
            binding: charges.iter().filter(binds).count(),
            buckets,
            charges,
        })
    }

    /// Notes what was told of that.
    pub(super) fn note(&mut self, asked: &SlotCall<'_>, told: &ChargeReply) {
        if !told.verdict.is_admitted() {
            self.is_refused = true;
            for (answer, charge) in self.answers.iter_mut().zip(heads(self.buckets)) {
                *answer = answer.filter(|_| charge.is_owed());
            }
        }
        for (&charge, said) in asked.charges.iter().zip(told.said(&asked.buckets)) {
            self.answers[charge] = Some(said);
        }
        if !self.is_refused {
            self.reversals.extend(reversals(&asked.buckets, told));
        }
    }

    /// Whether a part has refused.
    pub(super) fn is_refused(&self) -> bool {
        self.is_refused
    }

    /// What gives back all that was charged up to now.
    pub(super) fn take_reversals(&mut self) -> Vec<ScriptCall> {
        std::mem::take(&mut self.reversals)
    }

    /// What each charge was told: nothing who was given back, or was not asked.
    pub(super) fn into_answers(self) -> BucketReplies {
        self.answers
    }
}

/// What gives back the charges that were made.
fn reversals(charges: &[BucketCharge<'_>], told: &ChargeReply) -> impl Iterator<Item = ScriptCall> {
    let paid = told.buckets.iter().map(|&bucket| &charges[bucket]);
    let made = paid.zip(told.said(charges));
    // Units in use are given back by who has their lease.
    let made = made.filter(|(charge, said)| {
        said.decision.is_admitted() && !charge.is_owed() && !charge.algorithm.is_permits()
    });
    made.filter_map(|(charge, said)| {
        let leave = ScriptCall::leave(charge, said.decision.cell, None);
        leave.or_else(|| said.reversal(charge))
    })
}

/// The first bucket of each charge.
fn heads<'a, 'b>(buckets: &'a [BucketCharge<'b>]) -> impl Iterator<Item = &'a BucketCharge<'b>> {
    let buckets = buckets.iter();
    buckets.filter(|bucket| bucket.tier == Tier::First)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::limiter::{Algorithm, Fingerprint, Gcra, Quota};
    use crate::store::redis::ChargedRefusals;

    /// Two charges, the first of which may overflow, that share a slot with a third which owes nothing; a fourth is elsewhere.
    fn buckets(algorithm: &Algorithm) -> [BucketCharge<'_>; 5] {
        let charge = |name, owes, tier| BucketCharge {
            algorithm,
            name,
            key: Fingerprint::from_bits(1),
            cost: 1,
            owes,
            settles: true,
            period: None,
            tier,
        };
        [
            charge(b"a1", ChargedRefusals::All, Tier::First),
            charge(b"a2", ChargedRefusals::All, Tier::Further),
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
    fn each_charge_is_asked_of_its_slot_and_knows_its_place() {
        let algorithm = algorithm();
        let buckets = buckets(&algorithm);
        let parts = SlotGroup::all(&buckets, |name| u16::from(name[0]));
        let request = MultiSlotCharge::new(&buckets, 3);
        let asked = parts.iter().map(|part| request.ask(part).expect("a call"));
        let asked: Vec<_> = asked
            .map(|asked| (asked.buckets.len(), asked.charges, asked.binding))
            .collect();
        assert_eq!(asked, [(4, vec![0, 2, 3], 2), (1, vec![1], 1)]);
    }

    #[test]
    fn after_a_refusal_only_those_are_asked_that_charge_it() {
        let algorithm = algorithm();
        let buckets = buckets(&algorithm);
        let parts = SlotGroup::all(&buckets, |name| u16::from(name[0]));
        let request = MultiSlotCharge {
            is_refused: true,
            ..MultiSlotCharge::new(&buckets, 4)
        };
        let asked = request.ask(&parts[0]).expect("a call");
        let names: Vec<_> = asked.buckets.iter().map(|bucket| bucket.name).collect();
        assert_eq!(names, [b"a1", b"a2", b"a4"]);
        // A further bucket is no charge: a4 is the last of four.
        assert_eq!((asked.charges, asked.binding), (vec![0, 3], 0));
        assert!(asked.buckets.iter().all(|bucket| !bucket.settles));
        let watching = BucketCharge {
            owes: ChargedRefusals::None,
            ..buckets[0]
        };
        let watching = [watching, buckets[2]];
        let request = MultiSlotCharge {
            is_refused: true,
            ..MultiSlotCharge::new(&watching, 2)
        };
        let parts = SlotGroup::all(&watching, |name| u16::from(name[0]));
        assert!(request.ask(&parts[0]).is_none());
    }
}
