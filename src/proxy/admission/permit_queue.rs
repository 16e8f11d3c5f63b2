//! Requests that stand in line for what those in flight have taken (`concurrency` with a `queue`). Who stands there has
//! been charged nothing, and all limits are asked again when his turn comes.
//!
//! Who needs several permits takes them in the order of the policies' names, on all routes the same, so that nobody waits
//! for somebody who waits for him. Lines are the store's ([`Permit`]).

use std::time::Duration;

use super::in_flight::InFlightGuard;
use super::redis_charge::PendingRedisCharge;
use super::{Admission, AdmissionContext};
use crate::clock::{Clock, Timestamp};
use crate::limiter::{Decision, Outcome, Secret};
use crate::proxy::ruleset::{Limit, Route};
use crate::rules::{Head, NoNumber};
use crate::store::redis::Store;
use crate::store::{Permit, Refusals};
use crate::telemetry::metrics::{InUseMetrics, Waiting};

/// What is to be waited for before a request is decided.
#[derive(Debug)]
pub(crate) enum Pending {
    /// Its turn in a line.
    Line(Box<PermitWaiter>),
    /// What Redis says.
    Store(Box<PendingRedisCharge>),
}

/// What a request that stood in line has by now.
#[derive(Debug, Default)]
pub(crate) struct AcquiredPermits {
    granted: Vec<AcquiredPermit>,
    /// The policy for which it has waited as long as it may.
    gave_up: Option<u16>,
}

/// What was taken of the limit at this place of the route, and after which wait.
#[derive(Debug)]
struct AcquiredPermit {
    place: u16,
    _taken: InFlightGuard,
    waited: Option<Duration>,
}

/// A request that stands in line. Dropped there, it gives its place up.
#[derive(Debug)]
pub(crate) struct PermitWaiter {
    stood: AcquiredPermits,
    place: u16,
    permit: Permit,
    units: u32,
    in_use: InUseMetrics,
    max_wait: Duration,
    since: Timestamp,
    _waiting: Option<Waiting>,
}

/// Charges the request to all limits of its route or to none, unless something is to be waited for first. What they say
/// goes to `admission`.
///
/// # Errors
/// As [`admit`](super::admit).
pub(crate) fn admit(
    route: &Route,
    secret: &Secret,
    head: &Head<'_>,
    now: Timestamp,
    stood: AcquiredPermits,
    store: Option<&Store>,
    admission: &mut Admission,
) -> Result<Option<Pending>, NoNumber> {
    let mut inquiry = AdmissionContext::new(route, secret, now, admission);
    if stood.is_nothing() && inquiry.refuse_without_claims(head, store)? {
        return Ok(None);
    }
    inquiry.meet(head, store)?;
    let lines = lines(&inquiry);
    if lines.is_empty() || inquiry.is_banned() {
        return Ok(inquiry.decide(stood).map(Pending::Store));
    }
    Ok(stand_in(&lines, &mut inquiry, stood))
}

/// Decides, or has the request wait in the first of these lines in which it has to, or for Redis.
fn stand_in(
    lines: &[usize],
    inquiry: &mut AdmissionContext<'_, '_>,
    mut stood: AcquiredPermits,
) -> Option<Pending> {
    stood.asks_no_more(inquiry);
    let mut is_worth_it = stood.gave_up.is_none();
    // Redis is asked when the request has its permits: nobody waits for both.
    if is_worth_it && !inquiry.asks_redis() {
        let first = inquiry.asked.clone();
        let dues = inquiry.charge(Refusals::Free);
        let verdict = &inquiry.admission.verdict;
        if verdict.is_admitted() {
            inquiry.finish(dues, stood);
            return None;
        }
        let mut refused = lines.iter().map(|&line| &verdict.decisions[line]);
        is_worth_it = refused.any(is_for_now);
        inquiry.asked = first;
    }
    if is_worth_it {
        match stood.enter(inquiry, lines) {
            Ok(entered) => stood = entered,
            Err(standing) => return Some(Pending::Line(standing)),
        }
    }
    inquiry.decide(stood).map(Pending::Store)
}

/// Those of the limits that have a line, in the order in which everybody enters them.
fn lines(inquiry: &AdmissionContext<'_, '_>) -> Vec<usize> {
    let binding = &inquiry.asked.charges[..inquiry.binding];
    let queueing = |index: &usize| binding[*index].table.algorithm().queueing().is_some();
    let mut lines: Vec<_> = (0..binding.len()).filter(queueing).collect();
    lines.sort_unstable_by_key(|&index| binding[index].table.policy());
    lines
}

/// Whether it refuses what it can admit later.
fn is_for_now(decision: &Decision) -> bool {
    matches!(decision.outcome, Outcome::Refuse { retry_at: Some(_) })
}

impl AcquiredPermits {
    /// What has been taken is not asked for again.
    fn asks_no_more(&self, inquiry: &mut AdmissionContext<'_, '_>) {
        let asked = &mut inquiry.asked;
        for (met, charge) in asked.applied.iter().zip(&mut asked.charges) {
            let mut granted = self.granted.iter();
            if granted.any(|granted| granted.place == met.place) {
                charge.cost = 0;
            }
        }
    }

    /// Takes what is free of these lines, up to the first in which the request has to wait, or cannot.
    fn enter(
        mut self,
        inquiry: &mut AdmissionContext<'_, '_>,
        lines: &[usize],
    ) -> Result<Self, Box<PermitWaiter>> {
        for &line in lines {
            let met = inquiry.asked.applied[line];
            let charge = &mut inquiry.asked.charges[line];
            if charge.cost == 0 {
                continue;
            }
            let policy = met.policy(&inquiry.route.limits);
            let (Some(permit), Some(in_use)) = (charge.enter(), &policy.in_use) else {
                break;
            };
            if permit.has_to_wait() {
                let bound = charge.table.algorithm().queueing();
                return Err(Box::new(PermitWaiter {
                    stood: self,
                    place: met.place,
                    permit,
                    units: charge.cost,
                    in_use: in_use.clone(),
                    max_wait: bound.map_or(Duration::ZERO, |bound| bound.max_wait()),
                    since: inquiry.now,
                    _waiting: policy.metrics.waits().map(|waits| waits.enter()),
                }));
            }
            self.granted.push(AcquiredPermit {
                place: met.place,
                _taken: InFlightGuard::granted(permit, in_use, charge.cost),
                waited: None,
            });
            charge.cost = 0;
        }
        Ok(self)
    }

    /// For how long the request stood in the line of the limit at this place, if it did.
    pub(crate) fn waited(&self, place: u16) -> Option<Duration> {
        let mut granted = self.granted.iter();
        granted.find(|granted| granted.place == place)?.waited
    }

    /// The limit for which it waited longest.
    pub(crate) fn longest<'r>(&self, route: &'r Route) -> Option<&'r Limit> {
        let waits = self.granted.iter();
        let waits = waits.filter_map(|granted| Some((granted.waited?, granted.place)));
        let (_, place) = waits.max()?;
        Some(&route.limits[usize::from(place)])
    }

    /// Whether it has waited for nothing.
    fn is_nothing(&self) -> bool {
        self.granted.is_empty() && self.gave_up.is_none()
    }

    /// Gives back all that was taken.
    pub(crate) fn give_back(&mut self) {
        self.granted.clear();
    }
}

impl PermitWaiter {
    /// The limit for which the request waits.
    pub(crate) fn limit<'r>(&self, route: &'r Route) -> &'r Limit {
        &route.limits[usize::from(self.place)]
    }

    /// Waits for its turn, or as long as it may.
    pub(crate) async fn pass(self: Box<Self>, clock: &Clock) -> AcquiredPermits {
        let PermitWaiter {
            mut stood,
            place,
            permit,
            units,
            in_use,
            max_wait,
            since,
            _waiting,
        } = *self;
        match tokio::time::timeout(max_wait, permit.taken()).await {
            Ok(()) => stood.granted.push(AcquiredPermit {
                place,
                _taken: InFlightGuard::granted(permit, &in_use, units),
                waited: Some(clock.now().since(since)),
            }),
            Err(_) => stood.gave_up = Some(place),
        }
        stood
    }
}
