//! Statuses of responses, and conditions of retries.

use std::borrow::Cow;
use std::fmt;
use std::ops::RangeInclusive;

use http::StatusCode;

use super::{Failure, TextValue, failure, text_value};
use crate::upstream::RetryCondition;

/// The highest status.
const MAX: u16 = 599;

/// A status (`404`), a class of them (`4xx`), or a range (`200-399`), from `MIN` to 599. The default
/// stands in for an unreadable range, which is reported: it equals no readable one.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Statuses<const MIN: u16> {
    low: u16,
    high: u16,
}

impl<const MIN: u16> Statuses<MIN> {
    /// The statuses from `low` to `high`.
    pub const fn new(low: u16, high: u16) -> Self {
        Self { low, high }
    }

    /// The statuses, lowest to highest.
    pub fn range(&self) -> RangeInclusive<u16> {
        self.low..=self.high
    }

    /// True if both contain a common status.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.low <= other.high && other.low <= self.high
    }
}

impl<const MIN: u16> fmt::Display for Statuses<MIN> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { low, high } = self;
        match high - low {
            0 => low.fmt(f),
            99 if low.is_multiple_of(100) => write!(f, "{}xx", low / 100),
            _ => write!(f, "{low}-{high}"),
        }
    }
}

text_value!(Statuses<MIN>, [const MIN: u16]);

impl<const MIN: u16> TextValue for Statuses<MIN> {
    const EXPECTED: &'static str = "a status";
    const PATTERN: &'static str = if MIN < 200 {
        "[1-5]([0-9][0-9](-[1-5][0-9][0-9])?|[xX][xX])"
    } else {
        "[2-5]([0-9][0-9](-[2-5][0-9][0-9])?|[xX][xX])"
    };

    fn name() -> Cow<'static, str> {
        format!("StatusesFrom{MIN}").into()
    }

    fn expected() -> Cow<'static, str> {
        format!("a status from {MIN} to {MAX}, a class of them, `4xx`, or a range: `200-399`")
            .into()
    }

    fn read(text: &str) -> Result<Self, Failure> {
        let lower = text.to_ascii_lowercase();
        let (low, high) = match (lower.strip_suffix("xx"), lower.split_once('-')) {
            (Some(class), _) => (format!("{class}00"), format!("{class}99")),
            (None, Some((low, high))) => (low.to_owned(), high.to_owned()),
            (None, None) => (lower.clone(), lower),
        };
        let status = |text: String| {
            let is_number = text.len() == 3 && text.bytes().all(|byte| byte.is_ascii_digit());
            let number = text.parse().ok().filter(|_| is_number)?;
            (MIN..=MAX).contains(&number).then_some(number)
        };
        match (status(low), status(high)) {
            (Some(low), Some(high)) if low <= high => Ok(Self { low, high }),
            (Some(low), Some(high)) => {
                let meant = format!("did you mean `{high}-{low}`?");
                Err(failure("has no status", meant))
            }
            _ => {
                let problem = format!("isn't a status from {MIN} to {MAX}");
                let help =
                    "write a status (`404`), a class of them (`4xx`), or a range (`200-399`)";
                Err(failure(problem, help))
            }
        }
    }

    fn to_json(&self) -> serde_json::Value {
        if self.low == self.high {
            self.low.into()
        } else {
            self.to_string().into()
        }
    }

    fn schema() -> serde_json::Value {
        super::number_schema::<Self>(MIN.into(), MAX.into())
    }
}

text_value!(RetryCondition);

impl TextValue for RetryCondition {
    const EXPECTED: &'static str =
        "`connect_failure`, `refused`, `reset`, `timeout`, or a status from 500 to 599";
    const PATTERN: &'static str = "connect_failure|refused|reset|timeout|5[0-9][0-9]";

    fn read(text: &str) -> Result<Self, Failure> {
        let status = StatusCode::from_bytes(text.as_bytes()).ok();
        Ok(match text {
            "connect_failure" => Self::ConnectFailure,
            "refused" => Self::Refused,
            "reset" => Self::Reset,
            "timeout" => Self::Timeout,
            _ => {
                let status = status.filter(StatusCode::is_server_error);
                let help = || format!("write {}", Self::EXPECTED);
                let wrong = || failure("isn't a reason to retry", help());
                Self::Status(status.ok_or_else(wrong)?)
            }
        })
    }

    fn schema() -> serde_json::Value {
        super::number_schema::<Self>(500, 599)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_one_a_class_a_hundred_and_a_range_all_between() {
        for (text, range) in [
            ("404", 404..=404),
            ("100", 100..=100),
            ("599", 599..=599),
            ("4xx", 400..=499),
            ("5XX", 500..=599),
            ("200-399", 200..=399),
        ] {
            let read = Statuses::<100>::parse(text).expect("a status");
            assert_eq!(read.range(), range);
            assert_eq!(read.to_string(), text.to_lowercase());
        }
        for wrong in [
            "", "4x", "4xxx", "x4x", "600", "6xx", "0xx", "99", "40 ", "+40", "1000", "4x4", "4é",
            "399-200", "200-", "-200", "200-600", "200-3-4", "4-5xx",
        ] {
            assert!(Statuses::<100>::parse(wrong).is_err(), "{wrong}");
        }
        for informational in ["199", "1xx", "100-299"] {
            assert!(
                Statuses::<200>::parse(informational).is_err(),
                "{informational}"
            );
        }
    }

    #[test]
    fn round_trips_through_text() {
        for text in ["connect_failure", "refused", "reset", "timeout", "503"] {
            let value = text
                .parse::<RetryCondition>()
                .map(|value| value.to_string());
            assert_eq!(value, Ok(text.to_owned()));
        }
    }

    #[test]
    fn other_words_and_statuses_are_errors() {
        for text in ["", "5xx", "429", "600", "+500", "0503", "resets"] {
            let error = text
                .parse::<RetryCondition>()
                .map_err(|error| error.message);
            assert_eq!(error, Err(format!("`{text}` isn't a reason to retry")));
        }
    }
}
