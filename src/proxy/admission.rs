//! Admission: all limits of a route decide at one instant, and charge the request all together or
//! not at all.

pub(super) mod acquired_permits;
pub(super) mod applicability;
mod claims;
mod context;
pub(super) mod delay;
pub(super) mod jitter;
mod logged;
pub(super) mod mode;
pub(super) mod permit_queue;
pub(super) mod priority;
pub(super) mod settle;
pub(super) mod tag;

use std::num::NonZero;
use std::time::Duration;

use smallvec::SmallVec;

use super::body::ResponseBody;
use super::ruleset::{Limit, Overflow, Route};
use super::shadow_clients::ShadowOutcome;
use crate::clock::Timestamp;
use crate::http::headers::Headers;
use crate::http::message::Response;
use crate::limiter::{Algorithm, Decision, Fingerprint, Outcome};
use crate::proxy::answers::limit_headers::{self, AppliedPolicy, HeaderStyles};
use crate::proxy::answers::rejection::{RefusalReason, RefusedRequest};
use crate::rules::Head;
use crate::store::{ChargeResult, Payer, PolicyCharge, Undecided};
use crate::telemetry::metrics::LimitDecision;
use acquired_permits::AcquiredPermits;
pub(super) use context::{AdmissionInputs, admit_in_memory};
pub(super) use logged::LoggedLimit;
use mode::Enforcement;
use permit_queue::Pending;
use settle::UnsettledCharge;

/// The decisions of a route's limits on one request; empty before they decide.
#[derive(Debug, Default)]
pub(super) struct Admission {
    /// The decisions, and what the request holds until it ends.
    pub(super) result: ChargeResult,
    /// The limit that refuses because the request lacks its key.
    keyless: Option<u16>,
    /// Decisions without a charge, for the metrics.
    uncharged: SmallVec<[(u16, LimitDecision); 1]>,
    /// The random addition to `Retry-After` of a refused request.
    jitter: Duration,
    /// Permits that the request waited for, returned when it ends.
    acquired: AcquiredPermits,
    /// Charges that the response settles.
    reserved_charges: Vec<UnsettledCharge>,
    now: Timestamp,
    /// The end of the first doubt in the request's refusal, and the next pause until then.
    pause: Option<(Timestamp, Duration)>,
    /// True if a shadowed limit lacked its key or cost; only a dry run reads this.
    pub(super) is_shadowed: bool,
}

impl Admission {
    /// The limit whose decision became the verdict, if any limit applied.
    pub(super) fn deciding<'r>(&self, route: &'r Route) -> Option<&'r Limit> {
        let number = match self.keyless {
            Some(number) => number,
            None => self.binding().get(self.result.verdict.deciding)?.id.limit,
        };
        Some(route.limit(number))
    }

    /// The limit that refuses the request, if any.
    pub(super) fn refusing<'r>(&self, route: &'r Route) -> Option<&'r Limit> {
        self.deciding(route).filter(|_| self.is_refused())
    }

    /// True if the request is refused because its key is banned.
    pub(super) fn is_ban(&self) -> bool {
        self.keyless.is_none() && self.result.verdict.is_ban()
    }

    /// Moves the decisions on to `now`, because the request has waited since.
    pub(super) fn answered_at(&mut self, now: Timestamp) {
        self.now = now;
    }

    /// Counts and keeps the decision of the store.
    pub(super) fn conclude(&mut self, inputs: &AdmissionInputs<'_>) {
        let route = inputs.route;
        let is_refused = self.is_refused();
        for (number, decision) in self.uncharged.drain(..) {
            // A request that is refused stays so if a policy in shadow is enforced.
            if !is_refused || decision != LimitDecision::Shadowed {
                route.limit(number).metrics.record(decision);
            }
        }
        self.now = inputs.now;
        self.jitter = self.jitter(inputs);
        let reservations = self.result.reservations.drain(..);
        let reserved = reservations.map(|(number, one)| UnsettledCharge::new(number, one));
        self.reserved_charges.extend(reserved);
        if is_refused {
            self.acquired.give_back();
        }
        self.count(route);
    }

    /// Keeps the decision of a charge that was pending, unless it is in doubt.
    ///
    /// # Errors
    /// A limit refuses because its store does not answer.
    pub(super) fn conclude_pending(
        &mut self,
        decided: Result<(), Undecided>,
        inputs: &AdmissionInputs<'_>,
    ) -> Result<Option<Pending>, Undecided> {
        if let Some(doubt) = self.doubt(inputs.now) {
            return Ok(Some(doubt));
        }
        for number in self.result.without_store.drain(..) {
            let metrics = &inputs.route.limit(number).metrics;
            metrics.record(LimitDecision::Error);
        }
        if decided.is_ok() {
            self.conclude(inputs);
        } else {
            self.acquired.give_back();
        }
        decided.map(|()| None)
    }

    /// The jitter of a refusal, by the policy that decides.
    fn jitter(&self, inputs: &AdmissionInputs<'_>) -> Duration {
        let result = &self.result;
        match result.charges.get(result.verdict.deciding) {
            Some(charge) if !result.verdict.is_admitted() => {
                let most = inputs.route.limit(charge.id.limit).policy.retry_after_jitter;
                jitter::of(most, inputs.secret, charge.key, inputs.now)
            }
            _ => Duration::ZERO,
        }
    }

    fn binding(&self) -> &[PolicyCharge] {
        &self.result.charges[..self.result.verdict.enforced()]
    }

    /// The end of the longest delay of an admitted request.
    pub(super) fn delayed_until(&self) -> Option<Timestamp> {
        self.result.verdict.decisions[self.result.verdict.delaying()?].delayed_until()
    }

    /// The limit with the longest delay of an admitted request, and its decision.
    pub(super) fn delaying<'r>(&self, route: &'r Route) -> Option<(&'r Limit, &Decision)> {
        self.decisions(route).nth(self.result.verdict.delaying()?)
    }

    /// All limits that delay the request, and their decisions.
    pub(super) fn delays<'r>(
        &self,
        route: &'r Route,
    ) -> impl Iterator<Item = (u16, &'r Limit, &Decision)> {
        let binding = self.binding().iter().zip(self.decisions(route));
        let delays = |(_, decision): &(_, &Decision)| decision.delayed_until().is_some();
        binding
            .filter(move |(_, said)| delays(said))
            .map(|(charge, (limit, decision))| (charge.id.limit, limit, decision))
    }

    /// The limits that admit the request at a lower priority, and their overflow buckets.
    pub(super) fn lowered<'r>(
        &self,
        route: &'r Route,
    ) -> impl Iterator<Item = (&'r Limit, &'r Overflow)> {
        let binding = match self.is_refused() {
            true => &[],
            false => self.binding(),
        };
        binding.iter().filter_map(|PolicyCharge { id, .. }| {
            let limit = route.limit(id.limit);
            Some((limit, limit.overflow(*id)?))
        })
    }

    /// The limits whose granted units pay the request.
    pub(super) fn granted<'r>(&self, route: &'r Route) -> impl Iterator<Item = &'r Limit> {
        let admitted = !self.is_refused();
        let paid = move |(charge, decision): &(&PolicyCharge, &Decision)| {
            admitted && charge.id.payer == Payer::Grant && decision.is_admitted()
        };
        let charges = self.result.charges.iter();
        let charges = charges.zip(&self.result.verdict.decisions).filter(paid);
        charges.map(|(charge, _)| route.limit(charge.id.limit))
    }

    /// The shadowed limits that would have refused or delayed the request.
    pub(super) fn shadowing<'r>(&self, route: &'r Route) -> impl Iterator<Item = &'r Limit> {
        self.watching(route)
            .filter(|(_, decision)| decision.outcome != Outcome::Admit)
            .map(|(limit, _)| limit)
    }

    /// The shadowed limits that apply, and their decisions.
    pub(super) fn watching<'r>(
        &self,
        route: &'r Route,
    ) -> impl Iterator<Item = (&'r Limit, &Decision)> {
        self.decisions(route).skip(self.result.verdict.enforced())
    }

    pub(super) fn is_refused(&self) -> bool {
        self.keyless.is_some() || !self.result.verdict.is_admitted()
    }

    /// The deciding bucket of the limit with this number, its decision, and its effect; `None` if
    /// it has none.
    pub(super) fn decision_of(
        &self,
        number: u16,
    ) -> Option<(&PolicyCharge, &Decision, Enforcement)> {
        let mut charges = self.result.charges.iter();
        let place = charges.position(|charge| charge.id.limit == number)?;
        let decision = self.result.verdict.decisions.get(place)?;
        Some((&self.result.charges[place], decision, self.enforcement(place)))
    }

    /// The effect of the decision at this place.
    fn enforcement(&self, place: usize) -> Enforcement {
        match place < self.result.verdict.enforced() {
            true => Enforcement::Enforced,
            false => Enforcement::Shadowed,
        }
    }

    /// Turns `response` into the answer of the limit that refuses, if any.
    pub(super) fn refuse(
        &self,
        route: &Route,
        styles: &HeaderStyles,
        head: &Head<'_>,
        response: &mut Response<ResponseBody>,
    ) {
        let Some(limit) = self.refusing(route) else {
            return;
        };
        let enforced = self.result.verdict.enforced();
        let refusing = self.decisions(route).take(enforced);
        let refusing = refusing.filter(|(_, decision)| !decision.is_admitted());
        let keyless = self.keyless.map(|number| route.limit(number));
        let violated: SmallVec<[&str; 4]> = refusing
            .map(|(limit, _)| limit)
            .chain(keyless)
            .filter(|limit| limit.policy.is_disclosed())
            .map(|limit| limit.policy.quota.advertised.name())
            .collect();
        let quota = match self.binding().get(self.result.verdict.deciding) {
            Some(charge) => limit.chosen(charge.id),
            None => &limit.policy.quota,
        };
        let retry_at = match self.decision().map(|decision| decision.outcome) {
            Some(Outcome::Refuse { retry_at }) => {
                retry_at.map(|retry_at| retry_at.saturating_add(self.jitter))
            }
            _ => None,
        };
        let refused = RefusedRequest {
            head,
            route: &route.name,
            violated: &violated,
            reason: match self.keyless.and_then(|_| limit.spec.descriptor.fault(head)) {
                Some(fault) => RefusalReason::Key(fault),
                None if self.is_ban() => RefusalReason::Banned,
                None => RefusalReason::UsedUp,
            },
            retry_after: retry_at.map(|at| limit_headers::retry_after(at, self.now)),
        };
        if limit.policy.action.is_decoy() {
            let answers = route.learned_responses.as_deref();
            return quota.rejection.write_decoy(&refused, answers, response);
        }
        quota.rejection.write(&refused, response);
        if let Some(at) = retry_at {
            limit_headers::write_retry_after(styles, at, self.now, response.headers_mut());
        }
    }

    /// Writes the rate-limit fields of the limits that clients may know of. If the upstream refuses,
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
        let decisions = match self.jitter.is_zero() {
            true => &self.result.verdict.decisions,
            false => {
                let all = binding.iter().zip(&self.result.verdict.decisions);
                let told_by = |(charge, decision): (&PolicyCharge, &Decision)| {
                    let quota = route.limit(charge.id.limit).chosen(charge.id);
                    self.told(quota.algorithm(), decision)
                };
                told = all.map(told_by).collect();
                &told
            }
        };
        let applied = binding
            .iter()
            .zip(decisions)
            .filter_map(|(charge, decision)| {
                let limit = route.limit(charge.id.limit);
                let quota = limit.chosen(charge.id);
                limit.policy.is_disclosed().then(|| AppliedPolicy {
                    advertised: &quota.advertised,
                    algorithm: quota.algorithm(),
                    decision,
                })
            });
        let applied: SmallVec<[AppliedPolicy<'_>; 4]> = applied.collect();
        let deciding = match applied.len() == binding.len() {
            true => self.result.verdict.deciding,
            false => limit_headers::index_of_deciding(applied.iter()).unwrap_or_default(),
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
        let later = |at: Timestamp| at.saturating_add(self.jitter);
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

    /// A refused request is counted only by the limits that refuse it: the others charged nothing,
    /// and enforcing those in shadow would change nothing for it.
    fn count(&self, route: &Route) {
        if let Some(place) = self.keyless {
            route.limit(place).metrics.record(LimitDecision::Limited);
        }
        let admitted = self.result.verdict.is_admitted();
        let binding = self.result.verdict.enforced();
        for limit in self.granted(route) {
            limit.policy.steering.keys().metrics().granted();
        }
        for (place, (limit, decision)) in self.decisions(route).enumerate() {
            let id = self.result.charges[place].id;
            let overflows = limit.overflow(id).is_some();
            let wait = match decision.outcome {
                Outcome::Delay { until } => Some(until.since(self.now)),
                Outcome::Admit | Outcome::Refuse { .. } => self.acquired.waited(id.limit),
            };
            if place >= binding && admitted {
                self.record_shadow(place, limit, wait);
            }
            match (decision.outcome, wait) {
                (Outcome::Refuse { .. }, _) if place < binding => {
                    limit.metrics.record(LimitDecision::Limited);
                }
                _ if !admitted => {}
                (Outcome::Refuse { .. }, _) | (_, Some(_)) if place >= binding => {
                    limit.metrics.record(LimitDecision::Shadowed);
                }
                (_, Some(wait)) => {
                    limit.metrics.record(LimitDecision::Delayed);
                    if let Some(waits) = limit.policy.metrics.waits() {
                        waits.record(wait);
                    }
                    note_near(limit, decision);
                }
                _ if overflows => limit.metrics.record(LimitDecision::Overflowed),
                _ => {
                    limit.metrics.record(LimitDecision::Allowed);
                    note_near(limit, decision);
                }
            }
        }
    }

    /// The limits that apply with the keys of their buckets, their decisions, and their effect.
    pub(super) fn charged<'r>(
        &'r self,
        route: &'r Route,
    ) -> impl Iterator<Item = (&'r Limit, Fingerprint, &'r Decision, Enforcement)> {
        let charges = self.result.charges.iter().enumerate();
        let decided = charges.zip(self.decisions(route));
        decided.map(|((place, charge), (limit, decision))| {
            (limit, charge.key, decision, self.enforcement(place))
        })
    }

    /// Counts the client of a shadowed decision on a request that passes.
    fn record_shadow(&self, place: usize, limit: &Limit, wait: Option<Duration>) {
        let outcome = match (self.result.verdict.decisions[place].outcome, wait) {
            (Outcome::Refuse { .. }, _) | (_, Some(_)) => ShadowOutcome::Limited,
            _ => ShadowOutcome::Allowed,
        };
        let key = self.result.charges[place].key;
        limit.policy.shadow_clients.record(key, outcome);
    }

    /// The deciding limit's decision; `None` if no limit applied, or one refuses a request without
    /// its key.
    pub(super) fn decision(&self) -> Option<&Decision> {
        self.result.verdict.decision()
    }

    /// All limits that apply, and their decisions.
    pub(super) fn decisions<'r>(
        &self,
        route: &'r Route,
    ) -> impl Iterator<Item = (&'r Limit, &Decision)> {
        let charges = self.result.charges.iter();
        let limits = charges.map(|charge| route.limit(charge.id.limit));
        limits.zip(&self.result.verdict.decisions)
    }
}

/// Counts an admission that leaves at most 20 % of the quota.
pub(super) fn note_near(limit: &Limit, decision: &Decision) {
    if decision.is_near() {
        limit.policy.metrics.near();
    }
}
