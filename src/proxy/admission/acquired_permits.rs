//! Permits that a request has acquired so far, its turn to wait for units, and how long it waited.

use std::time::Duration;

use crate::clock::Timestamp;
use crate::limiter::{Fingerprint, Permit};
use crate::store::InUse;
use crate::telemetry::registry::GaugeGuard;

/// The permits of a request. They are returned when this is dropped.
// Boxed: most requests have none, and each would have to move and drop the room for them.
#[derive(Debug, Default)]
pub(crate) struct AcquiredPermits(Option<Box<Acquired>>);

#[derive(Debug, Default)]
struct Acquired {
    permits: Vec<AcquiredPermit>,
    /// The turn of a request that waits for units, or its place in the queue.
    turn: Option<Box<Turn>>,
}

/// The turn of a request to wait for units of a key, or its place in the queue. It is left when this
/// is dropped.
#[derive(Debug)]
pub(super) struct Turn {
    pub(super) limit: u16,
    pub(super) key: Fingerprint,
    pub(super) permit: Permit,
    /// The start of the request's wait, for whichever limit.
    pub(super) since: Timestamp,
    pub(super) _waiting: Option<GaugeGuard>,
}

/// The permits of one limit, or a wait without permits: for units, or in vain if it has no length.
#[derive(Debug)]
struct AcquiredPermit {
    /// The limit's place in the route.
    place: u16,
    permits: Option<InUse>,
    waited: Option<Duration>,
}

impl AcquiredPermits {
    fn all(&self) -> &[AcquiredPermit] {
        self.0.as_ref().map_or(&[], |acquired| &acquired.permits)
    }

    fn add(&mut self, permit: AcquiredPermit) {
        self.0.get_or_insert_default().permits.push(permit);
    }

    /// The turn of a request that waits for units, or its place in the queue.
    pub(super) fn turn(&self) -> Option<&Turn> {
        self.0.as_ref()?.turn.as_deref()
    }

    /// Takes the turn if `is_it`.
    pub(super) fn take_turn_if(
        &mut self,
        is_it: impl FnOnce(&mut Box<Turn>) -> bool,
    ) -> Option<Box<Turn>> {
        self.0.as_mut()?.turn.take_if(is_it)
    }

    pub(super) fn set_turn(&mut self, turn: Box<Turn>) {
        self.0.get_or_insert_default().turn = Some(turn);
    }

    pub(super) fn push(&mut self, place: u16, permits: InUse, waited: Option<Duration>) {
        self.add(AcquiredPermit {
            place,
            permits: Some(permits),
            waited,
        });
    }

    /// Notes that no permit came in time: the request has waited as long as it may.
    pub(super) fn time_out(&mut self, place: u16) {
        self.add(AcquiredPermit {
            place,
            permits: None,
            waited: None,
        });
    }

    /// True if no permit came in time.
    pub(super) fn has_timed_out(&self) -> bool {
        let in_vain = |one: &AcquiredPermit| one.permits.is_none() && one.waited.is_none();
        self.all().iter().any(in_vain)
    }

    /// Ends the wait for units at `now`, and notes it.
    pub(super) fn end_turn(&mut self, now: Timestamp) {
        if let Some(turn) = self.take_turn_if(|_| true) {
            self.add(AcquiredPermit {
                place: turn.limit,
                permits: None,
                waited: Some(now.since(turn.since)),
            });
        }
    }

    /// True before the request has waited or acquired anything.
    pub(super) fn is_empty(&self) -> bool {
        self.all().is_empty() && self.turn().is_none()
    }

    pub(super) fn includes(&self, place: u16) -> bool {
        let mut held = self.all().iter().filter(|one| one.permits.is_some());
        held.any(|permit| permit.place == place)
    }

    /// The time that the request waited for the limit at `place`, if it did.
    pub(crate) fn waited(&self, place: u16) -> Option<Duration> {
        let mut acquired = self.all().iter();
        acquired.find(|permit| permit.place == place)?.waited
    }

    /// The place of the limit for which the request waited longest.
    pub(crate) fn longest_wait(&self) -> Option<u16> {
        let waits = self.all().iter();
        let waits = waits.filter_map(|permit| Some((permit.waited?, permit.place)));
        waits.max().map(|(_, place)| place)
    }

    /// Returns all permits.
    pub(crate) fn give_back(&mut self) {
        if let Some(acquired) = &mut self.0 {
            acquired.permits.retain(|one| one.permits.is_none());
        }
    }
}
