//! The limit that logs, events and the debug header name for a request.

use super::Admission;
use crate::limiter::{Decision, Fingerprint, Outcome};
use crate::proxy::ruleset::{Limit, Route};
use crate::store::PolicyCharge;
use crate::telemetry::metrics::LimitDecision;

/// The limit that the access log names.
pub(in crate::proxy) struct LoggedLimit<'r, 'a> {
    /// The limit, if any applied.
    pub(in crate::proxy) limit: Option<&'r Limit>,
    /// Its decision in a word.
    pub(in crate::proxy) word: LimitDecision,
    /// Its decision; `None` if the request lacks its key.
    pub(in crate::proxy) decision: Option<&'a Decision>,
    /// The key of its bucket.
    pub(in crate::proxy) key: Option<Fingerprint>,
}

impl Admission {
    /// The limit that the access log names.
    pub(in crate::proxy) fn logged<'r>(&self, route: &'r Route) -> LoggedLimit<'r, '_> {
        let verdict = &self.result.verdict;
        let (place, word) = if self.is_refused() {
            let decided = self.keyless.is_none().then_some(verdict.deciding);
            (decided, LimitDecision::Limited)
        } else if let Some(place) = verdict.delaying() {
            (Some(place), LimitDecision::Delayed)
        } else if let Some(number) = self.acquired.longest_wait() {
            let mut charges = self.result.charges.iter();
            let place = charges.position(|charge| charge.id.limit == number);
            (place, LimitDecision::Delayed)
        } else if let Some(place) = self.lowered_place(route) {
            (Some(place), LimitDecision::Overflowed)
        } else if let Some(place) = self.shadowing_place() {
            (Some(place), LimitDecision::Shadowed)
        } else {
            let has_decision = verdict.enforced() > 0;
            let decided = has_decision.then_some(verdict.deciding);
            (decided, LimitDecision::Allowed)
        };
        let number = match place {
            Some(place) => self.result.charges.get(place).map(|one| one.id.limit),
            None => self.keyless,
        };
        LoggedLimit {
            limit: number.map(|number| route.limit(number)),
            word,
            decision: place.and_then(|place| verdict.decisions.get(place)),
            key: place.and_then(|place| Some(self.result.charges.get(place)?.key)),
        }
    }

    /// The place of the first decision that admits the request at a lower priority.
    fn lowered_place(&self, route: &Route) -> Option<usize> {
        let is_lowered = |PolicyCharge { id, .. }: &PolicyCharge| {
            route.limit(id.limit).overflow(*id).is_some()
        };
        self.binding().iter().position(is_lowered)
    }

    /// The place of the first shadowed decision that would have refused or delayed the request.
    fn shadowing_place(&self) -> Option<usize> {
        let verdict = &self.result.verdict;
        let mut shadowed = verdict.enforced()..verdict.decisions.len();
        shadowed.find(|place| verdict.decisions[*place].outcome != Outcome::Admit)
    }
}
