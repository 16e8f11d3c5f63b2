//! Time zones by their IANA name, as in `Europe/Berlin`.

use std::sync::Arc;

use jiff::tz::{self, TimeZoneDatabase};

use derive_more::Display;

use super::{Failure, TextValue, text_value};

/// A time zone of the system's database, or of the built-in one if the system has none.
#[derive(Clone, Debug, PartialEq, Eq, Display)]
#[display("{name}")]
pub struct TimeZone {
    name: String,
    zone: tz::TimeZone,
}

impl TimeZone {
    /// The zone's rules.
    pub fn get(&self) -> &tz::TimeZone {
        &self.zone
    }
}

/// Every known zone by name.
pub fn all() -> Vec<(Arc<str>, tz::TimeZone)> {
    let (system, bundled) = (tz::db(), TimeZoneDatabase::bundled());
    let names = system.available().chain(bundled.available());
    let zones = names.filter_map(|name| {
        let zone = system.get(name.as_str());
        let zone = zone.or_else(|_| bundled.get(name.as_str()));
        Some((Arc::from(name.as_str()), zone.ok()?))
    });
    zones.collect()
}

text_value!(TimeZone = "UTC");

impl TextValue for TimeZone {
    const EXPECTED: &'static str =
        "the name of a time zone, as in `Europe/Berlin`, `America/New_York`, `UTC`";
    const PATTERN: &'static str = "[A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+)*";

    fn read(text: &str) -> Result<Self, Failure> {
        if text.eq_ignore_ascii_case("utc") {
            return Ok(Self {
                name: "UTC".to_owned(),
                zone: tz::TimeZone::UTC,
            });
        }
        let help = "use a name of the IANA database, with its region: `Europe/Berlin`";
        let zone = tz::db().get(text);
        let zone = zone.or_else(|_| TimeZoneDatabase::bundled().get(text));
        let zone = zone.map_err(|_| help)?;
        let name = zone.iana_name().unwrap_or(text).to_owned();
        Ok(Self { name, zone })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_are_known_by_their_name() {
        for name in ["UTC", "Europe/Berlin", "America/Argentina/Buenos_Aires"] {
            let zone = TimeZone::parse(name).unwrap();
            assert_eq!(zone.to_string(), name);
            assert!(
                TimeZoneDatabase::bundled().get(name).is_ok(),
                "also without a system"
            );
        }
    }

    #[test]
    fn abbreviations_and_cities_are_no_zones() {
        for name in ["CEST", "Berlin", "", "Europe/Atlantis", "+02:00"] {
            let read = TimeZone::parse(name).map_err(|error| error.message);
            assert_eq!(read, Err(format!("`{name}` isn't the name of a time zone")));
        }
    }
}
