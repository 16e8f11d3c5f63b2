//! The time zone that a token names, in whose days a request counts.

use std::sync::Arc;

use super::Head;
use crate::clock::Timestamp;
use crate::limiter::calendar::Calendars;

/// A claim with the name of a time zone, and the periods in each.
#[derive(Clone, Debug)]
pub struct LocalPeriods {
    /// The claim with the name of the zone.
    pub claim: String,
    /// The periods of each zone.
    pub calendars: Arc<Calendars>,
}

impl LocalPeriods {
    /// Returns the zone that the token names, if it exists and the token is unambiguous.
    pub fn zone(&self, head: &Head<'_>) -> Option<&str> {
        self.calendars.name(self.named(head)?)
    }

    /// Returns start and end of the period of the zone that contains `now`; `None` without a zone.
    pub fn period(&self, head: &Head<'_>, now: Timestamp) -> Option<(Timestamp, Timestamp)> {
        self.calendars.period_at(self.named(head)?, now)
    }

    fn named<'a>(&self, head: &Head<'a>) -> Option<&'a str> {
        head.token?.claim(&self.claim).one()
    }
}
