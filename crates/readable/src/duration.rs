//! Durations as people write them, in the configuration, the admin API and the command line:
//! `250ms`, `15m`, `1h30m`.

/// The reason why a text isn't a duration. Both texts repeat it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DurationError {
    /// The problem, without a full stop.
    pub message: String,
    /// Advice.
    pub help: String,
}

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
pub fn unit_of(word: &str) -> Option<&'static str> {
    let word = word.to_ascii_lowercase();
    let singular = word.strip_suffix('s').unwrap_or(&word);
    let mut words = WORDS.split(' ').filter_map(|one| one.split_once('='));
    words
        .find(|(known, _)| *known == singular)
        .map(|(_, unit)| unit)
}

/// Parses a duration to microseconds. Units go from large to small, each at most once, and may stand
/// apart from their numbers.
///
/// # Errors
/// Another text, or a duration that no `u64` has.
pub fn parse_micros(text: &str) -> Result<u64, DurationError> {
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
///
/// # Errors
/// An unknown unit.
pub fn parse_unit(text: &str, unit: &str) -> Result<u64, DurationError> {
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

fn malformed(text: &str, digits: &str) -> DurationError {
    match digits {
        "" => failure(
            format!("`{text}` isn't a duration"),
            "write whole numbers with a unit each: `250ms`, `15m`, `1h30m`",
        ),
        _ => too_long(text),
    }
}

fn too_long(text: &str) -> DurationError {
    failure(
        format!("`{text}` is too long a time"),
        "no key takes as much",
    )
}

fn unknown_unit(text: &str, unit: &str) -> DurationError {
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
pub fn show(micros: u64) -> String {
    let divides = |&&(_, length): &&(&str, u64)| micros >= length && micros.is_multiple_of(length);
    match UNITS.iter().find(divides) {
        Some((unit, length)) => format!("{}{unit}", micros / length),
        None => "0s".to_owned(),
    }
}

fn failure(message: impl Into<String>, help: impl Into<String>) -> DurationError {
    DurationError {
        message: message.into(),
        help: help.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
                parse_micros(text).map_err(|error| error.message),
                Err(message.to_owned())
            );
        }
    }
}
