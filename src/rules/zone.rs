//! Whose days a request counts in: the time zone that its token names.

use std::sync::Arc;

use super::{Head, Lookup};
use crate::clock::Timestamp;
use crate::limiter::Calendars;

/// A claim with the name of a time zone, and the periods in each.
#[derive(Clone, Debug)]
pub struct LocalPeriods {
    /// Which claim.
    pub claim: String,
    /// The periods.
    pub calendars: Arc<Calendars>,
}

impl LocalPeriods {
    /// The zone that the token of a request names, if there is such a zone, and nobody can take it for another.
    pub fn zone(&self, head: &Head<'_>) -> Option<&str> {
        self.calendars.name(self.named(head)?)
    }

    /// The period there that `now` is in, from its start to its end; `None` where no zone is named.
    pub fn period(&self, head: &Head<'_>, now: Timestamp) -> Option<(Timestamp, Timestamp)> {
        self.calendars.period_at(self.named(head)?, now)
    }

    fn named<'a>(&self, head: &Head<'a>) -> Option<&'a str> {
        match head.token?.claim(&self.claim) {
            Lookup::One(zone) => Some(zone),
            Lookup::Missing | Lookup::Several => None,
        }
    }
}
