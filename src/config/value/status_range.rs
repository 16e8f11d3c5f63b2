//! Ranges of statuses of final responses.

use std::fmt;
use std::ops::RangeInclusive;

use super::{ParseFailure, TextValue, failure, text_value};

/// A status (`204`), or the statuses from one to another (`200-399`).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct StatusRange(RangeInclusive<u16>);

impl StatusRange {
    /// The statuses.
    pub const fn new(statuses: RangeInclusive<u16>) -> Self {
        Self(statuses)
    }

    /// The statuses, lowest to highest.
    pub fn range(&self) -> RangeInclusive<u16> {
        self.0.clone()
    }
}

/// A stand-in for an unreadable range, unlike all others.
impl Default for StatusRange {
    fn default() -> Self {
        Self(100..=100)
    }
}

impl fmt::Display for StatusRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (low, high) = (self.0.start(), self.0.end());
        match low == high {
            true => low.fmt(f),
            false => write!(f, "{low}-{high}"),
        }
    }
}

text_value!(StatusRange);

impl TextValue for StatusRange {
    const NAME: &'static str = "StatusRange";
    const EXPECTED: &'static str = "a status from 200 to 599, or a range of them: `200-399`";
    const PATTERN: &'static str = "[2-5][0-9][0-9](-[2-5][0-9][0-9])?";

    fn parse(text: &str) -> Result<Self, ParseFailure> {
        let (low, high) = text.split_once('-').unwrap_or((text, text));
        let status = |text: &str| {
            let is_number = text.len() == 3 && text.bytes().all(|byte| byte.is_ascii_digit());
            let number = text.parse().ok().filter(|_| is_number)?;
            (200..=599).contains(&number).then_some(number)
        };
        match (status(low), status(high)) {
            (Some(low), Some(high)) if low <= high => Ok(Self(low..=high)),
            (Some(low), Some(high)) => Err(failure(
                format!("`{text}` has no status"),
                format!("did you mean `{high}-{low}`?"),
            )),
            _ => Err(failure(
                format!("`{text}` is no status of a final response"),
                format!("write {}", Self::EXPECTED),
            )),
        }
    }

    fn to_json(&self) -> serde_json::Value {
        match self.0.start() == self.0.end() {
            true => (*self.0.start()).into(),
            false => self.to_string().into(),
        }
    }

    fn schema() -> serde_json::Value {
        serde_json::json!({
            "type": ["integer", "string"],
            "minimum": 200,
            "maximum": 599,
            "pattern": super::pattern::<Self>(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_a_status_or_from_one_to_another() {
        for (text, range) in [
            ("200", 200..=200),
            ("200-399", 200..=399),
            ("404-404", 404..=404),
        ] {
            assert_eq!(text.parse::<StatusRange>(), Ok(StatusRange(range)));
        }
        for wrong in [
            "", "2xx", "199", "600", "399-200", "200-", "-200", "200-600", "+20", "200-3-4",
        ] {
            assert!(wrong.parse::<StatusRange>().is_err(), "{wrong}");
        }
    }
}
