//! Requests that wait for permits of requests in flight (`concurrency` with a `queue`).
//!
//! A waiting request has been charged nothing. All its limits decide again when its turn comes.
//!
//! A request that needs several permits acquires them in the order of the policies' names, the same on all
//! routes, so that no two requests wait for each other. The queues are the store's ([`Permit`]).

use std::time::Duration;

use super::acquired_permits::AcquiredPermits;
use super::in_flight::InFlightGuard;
use super::redis_charge::PendingRedisCharge;
use super::{Admission, AdmissionContext};
use crate::clock::{Clock, Timestamp};
use crate::limiter::{Decision, Outcome, Secret};
use crate::proxy::ruleset::{Limit, Route};
use crate::rules::{Head, InvalidCost};
use crate::store::redis::Store;
use crate::store::{Permit, Refusals};
use crate::telemetry::metrics::{InUseMetrics, Waiting};

/// The thing that a request waits for before it is decided.
#[derive(Debug)]
pub(crate) enum Pending {
    /// Its turn in a queue.
    Permit(Box<PermitWaiter>),
    /// The answer of Redis.
    Redis(Box<PendingRedisCharge>),
}

/// A request in a queue. It leaves the queue when this is dropped.
#[derive(Debug)]
pub(crate) struct PermitWaiter {
    acquired: AcquiredPermits,
    place: u16,
    permit: Permit,
    units: u32,
    in_use: InUseMetrics,
    max_wait: Duration,
    since: Timestamp,
    _waiting: Option<Waiting>,
}

/// Charges the request to all limits of its route or to none, unless it has to wait first. The decisions go to
/// `admission`.
///
/// # Errors
/// As [`admit`](super::context::admit).
pub(crate) fn admit(
    route: &Route,
    secret: &Secret,
    head: &Head<'_>,
    now: Timestamp,
    acquired: AcquiredPermits,
    store: Option<&Store>,
    admission: &mut Admission,
) -> Result<Option<Pending>, InvalidCost> {
    let mut context = AdmissionContext::new(route, secret, now, admission);
    if acquired.is_empty() && context.refuse_without_claims(head, store)? {
        return Ok(None);
    }
    context.evaluate(head, store)?;
    let queues = queues(&context);
    if queues.is_empty() || context.is_banned() {
        return Ok(context.decide(acquired).map(Pending::Redis));
    }
    Ok(decide_or_queue(&queues, &mut context, acquired))
}

/// Decides, or lets the request wait in the first queue that has no free permit, or for Redis.
fn decide_or_queue(
    queues: &[usize],
    context: &mut AdmissionContext<'_, '_>,
    mut acquired: AcquiredPermits,
) -> Option<Pending> {
    charge_no_permit_twice(&acquired, context);
    let mut is_worth_waiting = !acquired.has_timed_out();
    // Redis is asked after the permits are there: a request never holds up both.
    if is_worth_waiting && !context.asks_redis() {
        let uncharged = context.charge_set.clone();
        let reserved_charges = context.charge(Refusals::Free);
        let verdict = &context.admission.verdict;
        if verdict.is_admitted() {
            context.finish(reserved_charges, acquired);
            return None;
        }
        let mut refused = queues.iter().map(|&queue| &verdict.decisions[queue]);
        is_worth_waiting = refused.any(is_refused_for_now);
        context.charge_set = uncharged;
    }
    if is_worth_waiting {
        match acquire(acquired, context, queues) {
            Ok(all) => acquired = all,
            Err(waiter) => return Some(Pending::Permit(waiter)),
        }
    }
    context.decide(acquired).map(Pending::Redis)
}

/// The enforced limits with a queue, by the names of their policies.
fn queues(context: &AdmissionContext<'_, '_>) -> Vec<usize> {
    let binding = &context.charge_set.charges[..context.binding];
    let has_queue = |index: &usize| binding[*index].table.algorithm().queueing().is_some();
    let mut queues: Vec<_> = (0..binding.len()).filter(has_queue).collect();
    queues.sort_unstable_by_key(|&index| binding[index].table.policy());
    queues
}

fn is_refused_for_now(decision: &Decision) -> bool {
    matches!(decision.outcome, Outcome::Refuse { retry_at: Some(_) })
}

/// Sets the cost of permits that the request has already to 0.
fn charge_no_permit_twice(acquired: &AcquiredPermits, context: &mut AdmissionContext<'_, '_>) {
    let asked = &mut context.charge_set;
    for (limit, charge) in asked.limits.iter().zip(&mut asked.charges) {
        if acquired.includes(limit.place) {
            charge.cost = 0;
        }
    }
}

/// Acquires the free permits of these queues, up to the first queue in which the request has to wait.
fn acquire(
    mut acquired: AcquiredPermits,
    context: &mut AdmissionContext<'_, '_>,
    queues: &[usize],
) -> Result<AcquiredPermits, Box<PermitWaiter>> {
    for &queue in queues {
        let limit = context.charge_set.limits[queue];
        let charge = &mut context.charge_set.charges[queue];
        if charge.cost == 0 {
            continue;
        }
        let policy = limit.policy(&context.route.limits);
        let (Some(permit), Some(in_use)) = (charge.acquire(), &policy.in_use_metrics) else {
            break;
        };
        if permit.has_to_wait() {
            let bound = charge.table.algorithm().queueing();
            return Err(Box::new(PermitWaiter {
                acquired,
                place: limit.place,
                permit,
                units: charge.cost,
                in_use: in_use.clone(),
                max_wait: bound.map_or(Duration::ZERO, |bound| bound.max_wait()),
                since: context.now,
                _waiting: policy.metrics.waits().map(|waits| waits.enter()),
            }));
        }
        let guard = InFlightGuard::of_permit(permit, in_use, charge.cost);
        acquired.push(limit.place, guard, None);
        charge.cost = 0;
    }
    Ok(acquired)
}

impl PermitWaiter {
    /// The limit that the request waits for.
    pub(crate) fn limit<'r>(&self, route: &'r Route) -> &'r Limit {
        &route.limits[usize::from(self.place)]
    }

    /// Waits for the permit, for at most `max_wait`.
    pub(crate) async fn wait(self: Box<Self>, clock: &Clock) -> AcquiredPermits {
        let PermitWaiter {
            mut acquired,
            place,
            permit,
            units,
            in_use,
            max_wait,
            since,
            _waiting,
        } = *self;
        match tokio::time::timeout(max_wait, permit.acquired()).await {
            Ok(()) => {
                let guard = InFlightGuard::of_permit(permit, &in_use, units);
                acquired.push(place, guard, Some(clock.now().since(since)));
            }
            Err(_) => acquired.time_out(place),
        }
        acquired
    }
}
