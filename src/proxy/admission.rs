//! Admission: all limits of a route decide at one instant, and charge the request all together or
//! not at all.

pub(super) mod acquired_permits;
pub(super) mod applicability;
mod context;
pub(super) mod delay;
pub(super) mod early;
pub(super) mod jitter;
mod logged;
pub(super) mod mode;
pub(super) mod permit_queue;
mod plain;
pub(super) mod record;
pub(super) mod settle;
mod soft_limit;
pub(super) mod tag;
mod unit_queue;

use std::num::NonZero;
use std::time::Duration;

use smallvec::SmallVec;

use super::body::ResponseBody;
use super::ruleset::{Limit, Overflow, Route};
use crate::clock::Timestamp;
use crate::http::headers::Headers;
use crate::http::message::Response;
use crate::limiter::{Algorithm, Decision, Outcome};
use crate::proxy::answers::action::Rerouting;
use crate::proxy::answers::limit_headers::{self, AppliedPolicy, HeaderStyles};
use crate::proxy::answers::rejection::{RefusalReason, RefusedRequest};
use crate::rules::Head;
use crate::store::{ChargeId, ChargeResult, DecidedBucket, Payer, Role};
use crate::telemetry::metrics::LimitDecision;
use acquired_permits::AcquiredPermits;
pub(super) use context::{AdmissionInputs, Peeked, admit_in_memory};
use mode::Enforcement;
pub(super) use record::LimitRecord;
use settle::UnsettledCharge;

/// The decisions of a route's limits on one request; empty before they decide.
#[derive(Debug, Default)]
pub(super) struct Admission {
    /// The decisions, and what the request holds until it ends.
    pub(super) result: ChargeResult,
    /// A record of each limit that applied, or exempted the request. Those without a bucket come first,
    /// then the others, then those whose store does not answer, and last those that tag.
    pub(super) records: SmallVec<[LimitRecord; 4]>,
    /// The limit that refuses because the request lacks its key, and its override.
    keyless: Option<(u16, Option<u32>)>,
    /// The random addition to `Retry-After` of a refused request, in microseconds.
    jitter: u64,
    /// Permits that the request waited for, returned when it ends.
    acquired: AcquiredPermits,
    /// Charges that the response settles.
    reserved_charges: Vec<UnsettledCharge>,
    /// The place of the client's label, if clients have one.
    pub(super) client_label: Option<u8>,
    now: Timestamp,
    /// The end of the first doubt in the request's refusal, and the next pause until then.
    pause: Option<(Timestamp, Duration)>,
}

impl Admission {
    /// The limits that have a decision of a bucket, enforced ones first, without those that tag.
    pub(super) fn decided(
        &self,
    ) -> impl Iterator<Item = (&LimitRecord, &DecidedBucket, &Decision)> {
        let records = self.records.iter();
        let decided = records.filter_map(|record| {
            let (charge, decision) = self.decision_of(record)?;
            Some((record, charge, decision))
        });
        decided.filter(|(_, charge, _)| !charge.role.is_tag())
    }

    /// The deciding bucket of a limit and its decision, if it has one.
    pub(super) fn decision_of(&self, record: &LimitRecord) -> Option<(&DecidedBucket, &Decision)> {
        let place = usize::from(record.place?);
        let decisions = &self.result.verdict.decisions;
        Some((self.result.buckets.get(place)?, decisions.get(place)?))
    }

    /// The effect of a limit's decision, if a bucket decided.
    pub(super) fn enforcement_of(&self, record: &LimitRecord) -> Enforcement {
        match self.decision_of(record).map(|(charge, _)| charge.role) {
            Some(Role::Refuses | Role::Tags) => Enforcement::Enforced,
            Some(Role::Shadows | Role::ShadowTags) | None => Enforcement::Shadowed,
        }
    }

    /// The limit whose decision became the verdict, if any enforced limit applied.
    pub(super) fn deciding(&self) -> Option<&LimitRecord> {
        let verdict = &self.result.verdict;
        let has_decision = self.keyless.is_some() || verdict.enforced() > 0;
        let mut records = self.records.iter().filter(|_| has_decision);
        records.find(|record| match self.keyless {
            Some((number, _)) => record.limit == number,
            None => record.place.map(usize::from) == Some(verdict.deciding),
        })
    }

    /// The limit that refuses the request, and its charge, if any does.
    pub(super) fn refusing<'r>(&self, route: &'r Route) -> Option<(&'r Limit, ChargeId)> {
        self.is_refused().then(|| self.deciding_charge(route))?
    }

    /// The limit whose decision became the verdict, and its charge.
    pub(super) fn deciding_charge<'r>(&self, route: &'r Route) -> Option<(&'r Limit, ChargeId)> {
        let record = self.deciding()?;
        Some((route.limit(record.limit), self.charge_of(record)))
    }

    /// The charge that a limit has decided on; without a key or a decision, that of its quota.
    fn charge_of(&self, record: &LimitRecord) -> ChargeId {
        match (self.keyless, self.decision_of(record)) {
            (Some((number, place)), _) if number == record.limit => ChargeId::new(number, place),
            (_, Some((charge, _))) => charge.id,
            (_, None) => ChargeId::new(record.limit, None),
        }
    }

    pub(super) fn is_refused(&self) -> bool {
        self.keyless.is_some() || !self.result.verdict.is_admitted()
    }

    /// True if the request is refused because its key is banned.
    pub(super) fn is_ban(&self) -> bool {
        self.keyless.is_none() && self.result.verdict.is_ban()
    }

    /// Moves the decisions on to `now`, because the request has waited since.
    pub(super) fn answered_at(&mut self, now: Timestamp) {
        self.now = now;
    }

    /// The deciding buckets of enforced limits.
    fn binding(&self) -> &[DecidedBucket] {
        &self.result.buckets[..self.result.verdict.enforced()]
    }

    /// The limit with the longest delay of an admitted request, and its decision.
    pub(super) fn delaying(&self) -> Option<(&LimitRecord, &Decision)> {
        let place = self.result.verdict.delaying()?;
        let mut decided = self.decided();
        let (record, _, decision) =
            decided.find(|(record, ..)| record.place.map(usize::from) == Some(place))?;
        Some((record, decision))
    }

    /// The end of the longest delay of an admitted request.
    pub(super) fn delayed_until(&self) -> Option<Timestamp> {
        let place = self.result.verdict.delaying()?;
        self.result.verdict.decisions[place].delayed_until()
    }

    /// The limits that admit the request at a lower priority, and their overflow buckets.
    pub(super) fn lowered<'r>(
        &self,
        route: &'r Route,
    ) -> impl Iterator<Item = (&'r Limit, &'r Overflow)> {
        let binding = if self.is_refused() {
            &[]
        } else {
            self.binding()
        };
        binding.iter().filter_map(|DecidedBucket { id, .. }| {
            let limit = route.limit(id.limit);
            Some((limit, limit.overflow(*id)?))
        })
    }

    /// Writes the tags and the priority of an admitted request for the upstream.
    pub(super) fn tell_upstream(&self, route: &Route, headers: &mut Headers) {
        let tagged = self.records.iter();
        for record in tagged.filter(|record| record.word == LimitDecision::Tagged) {
            let action = route.limit(record.limit).action(self.charge_of(record));
            if let Some(tag) = action.tag() {
                headers.append(&tag.name, tag.value.clone());
            }
        }
        for (name, value) in self
            .lowered(route)
            .flat_map(|(_, overflow)| &overflow.fields)
        {
            headers.insert(name, value.clone());
        }
    }

    /// The upstream to which a limit routes an admitted request: the first limit that does.
    #[inline]
    pub(super) fn routed<'r>(&self, route: &'r Route) -> Option<&'r Rerouting> {
        if !route.may_route {
            return None;
        }
        let records = self.records.iter();
        let routed = records.filter(|record| record.word == LimitDecision::Routed);
        let first = routed.min_by_key(|record| record.limit)?;
        let limit = route.limit(first.limit);
        limit.action(self.charge_of(first)).rerouting()
    }

    /// The limits whose granted units pay the request.
    pub(super) fn granted<'r>(&self, route: &'r Route) -> impl Iterator<Item = &'r Limit> {
        let paid = self.decided().filter(|(_, charge, decision)| {
            !self.is_refused() && charge.id.payer == Payer::Grant && decision.is_admitted()
        });
        paid.map(|(record, ..)| route.limit(record.limit))
    }

    /// The deciding limit's decision; `None` if no limit applied, or one refuses a request without
    /// its key.
    pub(super) fn decision(&self) -> Option<&Decision> {
        self.result.verdict.decision()
    }

    /// Turns `response` into the answer of the limit that refuses.
    pub(super) fn refuse(
        &self,
        limit: &Limit,
        id: ChargeId,
        route: &Route,
        styles: &HeaderStyles,
        head: &Head<'_>,
        response: &mut Response<ResponseBody>,
    ) {
        let mut violated: SmallVec<[&str; 4]> = SmallVec::new();
        for record in &self.records {
            let limit = route.limit(record.limit);
            if record.word == LimitDecision::Limited && limit.is_disclosed(self.charge_of(record)) {
                violated.push(limit.policy.quota.advertised.name());
            }
        }
        let quota = match self.binding().get(self.result.verdict.deciding) {
            Some(charge) => limit.chosen(charge.id),
            None => &limit.policy.quota,
        };
        let decision = self.decision();
        let stated = decision.and_then(|decision| quota.stated_text(decision));
        let retry_at = decision.and_then(Decision::retry_at);
        let retry_at = retry_at.map(|at| at.saturating_add_micros(self.jitter));
        let refused = RefusedRequest {
            head,
            route: &route.name,
            violated: &violated,
            quota: stated.as_deref(),
            reason: match self.keyless.and_then(|_| limit.fault(head)) {
                Some(fault) => RefusalReason::Key(fault),
                None if self.is_ban() => RefusalReason::Banned,
                None => too_few(decision, limit, head).unwrap_or(RefusalReason::UsedUp),
            },
            retry_after: retry_at.map(|at| limit_headers::retry_after(at, self.now)),
        };
        let rejection = limit.rejection(id, quota);
        if limit.action(id).is_decoy() {
            let answers = route.learned_responses.as_deref();
            return rejection.write_decoy(&refused, answers, response);
        }
        let is_grpc = rejection.write(&refused, response);
        if let Some(at) = retry_at {
            let headers = response.headers_mut();
            limit_headers::write_retry_after(styles, at, self.now, headers);
            if is_grpc {
                limit_headers::write_pushback(at, self.now, headers);
            }
        }
    }

    /// Writes the rate-limit fields of the limits that clients may know of, among them those that route. If the upstream refuses,
    /// they only join its list: alone they would announce more than the upstream does.
    pub(super) fn write_headers(
        &self,
        route: &Route,
        styles: &HeaderStyles,
        upstream_refuses: bool,
        headers: &mut Headers,
    ) {
        let binding = self.binding();
        let told: SmallVec<[Decision; 4]>;
        let decisions = if self.jitter == 0 {
            &self.result.verdict.decisions
        } else {
            let all = binding.iter().zip(&self.result.verdict.decisions);
            let told_by = |(charge, decision): (&DecidedBucket, &Decision)| {
                let quota = route.limit(charge.id.limit).chosen(charge.id);
                self.told(quota.algorithm(), decision)
            };
            told = all.map(told_by).collect();
            &told
        };
        let mut applied: SmallVec<[AppliedPolicy<'_>; 4]> = SmallVec::new();
        let all = self.result.buckets.iter().zip(decisions);
        for (place, (charge, decision)) in all.enumerate() {
            let limit = route.limit(charge.id.limit);
            let routes = charge.role == Role::Tags && limit.action(charge.id).rerouting().is_some();
            if (place < binding.len() || routes) && limit.is_disclosed(charge.id) {
                applied.push(limit.chosen(charge.id).applied(decision));
            }
        }
        let deciding = if applied.len() == binding.len() && !route.may_route {
            self.result.verdict.deciding
        } else {
            limit_headers::index_of_deciding(applied.iter()).unwrap_or_default()
        };
        if upstream_refuses {
            limit_headers::join(styles, &applied, self.now, headers);
        } else {
            limit_headers::write(styles, &applied, deciding, self.now, headers);
        }
    }

    /// The decision as clients see it: a refusal lasts longer by the jitter.
    fn told(&self, algorithm: &Algorithm, decision: &Decision) -> Decision {
        let Outcome::Refuse { retry_at } = decision.outcome else {
            return *decision;
        };
        let later = |at: Timestamp| at.saturating_add_micros(self.jitter);
        let more_at = algorithm.more_at(decision, self.now).map(later);
        Decision {
            outcome: Outcome::Refuse {
                retry_at: retry_at.map(later),
            },
            reset: later(decision.reset),
            more_at: more_at.and_then(|at| NonZero::new(at.as_micros())),
            ..*decision
        }
    }
}

/// The reason of a refusal if units remain, but fewer than the request costs.
fn too_few<'a>(
    decision: Option<&'a Decision>,
    limit: &Limit,
    head: &Head<'_>,
) -> Option<RefusalReason<'a>> {
    let decision = decision.filter(|decision| decision.remaining > 0)?;
    let needed = limit.spec.cost.of(head).ok()?;
    (u64::from(needed) > decision.remaining).then_some(RefusalReason::TooFew(decision, needed))
}

/// Counts an admission that leaves at most 20 % of the quota.
fn note_near(limit: &Limit, decision: &Decision) {
    if decision.is_near() {
        limit.policy.metrics.near.increment();
    }
}
