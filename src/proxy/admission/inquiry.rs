//! What a request meets, and how that is decided at one instant.

use std::time::Duration;

use smallvec::SmallVec;

use super::Admission;
use super::asked::Asked;
use crate::clock::Timestamp;
use crate::limiter::{Secret, Verdict};
use crate::proxy::jitter;
use crate::proxy::line::Stood;
use crate::proxy::meeting::Meeting;
use crate::proxy::mode::Stance;
use crate::proxy::overflow::Charging;
use crate::proxy::settle::Due;
use crate::proxy::snapshot::Route;
use crate::rules::{Head, NoNumber};
use crate::store::{Charge, charge_watched};
use crate::telemetry::metrics::LimitDecision;

/// All that a request is asked by the limits of its route, at one instant.
pub(in crate::proxy) struct Inquiry<'r> {
    pub(in crate::proxy) route: &'r Route,
    pub(in crate::proxy) asked: Asked<'r>,
    /// How many of those that are asked, the first ones, may refuse.
    pub(in crate::proxy) binding: usize,
    keyless: Option<u16>,
    /// What is counted of limits that are not asked.
    noted: SmallVec<[(u16, LimitDecision); 1]>,
    secret: Secret,
    pub(in crate::proxy) now: Timestamp,
}

impl<'r> Inquiry<'r> {
    /// What this request meets.
    ///
    /// # Errors
    /// As [`admit`](super::admit).
    pub(in crate::proxy) fn new(
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
    pub(in crate::proxy) fn is_banned(&self) -> bool {
        !self
            .asked
            .bans(self.route, self.binding, self.now)
            .is_empty()
    }

    /// Charges all or none, for somebody who has these permits already.
    pub(in crate::proxy) fn decide(mut self, stood: Stood) -> Admission {
        let bans = self.asked.bans(self.route, self.binding, self.now);
        let (mut verdict, dues) = match bans.is_empty() {
            true => self.charge(charge_watched),
            false => (self.asked.banned(&bans, self.binding, self.now), Vec::new()),
        };
        self.asked.strike(self.route, &bans, &mut verdict, self.now);
        self.conclude(verdict, dues, stood)
    }

    /// Charges them together; with what the response is to settle.
    pub(in crate::proxy) fn charge(&mut self, last: Charging) -> (Verdict, Vec<Due>) {
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
    pub(in crate::proxy) fn conclude(
        self,
        verdict: Verdict,
        dues: Vec<Due>,
        stood: Stood,
    ) -> Admission {
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
