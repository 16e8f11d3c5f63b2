//! The effect of each limit on a request: recorded once, for metrics, logs and everything else that
//! describes a decision.

use http::StatusCode;

use super::mode::Enforcement;
use super::{Admission, note_near};
use crate::limiter::Outcome;
use crate::proxy::ruleset::Route;
use crate::store::{Payer, Role};
use crate::telemetry::metrics::{LimitDecision, RequestOutcome};

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

impl Admission {
    /// Records the decisions of the store, and counts what all limits did.
    pub(super) fn record_decisions(&mut self, route: &Route) {
        let is_refused = self.is_refused();
        self.note_decisions(route, 0, |role| !(is_refused && role.is_tag()));
        for record in &self.records {
            self.count(record, route, is_refused);
        }
    }

    /// The outcome of a request that was answered with this status, by an error of the proxy or not.
    pub(in crate::proxy) fn outcome(
        &self,
        status: StatusCode,
        is_own_error: bool,
    ) -> RequestOutcome {
        use LimitDecision::{Error, Overflowed, Routed, Shadowed, Tagged};
        if self.is_refused() {
            return RequestOutcome::Limited;
        }
        let is_beyond = |word| matches!(word, Overflowed | Routed | Shadowed | Tagged);
        let has = |is: fn(LimitDecision) -> bool| self.records.iter().any(|one| is(one.word));
        match status.as_u16() {
            _ if has(|word| word == Error) => RequestOutcome::Undecided,
            500.. => RequestOutcome::Failed,
            400.. if is_own_error => RequestOutcome::Denied,
            _ if has(is_beyond) => RequestOutcome::Beyond,
            _ => RequestOutcome::Passed,
        }
    }

    /// Notes the decisions of limits with these roles, from the place `first` on.
    pub(super) fn note_decisions(
        &mut self,
        route: &Route,
        first: usize,
        is_noted: impl Fn(Role) -> bool,
    ) {
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
            let is_soft = id.soft.is_some();
            let forwarded = |effect| route.limit(id.limit).forwarded_word(id, effect);
            let word = match (charge.role, decision.outcome) {
                (Role::Tags, Outcome::Refuse { .. }) => forwarded(Enforcement::Enforced),
                (Role::ShadowTags, Outcome::Refuse { .. }) => LimitDecision::Shadowed,
                (Role::Tags | Role::ShadowTags, _) => LimitDecision::Allowed,
                (Role::Refuses, Outcome::Refuse { .. }) => LimitDecision::Limited,
                (Role::Refuses, _) if is_soft => forwarded(Enforcement::Enforced),
                (Role::Shadows, Outcome::Refuse { .. } | Outcome::Delay { .. }) => {
                    LimitDecision::Shadowed
                }
                (Role::Shadows, Outcome::Admit) if is_soft || waited => LimitDecision::Shadowed,
                (Role::Refuses, Outcome::Delay { .. }) => LimitDecision::Delayed,
                (Role::Refuses, Outcome::Admit) if waited => LimitDecision::Delayed,
                (_, Outcome::Admit) if id.tier > 0 => LimitDecision::Overflowed,
                (_, Outcome::Admit) => LimitDecision::Allowed,
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
        let label = self.client_label.map(usize::from);
        if let Some(of_client) = label.and_then(|label| limit.client_metrics.get(label)) {
            of_client.record(word);
        }
        let Some((charge, decision)) = decided.filter(|_| !is_refused) else {
            return;
        };
        if charge.id.payer == Payer::Grant && decision.is_admitted() {
            limit.policy.steering.keys().metrics.granted.increment();
        }
        if charge.role == Role::Shadows {
            limit.policy.shadow_clients.record(charge.key, word);
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
