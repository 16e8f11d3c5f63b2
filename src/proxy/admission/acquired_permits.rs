//! Permits that a request has acquired so far, and the time that it waited for them.

use std::time::Duration;

use crate::store::InUse;

/// The permits of a request. They are returned when this is dropped.
#[derive(Debug, Default)]
pub(crate) struct AcquiredPermits {
    acquired: Vec<AcquiredPermit>,
    /// No permit came in time: the request has waited as long as it may.
    pub(super) has_timed_out: bool,
}

/// The permits of one limit.
#[derive(Debug)]
struct AcquiredPermit {
    /// The limit's place in the route.
    place: u16,
    _permits: InUse,
    waited: Option<Duration>,
}

impl AcquiredPermits {
    pub(super) fn push(&mut self, place: u16, permits: InUse, waited: Option<Duration>) {
        self.acquired.push(AcquiredPermit {
            place,
            _permits: permits,
            waited,
        });
    }

    /// True before the request has waited or acquired anything.
    pub(super) fn is_empty(&self) -> bool {
        self.acquired.is_empty() && !self.has_timed_out
    }

    pub(super) fn includes(&self, place: u16) -> bool {
        self.acquired.iter().any(|permit| permit.place == place)
    }

    /// The time that the request waited for the limit at `place`, if it did.
    pub(crate) fn waited(&self, place: u16) -> Option<Duration> {
        let mut acquired = self.acquired.iter();
        acquired.find(|permit| permit.place == place)?.waited
    }

    /// The place of the limit for which the request waited longest.
    pub(crate) fn longest_wait(&self) -> Option<u16> {
        let waits = self.acquired.iter();
        let waits = waits.filter_map(|permit| Some((permit.waited?, permit.place)));
        waits.max().map(|(_, place)| place)
    }

    /// Returns all permits.
    pub(crate) fn give_back(&mut self) {
        self.acquired.clear();
    }
}
