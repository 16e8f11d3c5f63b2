//! Times as texts: for machines without rounding, for people in the units that they say.

use std::fmt;
use std::time::Duration;

use jiff::fmt::temporal::Pieces;
use limiter::Timestamp;
use schemars::JsonSchema;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

/// Microseconds, written as milliseconds with as many digits as they need: 1500 is `1.5`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema)]
#[schemars(inline, with = "f64", extend("minimum" = 0))]
pub struct Millis(pub u64);

impl From<Duration> for Millis {
    fn from(duration: Duration) -> Self {
        Self(whole_micros(duration))
    }
}

impl From<Millis> for Duration {
    fn from(Millis(micros): Millis) -> Self {
        Self::from_micros(micros)
    }
}

impl fmt::Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, below) = (self.0 / 1_000, self.0 % 1_000);
        if below == 0 {
            return write!(f, "{whole}");
        }
        let fraction = format!("{below:03}");
        write!(f, "{whole}.{}", fraction.trim_end_matches('0'))
    }
}

/// A number, digit by digit: a float would round it.
impl Serialize for Millis {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let number = RawValue::from_string(self.to_string());
        number
            .expect("digits and a point are JSON")
            .serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Millis {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let millis = f64::deserialize(deserializer)?;
        Ok(Self((millis * 1_000.0).round() as u64))
    }
}

/// The whole microseconds of a duration.
pub fn whole_micros(duration: Duration) -> u64 {
    Timestamp::EPOCH.saturating_add(duration).as_micros()
}

/// A duration for people, rounded up to its last unit: `600ms`, `1.5s`, `42m 34s`, `2d 4h`.
#[derive(Clone, Copy, Debug)]
pub struct Span(pub Duration);

const MILLI: u64 = 1_000;
const SECOND: u64 = 1_000_000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = whole_micros(self.0);
        let step = match micros {
            0..MILLI => 1,
            MILLI..=9_900 => MILLI / 10,
            9_901..SECOND => MILLI,
            SECOND..=9_900_000 => SECOND / 10,
            9_900_001..DAY => SECOND,
            DAY.. => MINUTE,
        };
        let micros = micros.div_ceil(step).saturating_mul(step);
        match micros {
            0 => f.write_str("0s"),
            1..MILLI => write!(f, "{micros}us"),
            MILLI..SECOND => write_tenths(micros, (MILLI, "ms"), f),
            SECOND..MINUTE => write_tenths(micros, (SECOND, "s"), f),
            MINUTE.. => write_units(micros, f),
        }
    }
}

/// Writes a number of one unit, with a tenth unless that is zero.
fn write_tenths(micros: u64, (unit, name): (u64, &str), f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let (whole, tenths) = (micros / unit, micros % unit / (unit / 10));
    match tenths {
        0 => write!(f, "{whole}{name}"),
        _ => write!(f, "{whole}.{tenths}{name}"),
    }
}

/// Writes days, hours, minutes and seconds without those that are zero.
fn write_units(micros: u64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let units = [
        (micros / DAY, "d"),
        (micros % DAY / HOUR, "h"),
        (micros % HOUR / MINUTE, "m"),
        (micros % MINUTE / SECOND, "s"),
    ];
    let mut gap = "";
    for (count, unit) in units.into_iter().filter(|(count, _)| *count > 0) {
        write!(f, "{gap}{count}{unit}")?;
        gap = " ";
    }
    Ok(())
}

/// The time from one instant to a later one, for people: `34s`, or `42m 34s, at 15:00 UTC` from a
/// minute on.
#[derive(Clone, Copy, Debug)]
pub struct Wait {
    /// The present instant.
    pub now: Timestamp,
    /// The end of the wait.
    pub until: Timestamp,
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let wait = self.until.since(self.now);
        Span(wait).fmt(f)?;
        if wait < Duration::from_micros(MINUTE) {
            Ok(())
        } else {
            write!(f, ", at {}", self.end())
        }
    }
}

impl Wait {
    /// The end in UTC, rounded up to a second; with its date if that is another day.
    fn end(&self) -> impl fmt::Display {
        let until = self
            .until
            .as_micros()
            .div_ceil(SECOND)
            .saturating_mul(SECOND);
        let seconds = if until.is_multiple_of(MINUTE) {
            ""
        } else {
            ":%S"
        };
        let date = if until / DAY == self.now.as_micros() / DAY {
            ""
        } else {
            "%Y-%m-%d "
        };
        instant(until)
            .strftime(&format!("{date}%H:%M{seconds} UTC"))
            .to_string()
    }
}

/// An instant as text (RFC 3339), in UTC.
#[derive(Clone, Copy, Debug, JsonSchema)]
#[schemars(inline, with = "String", extend("format" = "date-time"))]
pub struct Rfc3339(pub Timestamp);

impl Serialize for Rfc3339 {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&rfc_3339(self.0))
    }
}

impl<'de> Deserialize<'de> for Rfc3339 {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let instant = parse_rfc_3339(&text);
        let wrong = || D::Error::custom("expected an instant from 1970 on (RFC 3339)");
        instant.map(Self).ok_or_else(wrong)
    }
}

/// An instant as in RFC 3339, in UTC.
pub fn rfc_3339(time: Timestamp) -> String {
    instant(time.as_micros()).to_string()
}

/// Reads an instant as in RFC 3339; `None` of another text, or before 1970.
pub fn parse_rfc_3339(text: &str) -> Option<Timestamp> {
    timestamp(parse_instant(text)?)
}

/// Reads any instant as in RFC 3339.
pub fn parse_instant(text: &str) -> Option<jiff::Timestamp> {
    text.parse().ok().or_else(|| last_instant(text))
}

/// The instant of jiff in whole microseconds, without finer digits; `None` before 1970.
pub fn timestamp(instant: jiff::Timestamp) -> Option<Timestamp> {
    // Before the epoch, dividing would round up.
    let is_after = instant >= jiff::Timestamp::UNIX_EPOCH;
    let micros = u64::try_from(instant.as_microsecond()).ok()?;
    is_after.then_some(Timestamp::from_micros(micros))
}

/// The last instant of jiff, for an instant of the last day or two of 9999: jiff leaves room for
/// time zones there.
fn last_instant(text: &str) -> Option<jiff::Timestamp> {
    let pieces = Pieces::parse(text).ok()?;
    pieces.time()?;
    pieces.to_numeric_offset()?;
    (pieces.date().year() == 9999).then_some(jiff::Timestamp::MAX)
}

fn instant(micros: u64) -> jiff::Timestamp {
    let micros = i64::try_from(micros).unwrap_or(i64::MAX);
    jiff::Timestamp::from_microsecond(micros).unwrap_or(jiff::Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_rounded_and_no_digit_is_superfluous() {
        let text = |micros| serde_json::to_string(&Millis(micros)).expect("JSON");
        assert_eq!([text(0), text(1_500), text(1)], ["0", "1.5", "0.001"]);
        assert_eq!(text(60_000_000), "60000");
        assert_eq!(text(u64::MAX), "18446744073709551.615");
    }

    #[test]
    fn a_span_has_the_units_that_people_say() {
        let text = |micros| Span(Duration::from_micros(micros)).to_string();
        for (micros, expected) in [
            (0, "0s"),
            (850, "850us"),
            (999_001, "1s"),
            (600_000, "600ms"),
            (1_500, "1.5ms"),
            (501_500, "502ms"),
            (1_500_000, "1.5s"),
            (1_410_000, "1.5s"),
            (9_900_001, "10s"),
            (10_000_001, "11s"),
            (59_000_001, "1m"),
            (90 * SECOND, "1m 30s"),
            (42 * MINUTE + 34 * SECOND, "42m 34s"),
            (HOUR, "1h"),
            (DAY - 1, "1d"),
            (HOUR + 5 * SECOND, "1h 5s"),
            (2 * DAY + 4 * HOUR, "2d 4h"),
            (2 * DAY + SECOND, "2d 1m"),
        ] {
            assert_eq!(text(micros), expected, "{micros}");
        }
        assert!(text(u64::MAX).starts_with("213503982d "));
    }

    /// 2026-11-24T14:17:26Z.
    const NOW: u64 = 1_795_529_846 * SECOND;

    #[test]
    fn a_wait_of_a_minute_says_when_it_ends() {
        let text = |micros| {
            let (now, until) = (Timestamp::from_micros(NOW), NOW.saturating_add(micros));
            let until = Timestamp::from_micros(until);
            Wait { now, until }.to_string()
        };
        assert_eq!(text(34 * SECOND), "34s");
        assert_eq!(text(42 * MINUTE + 34 * SECOND), "42m 34s, at 15:00 UTC");
        assert_eq!(text(MINUTE + 500), "1m 1s, at 14:18:27 UTC");
        assert_eq!(text(DAY), "1d, at 2026-11-25 14:17:26 UTC");
        assert!(text(u64::MAX).ends_with(" UTC"), "no instant is too late");
    }
}
