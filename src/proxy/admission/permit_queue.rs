//! Requests that wait for permits of requests in flight (`concurrency` with a `queue`).
//!
//! A waiting request has been charged nothing. All its limits decide again when its turn comes. The
//! queues are the store's.

use std::time::Duration;

use super::Admission;
use super::acquired_permits::AcquiredPermits;
use super::context::AdmissionInputs;
use super::unit_queue::UnitWaiter;
use crate::clock::{Clock, Timestamp};
use crate::proxy::ruleset::{Limit, Route};
use crate::store::{Acquired, ChargeResult, ChargeSet, PendingCharge, PermitPlace};
use crate::telemetry::registry::GaugeGuard;

/// The thing that a request waits for before it is decided.
#[derive(Debug)]
pub(crate) enum Pending {
    /// Its turn in a queue.
    Permit(Box<PermitWaiter>),
    /// Units of a limit, or its turn to wait for them.
    Units(Box<UnitWaiter>),
    /// The answer of the store.
    Store(Box<PendingCharge>),
    /// The answer of the store by the head alone.
    Peek(Box<PendingCharge>),
    /// The decision on other requests whose charges may be given back. The request is refused only
    /// because of these.
    Others(Box<UndecidedOthers>),
}

/// A pause before a request is decided again.
#[derive(Debug)]
pub(crate) struct UndecidedOthers {
    acquired: AcquiredPermits,
    pause: Duration,
}

/// The first pause; each further one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(5);

impl Admission {
    /// The pause before a refusal that is in doubt at `now` is decided again. `None` without doubt,
    /// or once all that caused the first doubt is decided.
    pub(super) fn doubt(&mut self, now: Timestamp) -> Option<Pending> {
        let until = self.result.doubted_until?;
        let (until, pause) = *self.pause.get_or_insert((until, FIRST_PAUSE));
        if now.saturating_add(pause) > until {
            return None;
        }
        self.pause = Some((until, pause * 2));
        self.result = ChargeResult::default();
        Some(Pending::Others(Box::new(UndecidedOthers {
            acquired: std::mem::take(&mut self.acquired),
            pause,
        })))
    }
}

impl UndecidedOthers {
    /// Waits, and returns the permits that the request has.
    pub(crate) async fn wait(self: Box<Self>) -> AcquiredPermits {
        tokio::time::sleep(self.pause).await;
        self.acquired
    }
}

/// A request in a queue. It leaves the queue when this is dropped.
#[derive(Debug)]
pub(crate) struct PermitWaiter {
    acquired: AcquiredPermits,
    limit: u16,
    place: PermitPlace,
    since: Timestamp,
    _waiting: Option<GaugeGuard>,
}

impl AdmissionInputs<'_> {
    /// Charges the request if all permits are free. Otherwise acquires those that are, up to the
    /// first queue in which the request has to wait.
    pub(super) fn acquire_permits(
        &self,
        set: &mut ChargeSet<'_>,
        queues: &[usize],
        admission: &mut Admission,
    ) -> PermitsResult {
        // No permit is charged twice.
        set.skip(|limit| admission.acquired.includes(limit));
        if admission.acquired.has_timed_out() {
            return PermitsResult::Acquired;
        }
        // Redis is asked after the permits are there: a request never holds up both.
        if !set.is_remote() {
            if set.try_charge(&mut admission.result) {
                return PermitsResult::Charged;
            }
            let decisions = &admission.result.verdict.decisions;
            let mut retries = queues.iter().map(|&queue| decisions[queue].retry_at());
            if !retries.any(|retry_at| retry_at.is_some()) {
                return PermitsResult::Acquired;
            }
        }
        for &queue in queues {
            let number = set.id(queue).limit;
            match set.acquire(queue) {
                Acquired::Nothing => {}
                Acquired::QueueFull => break,
                Acquired::Permits(permits) => admission.acquired.push(number, permits, None),
                Acquired::Place(place) => {
                    let waits = self.route.limit(number).policy.metrics.waits.as_ref();
                    return PermitsResult::Waits(Box::new(PermitWaiter {
                        acquired: std::mem::take(&mut admission.acquired),
                        limit: number,
                        place,
                        since: self.now,
                        _waiting: waits.map(|waits| waits.waiting.hold(1)),
                    }));
                }
            }
        }
        PermitsResult::Acquired
    }
}

/// The result of acquiring the permits of a request.
pub(super) enum PermitsResult {
    /// All limits admit the request, and are charged.
    Charged,
    /// The request has to wait.
    Waits(Box<PermitWaiter>),
    /// All permits are acquired that can be; the request is to be charged.
    Acquired,
}

impl PermitWaiter {
    /// The limit that the request waits for.
    pub(crate) fn limit<'r>(&self, route: &'r Route) -> &'r Limit {
        route.limit(self.limit)
    }

    /// Waits for the permits as long as the limit allows.
    pub(crate) async fn wait(self: Box<Self>, clock: &Clock) -> AcquiredPermits {
        let PermitWaiter {
            mut acquired,
            limit,
            place,
            since,
            _waiting,
        } = *self;
        match place.wait().await {
            Some(permits) => acquired.push(limit, permits, Some(clock.now().since(since))),
            None => acquired.time_out(limit),
        }
        acquired
    }
}
