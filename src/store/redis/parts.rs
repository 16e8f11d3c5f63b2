//! A request whose buckets are in several slots of a cluster: one call for each, one after the other, and what is given back of
//! those before once one refuses. Nothing is sent here.

use smallvec::SmallVec;

use super::asked::{Ask, Charge, Tier};
use super::told::{Said, Told};

/// What each of some charges was told, in their order; `None` where nothing was.
pub type Answers = SmallVec<[Option<Said>; 4]>;

/// The places of the buckets that one call can charge.
#[derive(Debug)]
pub(super) struct Part {
    slot: u16,
    buckets: Vec<usize>,
}

impl Part {
    /// Those of these buckets, in the order of their first ones.
    pub(super) fn all(buckets: &[Charge<'_>], slot_of: impl Fn(&[u8]) -> u16) -> Vec<Self> {
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
pub(super) struct Piecemeal<'a> {
    buckets: &'a [Charge<'a>],
    binding: usize,
    answers: Answers,
    reversals: Vec<Ask>,
    is_refused: bool,
}

/// What is asked of a part.
#[derive(Debug)]
pub(super) struct Asked<'a> {
    pub(super) buckets: Vec<Charge<'a>>,
    /// How many of its charges may refuse.
    pub(super) binding: usize,
    /// The places of these charges among all.
    charges: Vec<usize>,
}

impl<'a> Piecemeal<'a> {
    /// A request by the charges to these buckets, of which the first `binding` may refuse.
    pub(super) fn new(buckets: &'a [Charge<'a>], binding: usize) -> Self {
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
    pub(super) fn ask(&self, part: &Part) -> Option<Asked<'a>> {
        let is_asked = |place: &&usize| !self.is_refused || self.buckets[**place].is_owed();
        let places = || part.buckets.iter().filter(is_asked);
        let buckets: Vec<_> = places()
            .map(|&place| Charge {
                settles: self.buckets[place].settles && !self.is_refused,
                ..self.buckets[place]
            })
            .collect();
        let charges: Vec<_> = places()
            .filter(|place| self.buckets[**place].tier == Tier::First)
            .map(|&place| heads(&self.buckets[..place]).count())
            .collect();
        let binds = |charge: &&usize| **charge < self.binding && !self.is_refused;
        (!buckets.is_empty()).then(|| Asked {
            binding: charges.iter().filter(binds).count(),
            buckets,
            charges,
        })
    }

    /// Notes what was told of that.
    pub(super) fn note(&mut self, asked: &Asked<'_>, told: &Told) {
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
    pub(super) fn take_reversals(&mut self) -> Vec<Ask> {
        std::mem::take(&mut self.reversals)
    }

    /// What each charge was told: nothing who was given back, or was not asked.
    pub(super) fn into_answers(self) -> Answers {
        self.answers
    }
}

/// What gives back the charges that were made.
fn reversals(charges: &[Charge<'_>], told: &Told) -> impl Iterator<Item = Ask> {
    let paid = told.buckets.iter().map(|&bucket| &charges[bucket]);
    let made = paid.zip(told.said(charges));
    // Units in use are given back by who has their lease.
    let made = made.filter(|(charge, said)| {
        said.decision.is_admitted() && !charge.is_owed() && !charge.algorithm.is_permits()
    });
    made.filter_map(|(charge, said)| {
        let leave = Ask::leave(charge, said.decision.cell, None);
        leave.or_else(|| said.reversal(charge))
    })
}

/// The first bucket of each charge.
fn heads<'a, 'b>(buckets: &'a [Charge<'b>]) -> impl Iterator<Item = &'a Charge<'b>> {
    let buckets = buckets.iter();
    buckets.filter(|bucket| bucket.tier == Tier::First)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::limiter::{Algorithm, Fingerprint, Gcra, Quota};
    use crate::store::redis::Owes;

    /// Two charges, the first of which may overflow, that share a slot with a third which owes nothing; a fourth is elsewhere.
    fn buckets(algorithm: &Algorithm) -> [Charge<'_>; 5] {
        let charge = |name, owes, tier| Charge {
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
            charge(b"a1", Owes::All, Tier::First),
            charge(b"a2", Owes::All, Tier::Further),
            charge(b"b1", Owes::All, Tier::First),
            charge(b"a3", Owes::Nothing, Tier::First),
            charge(b"a4", Owes::All, Tier::First),
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
        let parts = Part::all(&buckets, |name| u16::from(name[0]));
        let request = Piecemeal::new(&buckets, 3);
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
        let parts = Part::all(&buckets, |name| u16::from(name[0]));
        let request = Piecemeal {
            is_refused: true,
            ..Piecemeal::new(&buckets, 4)
        };
        let asked = request.ask(&parts[0]).expect("a call");
        let names: Vec<_> = asked.buckets.iter().map(|bucket| bucket.name).collect();
        assert_eq!(names, [b"a1", b"a2", b"a4"]);
        // A further bucket is no charge: a4 is the last of four.
        assert_eq!((asked.charges, asked.binding), (vec![0, 3], 0));
        assert!(asked.buckets.iter().all(|bucket| !bucket.settles));
        let watching = Charge {
            owes: Owes::Nothing,
            ..buckets[0]
        };
        let watching = [watching, buckets[2]];
        let request = Piecemeal {
            is_refused: true,
            ..Piecemeal::new(&watching, 2)
        };
        let parts = Part::all(&watching, |name| u16::from(name[0]));
        assert!(request.ask(&parts[0]).is_none());
    }
}
