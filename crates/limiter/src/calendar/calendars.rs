//! The periods of one kind in every time zone, for buckets whose requests name their zone.
//!
//! All zones are loaded at the start. No request reads a file, and clients cannot make the list
//! grow.

use std::sync::Arc;

use jiff::tz::TimeZone;

use super::{Calendar, Period};
use crate::Timestamp;

/// Calendars by the names of their zones.
#[derive(Debug)]
pub struct Calendars {
    /// The kind of period.
    pub period: Period,
    /// Sorted by name, ignoring case.
    by_name: Vec<(Arc<str>, Calendar)>,
}

impl Calendars {
    /// The periods in each of these zones. Of two names that differ only in case, one is kept.
    pub fn new(period: Period, zones: &[(Arc<str>, TimeZone)]) -> Self {
        let calendar = |(name, zone): &(Arc<str>, TimeZone)| {
            (Arc::clone(name), Calendar::new(period, zone.clone()))
        };
        let mut by_name: Vec<_> = zones.iter().map(calendar).collect();
        by_name.sort_by(|(one, _), (other, _)| folded(one).cmp(folded(other)));
        by_name.dedup_by(|(one, _), (other, _)| one.eq_ignore_ascii_case(other));
        Self { period, by_name }
    }

    /// The zone's name as the database spells it, for a name in any case; `None` for an unknown
    /// zone.
    pub fn name(&self, zone: &str) -> Option<&str> {
        self.find(zone).map(|(name, _)| &**name)
    }

    /// The period that contains `now` in this zone, as [`Calendar::period_at`]; `None` for an
    /// unknown zone.
    pub fn period_at(&self, zone: &str, now: Timestamp) -> Option<(Timestamp, Timestamp)> {
        let (_, calendar) = self.find(zone)?;
        Some(calendar.period_at(now))
    }

    fn find(&self, zone: &str) -> Option<&(Arc<str>, Calendar)> {
        let place = self
            .by_name
            .binary_search_by(|(name, _)| folded(name).cmp(folded(zone)));
        place.ok().map(|place| &self.by_name[place])
    }
}

fn folded(name: &str) -> impl Iterator<Item = u8> {
    name.bytes().map(|byte| byte.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Midnight of the 1st of July 2026 in UTC.
    const NOW: Timestamp = Timestamp::from_micros(1_782_864_000_000_000);
    const HOUR: u64 = 3_600_000_000;

    fn days() -> Calendars {
        let names = ["Europe/Berlin", "UTC", "Asia/Tokyo", "utc"];
        let zones = names.map(|name| {
            let zone = jiff::tz::TimeZoneDatabase::bundled().get(name);
            (Arc::from(name), zone.expect("there is such a zone"))
        });
        Calendars::new(Period::Day, &zones)
    }

    #[test]
    fn each_zone_has_its_own_days() {
        let days = days();
        let hours = |zone| {
            let (_, end) = days.period_at(zone, NOW)?;
            Some((end.as_micros() - NOW.as_micros()) / HOUR)
        };
        assert_eq!(hours("UTC"), Some(24));
        assert_eq!(hours("Europe/Berlin"), Some(22));
        assert_eq!(hours("Asia/Tokyo"), Some(15));
    }

    #[test]
    fn names_have_no_case_and_others_are_none() {
        let days = days();
        assert_eq!(days.name("europe/BERLIN"), Some("Europe/Berlin"));
        for unknown in ["", "Europe", "Europe/Berlin ", "../UTC", "Zürich"] {
            assert_eq!(days.period_at(unknown, NOW), None, "{unknown}");
        }
    }
}
