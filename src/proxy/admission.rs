//! Asks every limit that a request meets, all at the same instant: all are charged, or none.

use http::Response;
use http::header::HeaderMap;
use smallvec::SmallVec;

use super::body::ResponseBody;
use super::limit_headers::{self, Applied, Styles};
use super::meeting::{Chosen, Meeting};
use super::rejection::Refused;
use super::snapshot::{Limit, Route};
use crate::clock::Timestamp;
use crate::limiter::{Decision, Outcome, Secret, Verdict};
use crate::rules::{Head, NoNumber};
use crate::store::{Charge, charge_all};
use crate::telemetry::metrics::LimitDecision;

/// What the limits of a route said of one request.
#[derive(Debug)]
pub(super) struct Admission {
    /// The places, in the route's list, of the limits that applied, and which quota of each: one for each of
    /// the decisions.
    applied: SmallVec<[(u16, Chosen); 4]>,
    verdict: Verdict,
    /// A limit that refuses requests without its key, and was given none.
    keyless: Option<u16>,
    now: Timestamp,
}

/// Charges the request to all limits of its route, or to none.
///
/// # Errors
/// When a limit that applies asks the request for its cost, and is told no number. Nothing is charged then.
pub(super) fn admit(
    route: &Route,
    secret: &Secret,
    head: &Head<'_>,
    now: Timestamp,
) -> Result<Admission, NoNumber> {
    let mut applied = SmallVec::new();
    let mut charges = SmallVec::<[Charge<'_>; 4]>::new();
    let mut keyless = None;
    for (place, limit) in (0_u16..).zip(route.limits_of(head)) {
        match limit.meet(secret, head) {
            Meeting::Bucket(key, chosen) => {
                applied.push((place, chosen));
                charges.push(Charge {
                    table: &limit.chosen(chosen).table,
                    key,
                    cost: limit.cost.of(head)?,
                });
            }
            Meeting::Elsewhere => {}
            Meeting::Exempt | Meeting::Skipped => limit.metrics.record(LimitDecision::Exempt),
            Meeting::Keyless => keyless = keyless.or(Some(place)),
        }
    }
    if keyless.is_some() {
        applied.clear();
        charges.clear();
    }
    let admission = Admission {
        applied,
        verdict: charge_all(&charges, now),
        keyless,
        now,
    };
    admission.count(route);
    Ok(admission)
}

impl Admission {
    /// The limit that made the decision, if any applied.
    pub(super) fn deciding<'r>(&self, route: &'r Route) -> Option<&'r Limit> {
        let place = match self.keyless {
            Some(place) => place,
            None => self.applied.get(self.verdict.deciding)?.0,
        };
        Some(&route.limits[usize::from(place)])
    }

    /// The limit that refuses the request, if one does.
    pub(super) fn refusing<'r>(&self, route: &'r Route) -> Option<&'r Limit> {
        self.deciding(route).filter(|_| self.is_refused())
    }

    /// Says from here on what is so at `now`, a while after it was decided.
    pub(super) fn answered_at(&mut self, now: Timestamp) {
        self.now = now;
    }

    /// Whether a limit refuses the request.
    pub(super) fn is_refused(&self) -> bool {
        self.keyless.is_some() || !self.verdict.is_admitted()
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
            .filter(|(limit, decision)| !decision.is_admitted() && limit.policy.action.is_told())
            .map(|(limit, _)| &*limit.policy.name)
            .collect();
        let policy = match self.applied.get(self.verdict.deciding) {
            Some((_, chosen)) => limit.chosen(*chosen),
            None => &limit.policy,
        };
        let retry_at = match self.verdict.decision().map(|decision| decision.outcome) {
            Some(Outcome::Refuse { retry_at }) => retry_at,
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
        let applied = self.applied.iter().zip(&self.verdict.decisions);
        let policies = applied.map(|(&(place, chosen), decision)| {
            (route.limits[usize::from(place)].chosen(chosen), decision)
        });
        let applied: SmallVec<[Applied<'_>; 4]> = policies
            .filter(|(policy, _)| policy.action.is_told())
            .map(|(policy, decision)| Applied {
                facts: &policy.facts,
                algorithm: policy.table.algorithm(),
                decision,
            })
            .collect();
        let deciding = match applied.len() == self.applied.len() {
            true => self.verdict.deciding,
            false => tightest(&applied),
        };
        limit_headers::write(styles, &applied, deciding, self.now, headers);
    }

    /// A refused request is counted only where it was refused: the others charged nothing.
    fn count(&self, route: &Route) {
        if let Some(place) = self.keyless {
            route.limits[usize::from(place)]
                .metrics
                .record(LimitDecision::Limited);
        }
        let admitted = self.verdict.is_admitted();
        for (limit, decision) in self.decisions(route) {
            match decision.outcome {
                Outcome::Refuse { .. } => limit.metrics.record(LimitDecision::Limited),
                Outcome::Admit if admitted => {
                    limit.metrics.record(LimitDecision::Allowed);
                    if is_near(decision) {
                        limit.policy.metrics.near();
                    }
                }
                Outcome::Admit => {}
            }
        }
    }

    /// What the deciding limit said; `None` where none applied, or one refuses for want of a key.
    pub(super) fn decision(&self) -> Option<&Decision> {
        self.verdict.decision()
    }

    /// Every limit that applied, with what it said.
    pub(super) fn decisions<'a>(
        &'a self,
        route: &'a Route,
    ) -> impl Iterator<Item = (&'a Limit, &'a Decision)> {
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

/// Whether at least 80 % of the quota is used.
pub(super) fn is_near(decision: &Decision) -> bool {
    u64::from(decision.remaining) * 5 <= u64::from(decision.capacity)
}
