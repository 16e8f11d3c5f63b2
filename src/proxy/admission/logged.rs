//! The limit that logs, events and the debug header name for a request.

use std::sync::Arc;

use super::mode::Enforcement;
use super::{Admission, LimitRecord};
use crate::limiter::{Decision, Fingerprint};
use crate::proxy::ruleset::{Limit, Route};
use crate::telemetry::metrics::LimitDecision;

/// The limit that the access log names.
pub(in crate::proxy) struct LoggedLimit<'r, 'a> {
    /// The limit, if any applied.
    pub(in crate::proxy) limit: Option<&'r Limit>,
    /// The name of its policy, or of its soft limit that the request exceeds.
    pub(in crate::proxy) name: Option<&'r Arc<str>>,
    /// Its decision in a word.
    pub(in crate::proxy) word: LimitDecision,
    /// Its decision; `None` if no bucket decided.
    pub(in crate::proxy) decision: Option<&'a Decision>,
    /// The key of its bucket.
    pub(in crate::proxy) key: Option<Fingerprint>,
}

impl Admission {
    /// The limit that the access log names.
    pub(in crate::proxy) fn logged<'r>(&self, route: &'r Route) -> LoggedLimit<'r, '_> {
        let record = self.logged_record(route);
        let decided = record.and_then(|record| self.decision_of(record));
        let named = |record: &LimitRecord| route.limit(record.limit).name(self.charge_of(record));
        LoggedLimit {
            limit: record.map(|record| route.limit(record.limit)),
            name: record.map(named),
            word: record.map_or(LimitDecision::Allowed, |record| record.word),
            decision: decided.map(|(_, decision)| decision),
            key: decided.map(|(charge, _)| charge.key),
        }
    }

    /// The limit that refuses or delays the request, or has another effect; one in shadow that tags
    /// only if no other has.
    fn logged_record(&self, route: &Route) -> Option<&LimitRecord> {
        if self.is_refused() {
            return self.deciding();
        }
        if let Some((delaying, _)) = self.delaying() {
            return Some(delaying);
        }
        if self.records.iter().all(LimitRecord::is_plain) {
            return self.deciding();
        }
        let find =
            |is_meant: &dyn Fn(&LimitRecord) -> bool| self.records.iter().find(|one| is_meant(one));
        let longest_wait = self.acquired.longest_wait();
        let is_enforced = |one: &LimitRecord| self.enforcement_of(one) == Enforcement::Enforced;
        find(&|one| one.place.is_some() && Some(one.limit) == longest_wait)
            .or_else(|| find(&|one| one.word == LimitDecision::Routed))
            .or_else(|| find(&|one| one.word == LimitDecision::Overflowed && is_enforced(one)))
            .or_else(|| find(&|one| one.word == LimitDecision::Tagged))
            .or_else(|| find(&|one| one.word == LimitDecision::Shadowed && one.place.is_some()))
            .or_else(|| find(&|one| one.word == LimitDecision::Shadowed && route.is_tag(one.limit)))
            .or_else(|| self.deciding())
    }
}
