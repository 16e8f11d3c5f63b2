//! The effect of each limit on a request: recorded once, for metrics, logs and everything else that
//! describes a decision.

use super::{Admission, note_near};
use crate::limiter::{Decision, Outcome};
use crate::proxy::ruleset::Route;
use crate::proxy::shadow_clients::ShadowOutcome;
use crate::store::{Payer, Role};
use crate::telemetry::metrics::LimitDecision;

/// The effect of a limit on a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::proxy) struct LimitRecord {
    /// The number of the limit.
    pub(in crate::proxy) limit: u16,
    /// Its decision in a word.
    pub(in crate::proxy) word: LimitDecision,
    /// The place of its bucket's decision; `None` if no bucket decided.
    pub(in crate::proxy) place: Option<u16>,
}

impl LimitRecord {
    /// Returns true if the limit has had no effect.
    pub(super) fn is_plain(&self) -> bool {
        matches!(self.word, LimitDecision::Allowed | LimitDecision::Exempt)
    }
}

/// A bucket's decision in a word, of a first bucket or of one that others overflowed into, and for
/// a request that waited for permits, or not.
pub(in crate::proxy) fn word_of(
    decision: &Decision,
    is_overflow: bool,
    is_enforced: bool,
    waited: bool,
) -> LimitDecision {
    match (decision.outcome, is_enforced) {
        (Outcome::Refuse { .. }, true) => LimitDecision::Limited,
        (Outcome::Refuse { .. } | Outcome::Delay { .. }, false) => LimitDecision::Shadowed,
        (Outcome::Delay { .. }, true) => LimitDecision::Delayed,
        (Outcome::Admit, true) if waited => LimitDecision::Delayed,
        (Outcome::Admit, false) if waited => LimitDecision::Shadowed,
        (Outcome::Admit, _) if is_overflow => LimitDecision::Overflowed,
        (Outcome::Admit, _) => LimitDecision::Allowed,
    }
}

impl Admission {
    /// Records the decisions of the store, and counts what all limits did.
    pub(super) fn record_decisions(&mut self, route: &Route) {
        let is_refused = self.is_refused();
        self.note_decisions(0, |role| !(is_refused && role.is_tag()));
        for record in &self.records {
            self.count(record, route, is_refused);
        }
    }

    /// Notes the decisions of limits with these roles, from the place `first` on.
    pub(super) fn note_decisions(&mut self, first: usize, is_noted: impl Fn(Role) -> bool) {
        let decided = self
            .result
            .buckets
            .iter()
            .zip(&self.result.verdict.decisions);
        for (place, (charge, decision)) in (0_u16..).zip(decided).skip(first) {
            let id = charge.id;
            if !is_noted(charge.role) {
                continue;
            }
            let waited = self.acquired.waited(id.limit).is_some();
            let is_admitted = decision.is_admitted();
            let word = match (id.soft, charge.role) {
                (Some(_), Role::Refuses) if is_admitted => LimitDecision::Tagged,
                (Some(_), Role::Shadows) => LimitDecision::Shadowed,
                (_, Role::Refuses) => word_of(decision, id.tier > 0, true, waited),
                (_, Role::Shadows) => word_of(decision, id.tier > 0, false, waited),
                (_, Role::Tags | Role::ShadowTags) if is_admitted => LimitDecision::Allowed,
                (_, Role::Tags) => LimitDecision::Tagged,
                (_, Role::ShadowTags) => LimitDecision::Shadowed,
            };
            self.records.push(LimitRecord {
                limit: id.limit,
                word,
                place: Some(place),
            });
        }
    }

    /// A refused request is counted only by the limits that refuse it, or exempt it: the others
    /// charged nothing, and enforcing those in shadow would change nothing for it.
    pub(super) fn count(&self, record: &LimitRecord, route: &Route, is_refused: bool) {
        let (limit, word) = (route.limit(record.limit), record.word);
        if is_refused && !matches!(word, LimitDecision::Limited | LimitDecision::Exempt) {
            return;
        }
        let decided = self.decision_of(record);
        let soft = decided.and_then(|(charge, _)| charge.id.soft);
        let metrics = soft.map_or(&limit.metrics, |soft| {
            &limit.soft_metrics[usize::from(soft)]
        });
        metrics.record(word);
        let Some((charge, decision)) = decided.filter(|_| !is_refused) else {
            return;
        };
        if charge.id.payer == Payer::Grant && decision.is_admitted() {
            limit.policy.steering.keys().metrics.granted.increment();
        }
        if charge.role == Role::Shadows {
            let outcome = match word {
                LimitDecision::Shadowed => ShadowOutcome::Limited,
                _ => ShadowOutcome::Allowed,
            };
            limit.policy.shadow_clients.record(charge.key, outcome);
        }
        match word {
            LimitDecision::Allowed => note_near(limit, decision),
            LimitDecision::Delayed => {
                let until = decision.delayed_until();
                let delay = until.map(|until| until.since(self.now));
                let wait = delay.or_else(|| self.acquired.waited(record.limit));
                if let (Some(waits), Some(wait)) = (&limit.policy.metrics.waits, wait) {
                    waits.wait.record(wait);
                }
                note_near(limit, decision);
            }
            _ => {}
        }
    }
}
