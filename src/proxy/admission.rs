//! Asks every limit that a request meets, all at the same instant: all are charged, or none.

use std::num::NonZero;
use std::time::Duration;

use http::Response;
use http::header::HeaderMap;
use smallvec::SmallVec;

use super::body::ResponseBody;
use super::jitter;
use super::limit_headers::{self, Applied, Styles};
use super::line::Stood;
use super::meeting::{Chosen, Meeting};
use super::mode::Stance;
use super::overflow::{self, Charging};
use super::rejection::Refused;
use super::settle::{self, Answered, Due};
use super::snapshot::{Limit, Overflow, Route};
use super::taken::Taken;
use crate::clock::Timestamp;
use crate::limiter::{Algorithm, Decision, Outcome, Secret, Verdict};
use crate::rules::{Head, NoNumber};
use crate::store::{Charge, Settled, charge_reserving, charge_watched};
use crate::telemetry::metrics::LimitDecision;

/// What the limits of a route said of one request.
#[derive(Debug)]
pub(super) struct Admission {
    /// The limits that applied, one for each of the decisions: those that may refuse, and then those that watch.
    applied: SmallVec<[Met; 4]>,
    verdict: Verdict,
    /// A limit that refuses requests without its key, and was given none.
    keyless: Option<u16>,
    /// By how much later than it could the client is told to come back that is refused.
    jitter: Duration,
    /// What comes back when the request ends.
    _taken: Vec<Taken>,
    /// What it has waited for, which comes back as well.
    stood: Stood,
    /// What its response settles.
    dues: Vec<Due>,
    now: Timestamp,
}

/// Charges the request to all limits of its route, or to none, without waiting for any.
///
/// # Errors
/// When a limit that may refuse asks the request for its cost, and is told no number. Nothing is charged then.
pub(super) fn admit(
    route: &Route,
    secret: &Secret,
    head: &Head<'_>,
    now: Timestamp,
) -> Result<Admission, NoNumber> {
    let inquiry = Inquiry::new(route, secret, head, now)?;
    Ok(inquiry.decide(Stood::default()))
}

/// All that a request is asked by the limits of its route, at one instant.
pub(super) struct Inquiry<'r> {
    pub(super) route: &'r Route,
    pub(super) asked: Asked<'r>,
    /// How many of those that are asked, the first ones, may refuse.
    pub(super) binding: usize,
    keyless: Option<u16>,
    /// What is counted of limits that are not asked.
    noted: SmallVec<[(u16, LimitDecision); 1]>,
    secret: Secret,
    pub(super) now: Timestamp,
}

impl<'r> Inquiry<'r> {
    /// What this request meets.
    ///
    /// # Errors
    /// As [`admit`].
    pub(super) fn new(
        route: &'r Route,
        secret: &Secret,
        head: &Head<'_>,
        now: Timestamp,
    ) -> Result<Self, NoNumber> {
        let mut asked = Asked::default();
        let mut watching = Asked::default();
        let mut keyless = None;
        let mut noted = SmallVec::new();
        for (place, limit) in (0_u16..).zip(route.limits_of(head)) {
            match limit.meet(secret, head) {
                Meeting::Bucket(key, chosen) => {
                    let policy = limit.chosen(chosen);
                    let charge = |cost| Charge {
                        table: &policy.table,
                        key,
                        cost,
                        window_end: policy.window_end(head, now),
                    };
                    let stance = limit.policy.mode.stance(&limit.descriptor, head);
                    match (stance, limit.cost.of(head)) {
                        (Stance::Binds, cost) => asked.push((place, chosen), charge(cost?)),
                        (Stance::Watches, Ok(cost)) => watching.push((place, chosen), charge(cost)),
                        (Stance::Watches, Err(NoNumber)) => {
                            noted.push((place, LimitDecision::Shadowed));
                        }
                    }
                }
                Meeting::Elsewhere => {}
                Meeting::Exempt | Meeting::Skipped => noted.push((place, LimitDecision::Exempt)),
                Meeting::Keyless => match limit.policy.mode.stance(&limit.descriptor, head) {
                    Stance::Binds => keyless = keyless.or(Some(place)),
                    Stance::Watches => noted.push((place, LimitDecision::Shadowed)),
                },
            }
        }
        let binding = asked.charges.len();
        asked.append(watching);
        if keyless.is_some() {
            asked = Asked::default();
        }
        Ok(Inquiry {
            binding: binding.min(asked.charges.len()),
            route,
            asked,
            keyless,
            noted,
            secret: *secret,
            now,
        })
    }

    /// Whether one of the limits that may refuse has banned the key.
    pub(super) fn is_banned(&self) -> bool {
        !self
            .asked
            .bans(self.route, self.binding, self.now)
            .is_empty()
    }

    /// Charges all or none, for somebody who has these permits already.
    pub(super) fn decide(mut self, stood: Stood) -> Admission {
        let bans = self.asked.bans(self.route, self.binding, self.now);
        let (mut verdict, dues) = match bans.is_empty() {
            true => self.charge(charge_watched),
            false => (self.asked.banned(&bans, self.binding, self.now), Vec::new()),
        };
        self.asked.strike(self.route, &bans, &mut verdict, self.now);
        self.conclude(verdict, dues, stood)
    }

    /// Charges them together; with what the response is to settle.
    pub(super) fn charge(&mut self, last: Charging) -> (Verdict, Vec<Due>) {
        self.asked.charge(self.route, self.binding, self.now, last)
    }

    /// By how much later the client of a refused request is told to come back: by the policy that decides.
    fn jitter(&self, verdict: &Verdict) -> Duration {
        let mut asked = self.asked.applied.iter().zip(&self.asked.charges);
        match asked.nth(verdict.deciding) {
            Some((&(place, chosen), charge)) if !verdict.is_admitted() => {
                let policy = self.route.limits[usize::from(place)].chosen(chosen);
                jitter::of(
                    policy.retry_after_jitter,
                    &self.secret,
                    charge.key,
                    self.now,
                )
            }
            _ => Duration::ZERO,
        }
    }

    /// What was decided, and counts it.
    pub(super) fn conclude(self, verdict: Verdict, dues: Vec<Due>, stood: Stood) -> Admission {
        for &(place, decision) in &self.noted {
            self.route.limits[usize::from(place)]
                .metrics
                .record(decision);
        }
        let taken = self.asked.taken(self.route, &verdict);
        let mut admission = Admission {
            _taken: taken,
            dues,
            jitter: self.jitter(&verdict),
            verdict,
            stood,
            applied: self.asked.applied,
            keyless: self.keyless,
            now: self.now,
        };
        if admission.is_refused() {
            admission.stood.give_back();
        }
        admission.count(self.route);
        admission
    }
}

/// A place among those that are asked, and the end of the ban there.
type Ban = (usize, Timestamp);

/// A limit that applies: its place in the route's list, and which of its quotas.
pub(super) type Met = (u16, Chosen);

/// Limits that apply, and what they are asked.
#[derive(Clone, Default)]
pub(super) struct Asked<'r> {
    pub(super) applied: SmallVec<[Met; 4]>,
    pub(super) charges: SmallVec<[Charge<'r>; 4]>,
}

impl<'r> Asked<'r> {
    fn push(&mut self, met: Met, charge: Charge<'r>) {
        self.applied.push(met);
        self.charges.push(charge);
    }

    /// Who is banned by which of those that may refuse, and until when.
    fn bans(&self, route: &Route, binding: usize, now: Timestamp) -> SmallVec<[Ban; 1]> {
        let binding = self.applied[..binding]
            .iter()
            .zip(&self.charges)
            .enumerate();
        binding
            .filter_map(|(index, (&(place, _), charge))| {
                let penalties = route.limits[usize::from(place)].policy.penalties.as_ref()?;
                Some((index, penalties.banned_until(charge.key, now)?))
            })
            .collect()
    }

    /// What they say of a request of somebody who is banned: nothing is charged.
    fn banned(&self, bans: &[Ban], binding: usize, now: Timestamp) -> Verdict {
        let mut verdict = Verdict::default();
        for (index, charge) in self.charges.iter().enumerate() {
            let decision = charge.peek(now);
            match index < binding {
                true => verdict.push(decision),
                false => verdict.watch(decision),
            }
        }
        for &(index, until) in bans {
            verdict.refuse_until(index, until);
        }
        verdict
    }

    /// Counts the refusals of those who may ban for it, and are not about to.
    fn strike(&self, route: &Route, bans: &[Ban], verdict: &mut Verdict, now: Timestamp) {
        if verdict.is_admitted() {
            return;
        }
        for index in 0..verdict.binding() {
            let refuses = !verdict.decisions[index].is_admitted();
            if !refuses || bans.iter().any(|(banned, _)| *banned == index) {
                continue;
            }
            let (place, _) = self.applied[index];
            if let Some(penalties) = &route.limits[usize::from(place)].policy.penalties
                && let Some(until) = penalties.strike(self.charges[index].key, now)
            {
                verdict.refuse_until(index, until);
            }
        }
    }

    fn charge(
        &mut self,
        route: &'r Route,
        binding: usize,
        now: Timestamp,
        last: Charging,
    ) -> (Verdict, Vec<Due>) {
        let mut settled: SmallVec<[Settled<'r>; 2]> = SmallVec::new();
        for (index, &(place, chosen)) in self.applied.iter().enumerate() {
            let limit = &route.limits[usize::from(place)];
            if limit.settlement.is_some() {
                let table = &limit.chosen(chosen).table;
                let Charge { key, cost, .. } = self.charges[index];
                settled.push(Settled {
                    index,
                    table,
                    key,
                    cost,
                });
            }
        }
        if settled.is_empty() {
            return (
                overflow::charge(route, self, binding, now, last),
                Vec::new(),
            );
        }
        let (verdict, reserved) = charge_reserving(&settled, now, || {
            overflow::charge(route, self, binding, now, last)
        });
        let dues = reserved.into_iter().map(|(index, reservation)| Due {
            place: usize::from(self.applied[index].0),
            reservation,
        });
        (verdict, dues.collect())
    }

    /// Whether one of the first `binding` limits has a bucket after the one that is asked.
    pub(super) fn overflows(&self, route: &Route, binding: usize) -> bool {
        let mut limits = self.applied[..binding].iter();
        limits.any(|&(limit, chosen)| route.limits[usize::from(limit)].after(chosen).is_some())
    }

    /// Asks the next bucket of the limit at this place: whether there is one.
    pub(super) fn go_on(&mut self, route: &'r Route, place: usize) -> bool {
        let (limit, chosen) = self.applied[place];
        let limit = &route.limits[usize::from(limit)];
        let next = limit.after(chosen);
        if let Some(next) = next {
            self.applied[place].1 = next;
            self.charges[place].table = &limit.chosen(next).table;
        }
        next.is_some()
    }

    /// What gives back the units that were taken and do not come back with time.
    fn taken(&self, route: &Route, verdict: &Verdict) -> Vec<Taken> {
        if !verdict.is_admitted() {
            return Vec::new();
        }
        let all = self.applied.iter().zip(&self.charges);
        let made = all.zip(&verdict.decisions);
        let made = made.filter(|(_, decision)| decision.is_admitted());
        made.filter_map(|((&(place, chosen), charge), _)| {
            let policy = route.limits[usize::from(place)].chosen(chosen);
            Taken::of(policy, charge)
        })
        .collect()
    }

    fn append(&mut self, mut others: Self) {
        self.applied.append(&mut others.applied);
        self.charges.append(&mut others.charges);
    }
}

impl Admission {
    /// The limit that made the decision, if any applied.
    pub(super) fn deciding<'r>(&self, route: &'r Route) -> Option<&'r Limit> {
        let place = match self.keyless {
            Some(place) => place,
            None => self.binding().get(self.verdict.deciding)?.0,
        };
        Some(&route.limits[usize::from(place)])
    }

    /// The limit that refuses the request, if one does.
    pub(super) fn refusing<'r>(&self, route: &'r Route) -> Option<&'r Limit> {
        self.deciding(route).filter(|_| self.is_refused())
    }

    /// Settles what the head of the response can settle.
    pub(super) fn settle_by_head(&mut self, route: &Route, answered: Answered<'_>, now: Timestamp) {
        settle::by_head(&mut self.dues, &route.limits, answered, now);
    }

    /// Settles the rest by the bytes of its body.
    pub(super) fn settle_by_bytes(&mut self, route: &Route, bytes: u64, now: Timestamp) {
        settle::by_bytes(&mut self.dues, &route.limits, bytes, now);
    }

    /// Whether anything is still to be settled.
    pub(super) fn has_dues(&self) -> bool {
        !self.dues.is_empty()
    }

    /// Says from here on what is so at `now`, a while after it was decided.
    pub(super) fn answered_at(&mut self, now: Timestamp) {
        self.now = now;
    }

    /// The limits that may refuse, of those that applied.
    fn binding(&self) -> &[Met] {
        &self.applied[..self.verdict.binding()]
    }

    /// When an admitted request goes on that has to wait.
    pub(super) fn delayed_until(&self) -> Option<Timestamp> {
        self.verdict.decisions[self.verdict.delaying()?].delayed_until()
    }

    /// The limit for which a request waits longest that is admitted and has to wait, with what it said.
    pub(super) fn delaying<'r>(&self, route: &'r Route) -> Option<(&'r Limit, &Decision)> {
        self.decisions(route).nth(self.verdict.delaying()?)
    }

    /// All limits that delay the request, with what they said.
    pub(super) fn delays<'r>(
        &self,
        route: &'r Route,
    ) -> impl Iterator<Item = (&'r Limit, &Decision)> {
        let binding = self.decisions(route).take(self.verdict.binding());
        binding.filter(|(_, decision)| decision.delayed_until().is_some())
    }

    /// The limits that admit the request at a lower priority, and how.
    pub(super) fn lowered<'r>(
        &self,
        route: &'r Route,
    ) -> impl Iterator<Item = (&'r Limit, &'r Overflow)> {
        let binding = match self.is_refused() {
            true => &[],
            false => self.binding(),
        };
        binding.iter().filter_map(|&(place, chosen)| {
            let limit = &route.limits[usize::from(place)];
            Some((limit, limit.overflow(chosen)?))
        })
    }

    /// The limits that would have refused or delayed the request if they did not only watch.
    pub(super) fn shadowing<'r>(&self, route: &'r Route) -> impl Iterator<Item = &'r Limit> {
        self.watching(route)
            .filter(|(_, decision)| decision.outcome != Outcome::Admit)
            .map(|(limit, _)| limit)
    }

    /// The limits that applied and only watch, with what they said.
    pub(super) fn watching<'r>(
        &self,
        route: &'r Route,
    ) -> impl Iterator<Item = (&'r Limit, &Decision)> {
        self.decisions(route).skip(self.verdict.binding())
    }

    /// Whether a limit refuses the request.
    pub(super) fn is_refused(&self) -> bool {
        self.keyless.is_some() || !self.verdict.is_admitted()
    }

    /// What the access log says: a policy, and what it decided.
    pub(super) fn logged<'r>(&self, route: &'r Route) -> (&'r str, &'static str) {
        let (limit, decision) = if self.is_refused() {
            (self.deciding(route), LimitDecision::Limited)
        } else if let Some((limit, _)) = self.delaying(route) {
            (Some(limit), LimitDecision::Delayed)
        } else if let Some(limit) = self.stood.longest(route) {
            (Some(limit), LimitDecision::Delayed)
        } else if let Some((limit, _)) = self.lowered(route).next() {
            (Some(limit), LimitDecision::Overflowed)
        } else if let Some(limit) = self.shadowing(route).next() {
            (Some(limit), LimitDecision::Shadowed)
        } else {
            (self.deciding(route), LimitDecision::Allowed)
        };
        (
            limit.map_or("", |limit| &*limit.policy.name),
            decision.as_str(),
        )
    }

    /// The answer of the limit that refuses, if one does.
    pub(super) fn refusal(
        &self,
        route: &Route,
        styles: &Styles,
        head: &Head<'_>,
    ) -> Option<Response<ResponseBody>> {
        let limit = self.refusing(route)?;
        let violated: SmallVec<[&str; 4]> = self
            .decisions(route)
            .take(self.verdict.binding())
            .filter(|(limit, decision)| !decision.is_admitted() && limit.policy.action.is_told())
            .map(|(limit, _)| &*limit.policy.name)
            .collect();
        let policy = match self.binding().get(self.verdict.deciding) {
            Some((_, chosen)) => limit.chosen(*chosen),
            None => &limit.policy,
        };
        let retry_at = match self.verdict.decision().map(|decision| decision.outcome) {
            Some(Outcome::Refuse { retry_at }) => {
                retry_at.map(|retry_at| retry_at.saturating_add(self.jitter))
            }
            _ => None,
        };
        let refused = Refused {
            head,
            route: &route.name,
            violated: &violated,
            retry_after: retry_at.map(|at| limit_headers::retry_after(at, self.now)),
        };
        if !policy.action.is_told() {
            return Some(policy.rejection.decoy(&refused));
        }
        let mut response = policy.rejection.response(&refused);
        if let Some(at) = retry_at {
            limit_headers::write_retry_after(styles, at, self.now, response.headers_mut());
        }
        Some(response)
    }

    /// Tells the client where it stands with the limits that it may know of.
    pub(super) fn write_headers(&self, route: &Route, styles: &Styles, headers: &mut HeaderMap) {
        let binding = self.binding();
        let policies = binding
            .iter()
            .map(|&(place, chosen)| route.limits[usize::from(place)].chosen(chosen));
        let told: SmallVec<[Decision; 4]>;
        let decisions = match self.jitter.is_zero() {
            true => &self.verdict.decisions,
            false => {
                let all = policies.clone().zip(&self.verdict.decisions);
                told = all
                    .map(|(policy, decision)| self.told(policy.table.algorithm(), decision))
                    .collect();
                &told
            }
        };
        let policies = policies.zip(decisions);
        let applied: SmallVec<[Applied<'_>; 4]> = policies
            .filter(|(policy, _)| policy.action.is_told())
            .map(|(policy, decision)| Applied {
                facts: &policy.facts,
                algorithm: policy.table.algorithm(),
                decision,
            })
            .collect();
        let deciding = match applied.len() == binding.len() {
            true => self.verdict.deciding,
            false => tightest(&applied),
        };
        limit_headers::write(styles, &applied, deciding, self.now, headers);
    }

    /// What a client is told of a decision: a refusal to last longer than it does.
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

    /// A refused request is counted only where it was refused: the others charged nothing.
    fn count(&self, route: &Route) {
        if let Some(place) = self.keyless {
            route.limits[usize::from(place)]
                .metrics
                .record(LimitDecision::Limited);
        }
        let admitted = self.verdict.is_admitted();
        let binding = self.verdict.binding();
        for (place, (limit, decision)) in self.decisions(route).enumerate() {
            let (met, chosen) = self.applied[place];
            let overflows = limit.overflow(chosen).is_some();
            let wait = match decision.outcome {
                Outcome::Delay { until } => Some(until.since(self.now)),
                Outcome::Admit | Outcome::Refuse { .. } => self.stood.waited(met),
            };
            match (decision.outcome, wait) {
                (Outcome::Refuse { .. }, _) if place >= binding => {
                    limit.metrics.record(LimitDecision::Shadowed);
                }
                (Outcome::Refuse { .. }, _) => limit.metrics.record(LimitDecision::Limited),
                _ if !admitted => {}
                (_, Some(_)) if place >= binding => {
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

    /// What the deciding limit said; `None` where none applied, or one refuses for want of a key.
    pub(super) fn decision(&self) -> Option<&Decision> {
        self.verdict.decision()
    }

    /// Every limit that applied, with what it said.
    pub(super) fn decisions<'r>(
        &self,
        route: &'r Route,
    ) -> impl Iterator<Item = (&'r Limit, &Decision)> {
        let limits = self
            .applied
            .iter()
            .map(|&(place, _)| &route.limits[usize::from(place)]);
        limits.zip(&self.verdict.decisions)
    }
}

/// The place of the one that decides, were they all.
fn tightest(applied: &[Applied<'_>]) -> usize {
    let mut verdict = Verdict::default();
    for one in applied {
        verdict.push(*one.decision);
    }
    verdict.deciding
}

/// Counts an admission that leaves at most 20 % of the quota.
pub(super) fn note_near(limit: &Limit, decision: &Decision) {
    if u64::from(decision.remaining) * 5 <= u64::from(decision.capacity) {
        limit.policy.metrics.near();
    }
}
