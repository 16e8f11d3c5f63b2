//! `time_zone` of a policy: the zone of days, weeks, months and years.

use crate::config::sections::prelude::*;

by_form! {
    /// The zone of a calendar's windows.
    #[derive(PartialEq, Eq)]
    pub enum Zone("Zone", "the name of a time zone, or the claim or column that has it: `{ from: \"jwt:zoneinfo\", default: UTC }`") {
        /// One zone for all requests.
        Named(TimeZone) = "scalar",
        /// The zone that a request's token or client names.
        Claimed(ClaimedZone) = "mapping",
    }
}

/// The zone that the token or the client of a request names.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[schemars(rename = "ToldZone")]
pub struct ClaimedZone {
    /// The claim with its IANA name, `jwt:zoneinfo`, or the client's column, `client:time_zone`. It holds for windows that begin from then on.
    pub from: Located<VerifiedPart>,
    /// The zone of those without it, or with one that names no zone.
    #[serde(default)]
    pub default: Located<TimeZone>,
}

impl Zone {
    /// The zone for requests that name none.
    pub fn fallback(&self) -> &TimeZone {
        match self {
            Self::Named(zone) => zone,
            Self::Claimed(claimed) => &claimed.default,
        }
    }

    /// The claim or column that names the zone, if one does.
    pub fn part(&self) -> Option<&Located<VerifiedPart>> {
        match self {
            Self::Named(_) => None,
            Self::Claimed(claimed) => Some(&claimed.from),
        }
    }
}
