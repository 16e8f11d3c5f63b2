//! The time zone that a token or the client names, in whose days a request counts.

use std::borrow::Cow;
use std::sync::Arc;

use super::{Head, KeyPart};
use crate::clock::Timestamp;
use crate::limiter::calendar::Calendars;

/// The part with the name of a time zone, and the periods in each.
#[derive(Clone, Debug)]
pub struct LocalPeriods {
    /// The claim or column with the name of the zone.
    pub part: KeyPart,
    /// The periods of each zone.
    pub calendars: Arc<Calendars>,
}

impl LocalPeriods {
    /// Returns the zone that the request names, if it exists and is unambiguous.
    pub fn zone(&self, head: &Head<'_>) -> Option<&str> {
        self.calendars.name(&self.named(head)?)
    }

    /// Returns start and end of the period of the zone that contains `now`; `None` without a zone.
    pub fn period(&self, head: &Head<'_>, now: Timestamp) -> Option<(Timestamp, Timestamp)> {
        self.calendars.period_at(&self.named(head)?, now)
    }

    fn named<'a>(&'a self, head: &Head<'a>) -> Option<Cow<'a, str>> {
        match self.part.named_value(head).one()? {
            Cow::Borrowed(name) => std::str::from_utf8(name).ok().map(Cow::Borrowed),
            Cow::Owned(name) => String::from_utf8(name).ok().map(Cow::Owned),
        }
    }
}
