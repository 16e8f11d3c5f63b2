//! The decision on a request by all its claims at one instant. A claim has a ladder of buckets: the
//! first that can pay does; if none can, the one with the shortest wait says how long.

use smallvec::SmallVec;

use super::locking::{LockedBucket, LockedBuckets, lock_all};
use super::{Ask, Charge};
use crate::memory::table::Refusals;
use crate::{Algorithm, Decision, Timestamp, Verdict};

/// The effect of a claim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// Refuses the request if no bucket can pay.
    #[default]
    Refuses,
    /// In shadow: decides, and refuses nothing.
    Shadows,
    /// Tags a request that all others admit.
    Tags,
    /// In shadow: decides, and tags nothing.
    ShadowTags,
}

impl Role {
    /// True for a claim that is only on requests that all others admit.
    pub const fn is_tag(self) -> bool {
        matches!(self, Self::Tags | Self::ShadowTags)
    }
}

/// The claims of a request, each on one bucket or several: first those that can refuse, then those in
/// shadow, and last those that tag.
#[derive(Clone, Debug, Default)]
pub struct Claims<'a> {
    /// The buckets of all claims, one claim after the other.
    rungs: SmallVec<[Charge<'a>; 4]>,
    /// The end of each claim's buckets.
    ends: SmallVec<[usize; 4]>,
    /// The number of claims that can refuse.
    refusing: usize,
    /// The number of those that tag.
    tagging: usize,
}

/// The bucket that decides on a claim.
#[derive(Clone, Copy, Debug)]
pub struct DecidingRung {
    /// Its place on the ladder.
    pub rung: usize,
    /// Its decision alone, without granted units.
    pub decision: Decision,
    /// The units that it was charged, also for a refused request.
    pub charged: u32,
}

/// The deciding bucket of each claim.
pub type DecidingRungs = SmallVec<[DecidingRung; 4]>;

/// One claim under lock.
struct LockedClaim<'c, 'a> {
    charges: &'c [Charge<'a>],
    locked: &'c mut [LockedBucket<'a>],
    /// The decisions of the buckets that were asked.
    decisions: SmallVec<[Decision; 2]>,
    /// The place of the deciding bucket.
    deciding: usize,
    /// The units that a bucket was charged.
    charged: u32,
}

impl<'a> Claims<'a> {
    /// Adds a claim on these buckets, of which the last may be granted units. No bucket is in two
    /// claims.
    pub fn push(&mut self, role: Role, rungs: impl IntoIterator<Item = Charge<'a>>) {
        self.rungs.extend(rungs);
        self.ends.push(self.rungs.len());
        match role {
            Role::Refuses => self.refusing += 1,
            Role::Shadows => {}
            Role::Tags | Role::ShadowTags => self.tagging += 1,
        }
    }

    /// The buckets of each claim.
    pub(crate) fn ladders(&self) -> impl Iterator<Item = &[Charge<'a>]> {
        let mut start = 0;
        self.ends.iter().map(move |&end| {
            let from = std::mem::replace(&mut start, end);
            &self.rungs[from..end]
        })
    }

    /// Decides at `now`, and charges the first bucket of each claim that can pay, if no claim refuses.
    /// `verdict` gets a decision for each claim, with the granted units that are left.
    pub fn decide(&self, ask: Ask, now: Timestamp, verdict: &mut Verdict) -> DecidingRungs {
        let mut locked = LockedBuckets::new();
        lock_all(&self.rungs, &mut locked);
        let mut claims: SmallVec<[LockedClaim<'_, 'a>; 4]> = SmallVec::new();
        let mut rest = &mut locked[..];
        for rungs in self.ladders() {
            let (own, others) = rest.split_at_mut(rungs.len());
            claims.push(LockedClaim::ask(rungs, own, ask, now));
            rest = others;
        }
        let mut refusing = claims.iter().take(self.refusing);
        let is_refused = matches!(ask, Ask::Banned | Ask::RefusedElsewhere);
        let is_admitted = !is_refused && refusing.all(|claim| claim.decision().is_admitted());
        verdict.clear();
        let told = claims.iter_mut().enumerate().map(|(place, claim)| {
            // Others refuse the request, so that nothing is left to tag.
            let is_void = !is_admitted && place + self.tagging >= self.ends.len();
            claim.conclude(if is_void { Ask::Banned } else { ask }, is_admitted, now);
            claim.told(now)
        });
        verdict.extend(told, self.refusing);
        let deciding = claims.iter().map(|claim| DecidingRung {
            rung: claim.deciding,
            decision: *claim.decision(),
            charged: claim.charged,
        });
        deciding.collect()
    }
}

impl<'c, 'a> LockedClaim<'c, 'a> {
    /// Asks one bucket after the other until one can pay.
    fn ask(
        charges: &'c [Charge<'a>],
        locked: &'c mut [LockedBucket<'a>],
        ask: Ask,
        now: Timestamp,
    ) -> Self {
        let mut decisions = SmallVec::new();
        for (charge, bucket) in charges.iter().zip(&mut *locked) {
            let decision: Decision = bucket.plan(charge, ask, now);
            decisions.push(decision);
            if decision.is_admitted() {
                break;
            }
        }
        let mut claim = Self {
            charges,
            locked,
            decisions,
            deciding: 0,
            charged: 0,
        };
        claim.choose();
        claim
    }

    /// Chooses the bucket that pays, or that can pay soonest; the first of equals.
    fn choose(&mut self) {
        let waits = self.decisions.iter().enumerate();
        let soonest = waits.min_by_key(|(_, decision)| decision.outcome.wait());
        self.deciding = soonest.map_or(0, |(rung, _)| rung);
    }

    fn decision(&self) -> &Decision {
        &self.decisions[self.deciding]
    }

    /// Charges the deciding bucket, or the refused request if the policy says so. Every other bucket
    /// stays as it is.
    fn conclude(&mut self, ask: Ask, is_admitted: bool, now: Timestamp) {
        let is_paid = self.decision().is_admitted();
        let debtor = self
            .debtor(ask, is_admitted)
            .filter(|_| !(is_admitted && is_paid));
        let asked = self.charges.iter().zip(&mut *self.locked);
        for (rung, ((charge, bucket), decision)) in asked.zip(&mut self.decisions).enumerate() {
            if is_admitted && is_paid && rung == self.deciding {
                match ask {
                    Ask::Charge | Ask::ChargeIfAdmitted => {
                        bucket.commit(charge, decision, now);
                        self.charged = charge.demand.cost;
                    }
                    _ => bucket.forget(charge),
                }
            } else if debtor == Some(rung) {
                let owed = Charge {
                    demand: charge.demand.owed(),
                    ..*charge
                };
                if owed.demand.cost != charge.demand.cost {
                    bucket.forget(charge);
                    *decision = bucket.plan(&owed, ask, now);
                }
                match ask {
                    Ask::Peek | Ask::Banned => bucket.peek_refused(&owed, decision, now),
                    _ => {
                        bucket.charge_refused(&owed, decision, now);
                        self.charged = owed.demand.cost;
                    }
                }
            } else {
                bucket.discard(charge, decision, now);
            }
        }
        if debtor.is_some() {
            // Debt moves the retry.
            self.choose();
        }
    }

    /// The bucket that is charged for a refused request, if one is: the one that would pay, else the
    /// last. Granted units owe nothing.
    fn debtor(&self, ask: Ask, is_admitted: bool) -> Option<usize> {
        let is_owed = |rung: &usize| {
            let (charge, bucket) = (&self.charges[*rung], &self.locked[*rung]);
            charge.demand.needed() > 0 && bucket.table.refusals == Refusals::Charged
        };
        let debtor = match ask {
            Ask::Banned => None,
            Ask::ChargeIfAdmitted if !is_admitted => None,
            // Nothing is written of an admitted request, nor of its shadows and tags.
            Ask::ChargeIfRefused if is_admitted => None,
            _ if self.decision().is_admitted() => Some(self.deciding),
            _ => {
                let mut asked = (0..self.decisions.len()).rev();
                asked.find(|rung| !self.is_grant(*rung))
            }
        };
        debtor.filter(is_owed)
    }

    fn is_grant(&self, rung: usize) -> bool {
        matches!(self.charges[rung].table.algorithm(), Algorithm::Grant(_))
    }

    /// The decision with the units that the quota has left and those that are granted, whichever
    /// paid.
    fn told(&self, now: Timestamp) -> Decision {
        let decision = *self.decision();
        let last = self.charges.len() - 1;
        if !self.is_grant(last) {
            return decision;
        }
        let more_at = |rung: usize, decision: &Decision| {
            let algorithm = self.charges[rung].table.algorithm();
            algorithm.more_at(decision, now)
        };
        if self.deciding < last {
            let granted = self.locked[last].peek(&self.charges[last], now);
            return decision.with_granted(granted.remaining, more_at(self.deciding, &decision));
        }
        let quota = self.locked[0].peek(&self.charges[0], now);
        let told = quota.with_granted(decision.remaining, more_at(0, &quota));
        Decision {
            outcome: decision.outcome,
            cell: decision.cell,
            ..told
        }
    }
}
