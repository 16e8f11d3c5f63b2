//! Statuses of responses: one, or a class of a hundred.

use std::fmt;
use std::ops::RangeInclusive;

use super::{ParseFailure, TextValue, failure, text_value};

/// A status (`404`), or a class of them (`4xx`).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Statuses(RangeInclusive<u16>);

impl Statuses {
    /// The statuses, lowest to highest.
    pub fn range(&self) -> RangeInclusive<u16> {
        self.0.clone()
    }

    /// True if both contain a common status.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.0.start() <= other.0.end() && other.0.start() <= self.0.end()
    }
}

impl Default for Statuses {
    fn default() -> Self {
        Self(100..=100)
    }
}

impl fmt::Display for Statuses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (low, high) = (self.0.start(), self.0.end());
        match low == high {
            true => low.fmt(f),
            false => write!(f, "{}xx", low / 100),
        }
    }
}

text_value!(Statuses);

impl TextValue for Statuses {
    const NAME: &'static str = "Statuses";
    const EXPECTED: &'static str = "a status from 100 to 599, or a class of them: `4xx`";
    const PATTERN: &'static str = "[1-5]([0-9][0-9]|[xX][xX])";

    fn parse(text: &str) -> Result<Self, ParseFailure> {
        let first = text
            .bytes()
            .next()
            .filter(|first| (b'1'..=b'5').contains(first));
        let low = first.map(|first| u16::from(first - b'0') * 100);
        let is_class = text.len() == 3 && text.as_bytes()[1..].eq_ignore_ascii_case(b"xx");
        match (low, text.parse::<u16>()) {
            (Some(low), _) if is_class => Ok(Self(low..=low + 99)),
            (Some(_), Ok(status)) if text.len() == 3 => Ok(Self(status..=status)),
            _ => Err(failure(
                format!("`{text}` is no status"),
                "write a status from 100 to 599, or a class of them: `1xx`, `2xx`, `3xx`, `4xx`, `5xx`",
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
            "minimum": 100,
            "maximum": 599,
            "pattern": super::pattern::<Self>(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_one_and_a_class_a_hundred() {
        for (text, range) in [
            ("404", 404..=404),
            ("100", 100..=100),
            ("599", 599..=599),
            ("4xx", 400..=499),
            ("5XX", 500..=599),
        ] {
            let read = Statuses::parse(text).expect("a status");
            assert_eq!(read.range(), range);
            assert_eq!(read.to_string(), text.to_lowercase());
        }
        for wrong in [
            "", "4x", "4xxx", "x4x", "600", "6xx", "0xx", "99", "40 ", "+40", "1000", "4x4", "4é",
        ] {
            assert!(Statuses::parse(wrong).is_err(), "{wrong}");
        }
    }
}
