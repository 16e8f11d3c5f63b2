//! Policies whose buckets in memory are synchronised with those of other machines: what they were charged is noted, for
//! the others to be told. Nothing here waits.

use std::sync::Arc;
use std::time::Duration;

use super::ChargeSet;
use super::applicability::PolicyChoice;
use crate::clock::Timestamp;
use crate::limiter::{Algorithm, Decision, Secret, Start, Verdict};
use crate::proxy::ruleset::{Limit, Policy, Route};
use crate::rules::Head;
use crate::store::redis::{BucketName, Naming, PendingReport, Tracker};
use crate::store::{Charge, Refusals, Reservation};
use crate::telemetry::metrics::{SyncFigures, SyncMetrics, TrackerMetrics};
use crate::telemetry::registry::Registry;

/// What a policy has whose buckets are synchronised.
#[derive(Debug)]
pub struct SyncRecorder {
    pub(crate) tracker: Arc<Tracker>,
    pub(crate) naming: Naming,
    /// How often others are told.
    pub(crate) interval: Duration,
    /// What counts the rounds by which they are.
    pub(crate) rounds: SyncMetrics,
    /// Of the policy and all that has its name.
    pub(crate) metrics: Option<TrackerMetrics>,
}

impl SyncRecorder {
    /// What turns keys into fingerprints, where all machines have to have the same of a key.
    pub(crate) fn secret(&self, algorithm: &Algorithm) -> Option<Secret> {
        let by_key = matches!(algorithm, Algorithm::FixedWindow(window)
            if matches!(window.start(), Start::Staggered));
        by_key.then(|| self.naming.secret())
    }

    /// What all machines call the bucket of a request that has one.
    fn name(&self, limit: &Limit, head: &Head<'_>) -> BucketName {
        let mut namer = self.naming.namer();
        // A request without a key has no bucket.
        let _ = limit.spec.descriptor.feed(head, &mut namer);
        namer.name(self.tracker.label())
    }
}

/// Exports how many keys the trackers of a policy and all that has its name know.
pub(crate) fn metrics(policy: &Policy, registry: &Registry) -> Option<TrackerMetrics> {
    let all = policy.all().into_iter();
    let synchronised = all.filter_map(|one| one.synchronised.as_ref());
    let trackers: Vec<_> = synchronised
        .map(|one| Arc::downgrade(&one.tracker))
        .collect();
    if trackers.is_empty() {
        return None;
    }
    Some(TrackerMetrics::new(registry, &policy.name, move || {
        let mut figures = SyncFigures::default();
        for tracker in trackers.iter().filter_map(std::sync::Weak::upgrade) {
            figures.keys += tracker.keys() as u64;
            figures.untracked += tracker.untracked();
        }
        figures
    }))
}

/// Notes what the limits of a route have charged that were asked together: refusals where both the table and `last` say
/// so. Of a reservation, which comes with the place of its limit, the others are told when it is settled.
pub(crate) fn note<'a>(
    (route, head): (&Route, &Head<'_>),
    asked: &ChargeSet<'_>,
    (verdict, last): (&Verdict, Refusals),
    now: Timestamp,
    reserved: impl Iterator<Item = (usize, &'a mut Reservation)>,
) {
    let mut reserved: Vec<_> = reserved.collect();
    let all = asked.applied.iter().zip(&asked.charges);
    for ((met, charge), decision) in all.zip(&verdict.decisions) {
        let mut reserved = reserved.iter_mut();
        let its = reserved.find(|(its, _)| *its == usize::from(met.place));
        let is_charged = (verdict.is_admitted() && decision.is_admitted())
            || [charge.table.refusals(), last] == [Refusals::Charged; 2];
        let charged = is_charged.then_some((charge, decision));
        let reservation = its.map(|(_, reservation)| &mut **reservation);
        note_one(
            (met.limit(&route.limits), met.chosen),
            head,
            charged,
            now,
            reservation,
        );
    }
}

/// Notes what one limit has charged, if it has, or has that told when it is settled.
pub(crate) fn note_one(
    (limit, chosen): (&Limit, PolicyChoice),
    head: &Head<'_>,
    charged: Option<(&Charge<'_>, &Decision)>,
    now: Timestamp,
    reservation: Option<&mut Reservation>,
) {
    let Some(synchronised) = &limit.chosen(chosen).synchronised else {
        return;
    };
    let name = || synchronised.name(limit, head);
    let tracker = &synchronised.tracker;
    match (reservation, charged) {
        (Some(reservation), _) => reservation.tell(PendingReport::new(tracker, name())),
        (None, Some((charge, decision))) => {
            tracker.note(charge.key, charge.cost, decision.cell, now, name);
        }
        (None, None) => {}
    }
}
