//! The decision of one policy on a request, and the verdict of all its policies.

use std::cmp::Ordering;
use std::num::NonZero;

use smallvec::SmallVec;

use crate::{Cell, Timestamp};

/// The decision of one policy on one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Admit, delay or refuse.
    pub outcome: Outcome,
    /// Whole units that remain after this charge, rounded down.
    pub remaining: u64,
    /// The largest value of `remaining`: the burst, or the limit.
    pub capacity: u64,
    /// The instant at which the bucket is whole if it is not charged again.
    pub reset: Timestamp,
    /// The instant at which `remaining` grows, in microseconds since the epoch. Set only if it
    /// takes a ring to know; [`Algorithm::more_at`](super::Algorithm::more_at) covers all
    /// algorithms.
    pub more_at: Option<NonZero<u64>>,
    /// The bucket after the charge; unchanged by a refusal.
    pub cell: Cell,
}

/// Admission, delay or refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The bucket has the units.
    Admit,
    /// The bucket has the units and is charged now, but the request waits for its turn.
    Delay {
        /// The instant at which the request goes on, later than now.
        until: Timestamp,
    },
    /// The bucket lacks the units and is not charged.
    Refuse {
        /// The first instant at which the same request is admitted if no other request comes.
        /// `None` if the bucket can never hold the cost.
        retry_at: Option<Timestamp>,
    },
}

impl Outcome {
    /// Orders outcomes by the wait; never is the longest.
    pub const fn wait(self) -> (bool, Option<Timestamp>) {
        match self {
            Self::Refuse { retry_at } => (retry_at.is_none(), retry_at),
            Self::Admit | Self::Delay { .. } => (false, None),
        }
    }

    /// The outcome of a policy for one request, from those of all that may pay it: the policy's
    /// buckets, and granted units of the key. A refusal ends at the earliest instant at which the
    /// same request passes, other things equal: one of them pays, and the key is not banned.
    ///
    /// Callers leave out granted units that end before the ban.
    pub fn joint(payers: impl IntoIterator<Item = Self>, banned_until: Option<Timestamp>) -> Self {
        let soonest = payers.into_iter().min_by_key(|payer| payer.wait());
        let soonest = soonest.unwrap_or(Self::Refuse { retry_at: None });
        match (banned_until, soonest) {
            (None, _) => soonest,
            (Some(until), Self::Refuse { retry_at }) => Self::Refuse {
                retry_at: retry_at.map(|retry_at| retry_at.max(until)),
            },
            (until, Self::Admit | Self::Delay { .. }) => Self::Refuse { retry_at: until },
        }
    }
}

impl Decision {
    /// The decision that leaves this cell, without a ring.
    pub(crate) fn new(
        outcome: Outcome,
        cell: Cell,
        now: Timestamp,
        remaining: impl Into<u64>,
        capacity: impl Into<u64>,
    ) -> Self {
        Self {
            outcome,
            remaining: remaining.into(),
            capacity: capacity.into(),
            reset: cell.whole_at(now),
            more_at: None,
            cell,
        }
    }

    /// True for an admission, at once or after a delay.
    pub const fn is_admitted(&self) -> bool {
        !matches!(self.outcome, Outcome::Refuse { .. })
    }

    /// True if at most 20 % of the capacity remain.
    pub const fn is_near(&self) -> bool {
        self.remaining.saturating_mul(5) <= self.capacity
    }

    /// The instant at which a delayed request goes on.
    pub const fn delayed_until(&self) -> Option<Timestamp> {
        match self.outcome {
            Outcome::Delay { until } => Some(until),
            Outcome::Admit | Outcome::Refuse { .. } => None,
        }
    }

    /// The instant at which a refused request would be admitted, if ever.
    pub const fn retry_at(&self) -> Option<Timestamp> {
        match self.outcome {
            Outcome::Admit | Outcome::Delay { .. } => None,
            Outcome::Refuse { retry_at } => retry_at,
        }
    }

    /// The decision on a bucket whose key has `units` more granted. Its own remaining units grow at
    /// `more_at`.
    #[must_use]
    pub fn with_granted(self, units: u64, more_at: Option<Timestamp>) -> Self {
        let remaining = self.remaining.saturating_add(units);
        Self { remaining, ..self }.with_more_at(more_at)
    }

    /// The decision on a bucket whose remaining units grow at this instant, as far as that is known.
    #[must_use]
    pub fn with_more_at(self, at: Option<Timestamp>) -> Self {
        let more_at = at.and_then(|at| NonZero::new(at.as_micros()));
        Self { more_at, ..self }
    }

    /// Shortens a refusal that is in doubt: the missing units may be back by `until`.
    pub fn doubt(&mut self, until: Timestamp) {
        if let Outcome::Refuse {
            retry_at: Some(retry_at),
        } = &mut self.outcome
            && *retry_at > until
        {
            *retry_at = until;
            self.more_at = NonZero::new(until.as_micros());
        }
    }

    /// Refuses at least until the end of a ban of the key; for ever if nothing can ever pay.
    pub fn ban(&mut self, until: Timestamp) {
        let has_nothing = self.capacity == 0 && self.remaining == 0;
        let outcome = Outcome::joint([self.outcome], Some(until));
        let retry_at = outcome.wait().1.filter(|_| !has_nothing);
        // Units may be missing for longer than the ban lasts.
        let more_at = match (retry_at, self.remaining) {
            _ if has_nothing => None,
            (Some(retry_at), _) => Some(retry_at),
            (None, 0) => Some(until.max(self.reset)),
            (None, _) => Some(until),
        };
        self.outcome = Outcome::Refuse { retry_at };
        self.remaining = 0;
        self.reset = self.reset.max(until);
        self.more_at = more_at.and_then(|at| NonZero::new(at.as_micros()));
    }

    /// The decision on a request that is refused although the bucket pays for it: until `retry_at`,
    /// others have to find more units.
    #[must_use]
    pub fn limited_until(self, retry_at: Option<Timestamp>) -> Self {
        Self {
            outcome: Outcome::Refuse { retry_at },
            remaining: 0,
            ..self.with_more_at(retry_at)
        }
    }

    /// Orders decisions by tightness: refusals last, the longest wait (and never) last among them,
    /// and admissions by the remaining share of the capacity.
    fn compare_tightness(&self, other: &Self) -> Ordering {
        match (self.outcome, other.outcome) {
            (left @ Outcome::Refuse { .. }, right @ Outcome::Refuse { .. }) => {
                left.wait().cmp(&right.wait())
            }
            (Outcome::Refuse { .. }, _) => Ordering::Greater,
            (_, Outcome::Refuse { .. }) => Ordering::Less,
            _ => {
                let share =
                    |of: &Self, by: &Self| u128::from(of.remaining) * u128::from(by.capacity);
                share(other, self).cmp(&share(self, other))
            }
        }
    }
}

/// The joint verdict of a request's policies: admitted unless an enforced policy refuses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// A decision for each charge, in the charges' order. Shadowed policies come last.
    pub decisions: SmallVec<[Decision; 4]>,
    /// The index of the deciding policy: the refusal with the longest retry, else the admission
    /// with the smallest remaining share; the first of equals. 0 without decisions.
    pub deciding: usize,
    /// The number of shadowed policies. They neither refuse nor decide.
    pub shadowed: usize,
    /// The indices of the policies that ban the key.
    banned: Vec<usize>,
}

impl Verdict {
    /// The verdict of these decisions, of which the first `enforced` are of enforced policies.
    pub fn of(decisions: impl IntoIterator<Item = Decision>, enforced: usize) -> Self {
        let mut verdict = Self::default();
        verdict.extend(decisions, enforced);
        verdict
    }

    /// Adds these decisions to an empty verdict. The first `enforced` are of enforced policies.
    pub(crate) fn extend(
        &mut self,
        decisions: impl IntoIterator<Item = Decision>,
        enforced: usize,
    ) {
        for (place, decision) in decisions.into_iter().enumerate() {
            if place < enforced {
                self.push(decision)
            } else {
                self.push_shadowed(decision)
            }
        }
    }
    /// Removes all decisions.
    pub fn clear(&mut self) {
        self.decisions.clear();
        self.banned.clear();
        (self.deciding, self.shadowed) = (0, 0);
    }

    /// Adds the decision of an enforced policy. All enforced policies come before shadowed ones.
    pub fn push(&mut self, decision: Decision) {
        let binds = |first: &Decision| decision.compare_tightness(first).is_gt();
        if self.decision().is_some_and(binds) {
            self.deciding = self.decisions.len();
        }
        self.decisions.push(decision);
    }

    /// Adds the decision of a shadowed policy.
    pub fn push_shadowed(&mut self, decision: Decision) {
        self.shadowed += 1;
        self.decisions.push(decision);
    }

    /// Makes the enforced policy at `place` refuse at least until `until`, because it bans the key.
    pub fn ban(&mut self, place: usize, until: Timestamp) {
        self.decisions[place].ban(until);
        self.banned.push(place);
        // The first of equals, as the last in reverse.
        let enforced = self.decisions[..self.enforced()].iter().enumerate().rev();
        let tightest = enforced.max_by(|(_, one), (_, other)| one.compare_tightness(other));
        self.deciding = tightest.map_or(0, |(place, _)| place);
    }

    /// The number of enforced policies, which come first.
    pub fn enforced(&self) -> usize {
        self.decisions.len() - self.shadowed
    }

    /// The deciding policy's decision; `None` without enforced policies.
    pub fn decision(&self) -> Option<&Decision> {
        self.decisions[..self.enforced()].get(self.deciding)
    }

    /// True if the deciding policy refuses because it bans the key.
    pub fn is_ban(&self) -> bool {
        self.deciding < self.enforced() && self.banned.contains(&self.deciding)
    }

    /// True if no enforced policy refuses.
    pub fn is_admitted(&self) -> bool {
        self.decision().is_none_or(Decision::is_admitted)
    }

    /// The index of the enforced policy that delays an admitted request longest; the first of
    /// equals. `None` for a refused request, or one without delay.
    pub fn delaying(&self) -> Option<usize> {
        let enforced = self.decisions[..self.enforced()].iter().enumerate().rev();
        let delays = enforced.filter_map(|(place, one)| Some((one.delayed_until()?, place)));
        let longest = delays.max_by_key(|(until, _)| *until)?;
        self.is_admitted().then_some(longest.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decision(outcome: Outcome, remaining: u64, capacity: u64) -> Decision {
        let (reset, cell) = (Timestamp::EPOCH, Cell::EMPTY);
        Decision {
            outcome,
            remaining,
            capacity,
            reset,
            more_at: None,
            cell,
        }
    }

    fn of<const N: usize>(decisions: [Decision; N]) -> Verdict {
        let mut verdict = Verdict::default();
        decisions
            .into_iter()
            .for_each(|decision| verdict.push(decision));
        verdict
    }

    fn refusal(retry_at: Option<u64>) -> Decision {
        let retry_at = retry_at.map(Timestamp::from_micros);
        decision(Outcome::Refuse { retry_at }, 0, 9)
    }

    #[test]
    fn no_policy_admits() {
        let verdict = Verdict::default();
        assert!(verdict.is_admitted());
        assert_eq!(verdict.decision(), None);
    }

    #[test]
    fn the_smallest_remaining_share_decides_an_admission() {
        let admit = |remaining, capacity| decision(Outcome::Admit, remaining, capacity);
        let verdict = of([admit(9, 10), admit(40, 1000), admit(4, 100), admit(5, 10)]);
        assert!(verdict.is_admitted());
        assert_eq!(verdict.deciding, 1);
    }

    #[test]
    fn a_shadowed_policy_decides_nothing() {
        let mut verdict = Verdict::default();
        verdict.push_shadowed(refusal(None));
        assert!(verdict.is_admitted());
        assert_eq!((verdict.decision(), verdict.enforced()), (None, 0));

        let mut verdict = of([decision(Outcome::Admit, 9, 10), refusal(Some(7))]);
        verdict.push_shadowed(refusal(None));
        assert_eq!((verdict.deciding, verdict.enforced()), (1, 2));
        assert!(!verdict.is_admitted());
    }

    #[test]
    fn a_delay_lasts_as_long_as_the_longest_and_decides_as_any_admission() {
        let delay = |until, remaining| {
            let until = Timestamp::from_micros(until);
            decision(Outcome::Delay { until }, remaining, 10)
        };
        let tight = decision(Outcome::Admit, 1, 10);
        let mut verdict = of([delay(7, 5), tight, delay(9, 4), delay(9, 3)]);
        assert_eq!((verdict.deciding, verdict.delaying()), (1, Some(2)));
        verdict.push_shadowed(delay(11, 9));
        assert_eq!(verdict.delaying(), Some(2), "who watches delays nobody");
        assert_eq!(of([delay(7, 5), refusal(None)]).delaying(), None);
        assert_eq!(of([tight]).delaying(), None);
    }

    #[test]
    fn a_ban_refuses_and_decides_if_it_lasts_longest() {
        let admit = decision(Outcome::Admit, 5, 10);
        let mut verdict = of([refusal(Some(7)), admit]);
        verdict.ban(1, Timestamp::from_micros(5));
        assert_eq!((verdict.deciding, verdict.is_admitted()), (0, false));
        assert!(!verdict.is_ban(), "the first refuses longer");
        assert_eq!(verdict.decisions[1].remaining, 0);
        verdict.ban(1, Timestamp::from_micros(9));
        assert_eq!((verdict.deciding, verdict.is_ban()), (1, true));
        verdict.ban(0, Timestamp::from_micros(30));
        let retry_at = Some(Timestamp::from_micros(30));
        assert_eq!(
            verdict.decision().unwrap().outcome,
            Outcome::Refuse { retry_at }
        );
        let mut longer = of([refusal(Some(90))]);
        longer.ban(0, Timestamp::from_micros(30));
        assert_eq!(
            longer.decisions[0].more_at,
            NonZero::new(90),
            "units are missing after the ban"
        );
        let mut never = of([refusal(None)]);
        never.ban(0, Timestamp::from_micros(9));
        assert_eq!(
            never.decisions[0].outcome,
            Outcome::Refuse { retry_at: None }
        );
        for (reset, more_at) in [(3, 9), (20, 20)] {
            let reset = Timestamp::from_micros(reset);
            let mut never = of([Decision {
                reset,
                ..refusal(None)
            }]);
            never.ban(0, Timestamp::from_micros(9));
            assert_eq!(never.decisions[0].more_at, NonZero::new(more_at));
        }
    }

    #[test]
    fn the_longest_retry_decides_a_refusal_and_never_is_the_longest() {
        let admit = decision(Outcome::Admit, 0, 10);
        let verdict = of([refusal(Some(7)), admit, refusal(Some(9))]);
        assert!(!verdict.is_admitted());
        assert_eq!(verdict.deciding, 2);
        let verdict = of([refusal(Some(u64::MAX)), refusal(None), admit]);
        assert_eq!(verdict.deciding, 1);
    }
}
