//! Charges of synchronised policies, recorded for other machines. Nothing here waits.

use super::ChargeSet;
use super::applicability::PolicyChoice;
use crate::clock::Timestamp;
use crate::limiter::{Decision, Verdict};
use crate::proxy::ruleset::{Limit, Route};
use crate::rules::Head;
use crate::store::redis::PendingReport;
use crate::store::{Charge, Refusals, Reservation};

/// Records the charges of one decision. Refusals are charged if both the table and `last` say so; a
/// reservation is reported when it is settled.
pub(crate) fn record<'a>(
    (route, head): (&Route, &Head<'_>),
    charge_set: &ChargeSet<'_>,
    (verdict, last): (&Verdict, Refusals),
    now: Timestamp,
    reserved: impl Iterator<Item = (usize, &'a mut Reservation)>,
) {
    let mut reserved: Vec<_> = reserved.collect();
    let all = charge_set.limits.iter().zip(&charge_set.charges);
    for ((matched, charge), decision) in all.zip(&verdict.decisions) {
        let mut reserved = reserved.iter_mut();
        let its = reserved.find(|(its, _)| *its == usize::from(matched.place));
        let is_charged = (verdict.is_admitted() && decision.is_admitted())
            || [charge.table.refusals(), last] == [Refusals::Charged; 2];
        let charged = is_charged.then_some((charge, decision));
        let reservation = its.map(|(_, reservation)| &mut **reservation);
        record_one(
            (matched.limit(&route.limits), matched.chosen),
            head,
            charged,
            now,
            reservation,
        );
    }
}

/// Records the charge of one limit, or lets its reservation report it.
pub(crate) fn record_one(
    (limit, chosen): (&Limit, PolicyChoice),
    head: &Head<'_>,
    charged: Option<(&Charge<'_>, &Decision)>,
    now: Timestamp,
    reservation: Option<&mut Reservation>,
) {
    let Some(synchronised) = &limit.chosen(chosen).sync_recorder else {
        return;
    };
    let name = || synchronised.name(&limit.spec.descriptor, head);
    let tracker = &synchronised.tracker;
    match (reservation, charged) {
        (Some(reservation), _) => reservation.tell(PendingReport::new(tracker, name())),
        (None, Some((charge, decision))) => {
            tracker.note(charge.key, charge.cost, decision.cell, now, name);
        }
        (None, None) => {}
    }
}
