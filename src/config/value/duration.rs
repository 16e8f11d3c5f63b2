//! Durations: `250ms`, `15m`, `1h30m`.

use std::fmt;

use super::bounded::{Bounded, Unit};
use super::{ParseFailure, TextValue, VARIABLE, failure, text_value};
use crate::server::HalfClose;

/// The units, largest first, with their microseconds.
const UNITS: [(&str, u64); 7] = [
    ("w", 7 * 86_400_000_000),
    ("d", 86_400_000_000),
    ("h", 3_600_000_000),
    ("m", 60_000_000),
    ("s", 1_000_000),
    ("ms", 1_000),
    ("us", 1),
];

/// Words for units, in the singular.
const WORDS: &str = "microsecond=us millisecond=ms msec=ms second=s sec=s minute=m min=m hour=h hr=h day=d week=w month=mo year=y";

/// The unit that a word stands for.
pub(super) fn unit_of(word: &str) -> Option<&'static str> {
    let word = word.to_ascii_lowercase();
    let singular = word.strip_suffix('s').unwrap_or(&word);
    let mut words = WORDS.split(' ').filter_map(|one| one.split_once('='));
    words
        .find(|(known, _)| *known == singular)
        .map(|(_, unit)| unit)
}

/// A span of time, from `MIN` to `MAX` milliseconds. Unless given it is `DEFAULT`.
pub type Duration<const MIN: u64, const MAX: u64, const DEFAULT: u64 = MIN> =
    Bounded<Time, MIN, MAX, DEFAULT>;

/// Writes microseconds with units.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Time {}

impl Unit for Time {
    type Number = std::time::Duration;

    const NAME: &'static str = "Duration";
    const KIND: &'static str = "a duration";
    const EXAMPLES: &'static str = ", as in `250ms`, `15m`, `1h30m`";
    const PATTERN: &'static str = "([0-9]+ *w *)?([0-9]+ *d *)?([0-9]+ *h *)?([0-9]+ *m *)?([0-9]+ *s *)?([0-9]+ *ms *)?([0-9]+ *us)?";
    const SCALE: u64 = 1_000;

    fn parse(text: &str, _: &str) -> Result<u64, ParseFailure> {
        parse_micros(text)
    }

    fn show(micros: u64) -> String {
        show(micros)
    }

    fn get(micros: u64) -> std::time::Duration {
        std::time::Duration::from_micros(micros)
    }
}

/// Parses a duration to microseconds. Units go from large to small, each at most once, and may stand
/// apart from their numbers.
pub(super) fn parse_micros(text: &str) -> Result<u64, ParseFailure> {
    let mut total = 0_u64;
    let mut rest = text;
    let mut units = UNITS.as_slice();
    while !rest.is_empty() {
        let (digits, unit, after) = leading_part(rest);
        let number: u64 = digits.parse().map_err(|_| malformed(text, digits))?;
        let place = units
            .iter()
            .position(|&(name, _)| name == unit)
            .ok_or_else(|| unknown_unit(text, unit))?;
        let (_, micros) = units[place];
        let part = number.checked_mul(micros).ok_or_else(|| too_long(text))?;
        total = total.checked_add(part).ok_or_else(|| too_long(text))?;
        units = &units[place + 1..];
        rest = after;
    }
    if text.is_empty() {
        return Err(malformed(text, ""));
    }
    Ok(total)
}

/// Parses a unit that stands for one of its kind to microseconds. Errors quote `text`, which has it.
pub(super) fn parse_unit(text: &str, unit: &str) -> Result<u64, ParseFailure> {
    let known = UNITS.iter().find(|&&(name, _)| name == unit);
    let &(_, micros) = known.ok_or_else(|| unknown_unit(text, unit))?;
    Ok(micros)
}

/// The leading digits, the letters after them, and the rest, without the spaces between.
fn leading_part(text: &str) -> (&str, &str, &str) {
    let number_end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (digits, after) = text.split_at(number_end);
    let unit_end = after
        .find(|c: char| c.is_ascii_digit())
        .unwrap_or(after.len());
    let (unit, rest) = after.split_at(unit_end);
    (digits, unit.trim_matches(' '), rest)
}

fn malformed(text: &str, digits: &str) -> ParseFailure {
    match digits {
        "" => failure(
            format!("`{text}` isn't a duration"),
            "write whole numbers with a unit each: `250ms`, `15m`, `1h30m`",
        ),
        _ => too_long(text),
    }
}

fn too_long(text: &str) -> ParseFailure {
    failure(
        format!("`{text}` is too long a time"),
        "no key takes as much",
    )
}

fn unknown_unit(text: &str, unit: &str) -> ParseFailure {
    match unit {
        "" => failure(
            format!("`{text}` has no unit"),
            format!("say which is meant: `{text}ms`, `{text}s`, `{text}m`, `{text}h`"),
        ),
        _ if matches!(unit_of(unit).unwrap_or(unit), "mo" | "y") => failure(
            format!("`{text}`: months and years differ in length"),
            "use days, as in `30d`",
        ),
        _ if let Some(known) = unit_of(unit) => failure(
            format!("`{text}` has an unknown unit `{unit}`"),
            format!("did you mean `{}`?", text.replacen(unit, known, 1)),
        ),
        _ if UNITS.iter().any(|&(name, _)| name == unit) => failure(
            format!("`{text}` has its units out of order"),
            "from large to small, each once: `1h30m`",
        ),
        _ if unit.starts_with('.') => failure(
            format!("`{text}` has a fraction"),
            "use the next smaller unit: `1500ms` for 1.5 seconds",
        ),
        _ => failure(
            format!("`{text}` has an unknown unit `{unit}`"),
            "units are `us`, `ms`, `s`, `m` (minutes), `h`, `d` and `w`",
        ),
    }
}

/// Formats a duration in the largest unit that divides it.
pub(super) fn show(micros: u64) -> String {
    let divides = |&&(_, length): &&(&str, u64)| micros >= length && micros.is_multiple_of(length);
    match UNITS.iter().find(divides) {
        Some((unit, length)) => format!("{}{unit}", micros / length),
        None => "0s".to_owned(),
    }
}

pub(super) fn micros(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// Time for the response to begin or to continue.
type Grace = Duration<0, 3_600_000>;

impl fmt::Display for HalfClose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Grace(grace) => f.write_str(&show(micros(*grace))),
            Self::Serve => f.write_str("serve"),
        }
    }
}

text_value!(HalfClose);

impl TextValue for HalfClose {
    const EXPECTED: &'static str = "`serve`, or a duration from `0s` to `1h`, as in `250ms`, `1s`";
    const PATTERN: &'static str = "";

    fn parse(text: &str) -> Result<Self, ParseFailure> {
        let looks_like_a_word = text.starts_with(|c: char| c.is_ascii_alphabetic());
        match text {
            "serve" => Ok(Self::Serve),
            _ if looks_like_a_word => Err(failure(
                format!("`{text}` is neither `serve` nor a duration"),
                "write `serve`, or a duration as in `0s`, `1s`",
            )),
            _ => Grace::parse(text).map(|grace| Self::Grace(grace.get())),
        }
    }

    fn schema() -> serde_json::Value {
        let pattern = format!("^(serve|{})$|{VARIABLE}", Grace::PATTERN);
        serde_json::json!({ "type": "string", "pattern": pattern })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Any = Duration<0, 1_000_000_000_000>;

    #[test]
    fn reads_common_spellings() {
        for (text, micros) in [
            ("250ms", 250_000),
            ("15m", 900_000_000),
            ("1h30m", 5_400_000_000),
            ("0s", 0),
            ("1w2d", 777_600_000_000),
            ("30 s", 30_000_000),
            ("1 h 30 m", 5_400_000_000),
        ] {
            assert_eq!(parse_micros(text), Ok(micros), "{text}");
        }
    }

    #[test]
    fn round_trips_through_text() {
        for text in ["0s", "250ms", "90m", "1w", "75s", "7us"] {
            assert_eq!(
                text.parse::<Any>().map(|duration| duration.to_string()),
                Ok(text.to_owned())
            );
        }
    }

    #[test]
    fn errors_say_what_is_wrong() {
        for (text, message) in [
            ("5", "`5` has no unit"),
            ("", "`` isn't a duration"),
            ("s", "`s` isn't a duration"),
            ("1.5s", "`1.5s` has a fraction"),
            ("30m1h", "`30m1h` has its units out of order"),
            ("1mo", "`1mo`: months and years differ in length"),
            ("1 0s", "`1 0s` has no unit"),
            ("5 parsec", "`5 parsec` has an unknown unit `parsec`"),
            ("30 Minutes", "`30 Minutes` has an unknown unit `Minutes`"),
            ("1month", "`1month`: months and years differ in length"),
            (
                "99999999999999999999s",
                "`99999999999999999999s` is too long a time",
            ),
            (
                "9999999999999999w",
                "`9999999999999999w` is too long a time",
            ),
        ] {
            assert_eq!(
                parse_micros(text).map_err(|(message, _)| message),
                Err(message.to_owned())
            );
        }
    }

    #[test]
    fn keeps_its_bounds() {
        let error = "2h"
            .parse::<Duration<1, 3_600_000>>()
            .map_err(|error| error.help);
        assert_eq!(error, Err(Some("it can be from `1ms` to `1h`".to_owned())));
    }

    #[test]
    fn round_trips_through_text_of_half_close() {
        for text in ["serve", "0s", "250ms", "1h"] {
            let value: Result<HalfClose, _> = text.parse();
            assert_eq!(value.map(|value| value.to_string()), Ok(text.to_owned()));
        }
        assert_eq!(HalfClose::default().to_string(), "1s");
    }

    #[test]
    fn errors_say_what_is_wrong_of_half_close() {
        for (text, message) in [
            ("forever", "`forever` is neither `serve` nor a duration"),
            ("1", "`1` has no unit"),
            ("2h", "`2h` is out of bounds"),
        ] {
            let error = text.parse::<HalfClose>().map_err(|error| error.message);
            assert_eq!(error, Err(message.to_owned()));
        }
    }
}
