//! Quotas: how many units per window, as in `100/1m`.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use super::duration::{parse_micros, show};
use super::{TextValue, Wrong, text_value, wrong};

/// The longest window: a year of 366 days.
const MAX_WINDOW: u64 = 366 * 86_400_000_000;
/// The shortest window.
const MIN_WINDOW: u64 = 1_000;

/// Units per window: up to 2^32 - 1 of them, in 1 ms to 366 days. A quota of 0 refuses always.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    limit: u32,
    window_micros: u64,
}

impl Quota {
    /// The units in a window.
    pub const fn limit(self) -> u32 {
        self.limit
    }

    /// The window, in whole microseconds.
    pub const fn window(self) -> Duration {
        Duration::from_micros(self.window_micros)
    }
}

/// One a second; it only ever stands in for a quota that could not be read.
impl Default for Quota {
    fn default() -> Self {
        Self {
            limit: 1,
            window_micros: 1_000_000,
        }
    }
}

impl fmt::Display for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.limit, show(self.window_micros))
    }
}

text_value!(Quota);

impl TextValue for Quota {
    const PATTERN: &'static str = "[0-9]+/([0-9]+(us|ms|s|m|h|d|w))+|[0-9]+/(us|ms|s|m|h|d|w)";

    fn name() -> Cow<'static, str> {
        "Quota".into()
    }

    fn expected() -> Cow<'static, str> {
        "a quota: units per window, as in `10/s`, `100/1m`, `5000/1h`".into()
    }

    fn parse(text: &str) -> Result<Self, Wrong> {
        let Some((limit, window)) = text.split_once('/') else {
            let number = if text.bytes().all(|b| b.is_ascii_digit()) && !text.is_empty() {
                text
            } else {
                "100"
            };
            let help =
                format!("say how many in which time: `{number}/s`, `{number}/1m`, `{number}/1h`");
            return Err(wrong(format!("`{text}` has no window"), help));
        };
        Ok(Self {
            limit: parse_limit(text, limit)?,
            window_micros: parse_window(text, window)?,
        })
    }
}

fn parse_limit(text: &str, limit: &str) -> Result<u32, Wrong> {
    if limit.is_empty() || !limit.bytes().all(|b| b.is_ascii_digit()) {
        return Err(wrong(
            format!("`{text}` does not start with a whole number"),
            "as in `100/1m`: a hundred a minute",
        ));
    }
    limit.parse().map_err(|_| {
        wrong(
            format!("`{text}` is more than 4294967295"),
            "count in a coarser unit, as in KiB or MiB instead of bytes",
        )
    })
}

fn parse_window(text: &str, window: &str) -> Result<u64, Wrong> {
    let lone_unit = !window.is_empty() && window.bytes().all(|b| b.is_ascii_alphabetic());
    let micros = match (lone_unit, window) {
        (true, "sec" | "second") => return Err(window_unit(text, window, "s")),
        (true, "min" | "minute") => return Err(window_unit(text, window, "m")),
        (true, "hour") => return Err(window_unit(text, window, "h")),
        (true, "day") => return Err(window_unit(text, window, "d")),
        (true, unit) => parse_micros(&format!("1{unit}"))?,
        (false, window) => parse_micros(window)?,
    };
    match micros {
        MIN_WINDOW..=MAX_WINDOW => Ok(micros),
        _ => Err(wrong(
            format!("the window of `{text}` is out of bounds"),
            "it can be from `1ms` to `366d`",
        )),
    }
}

fn window_unit(text: &str, window: &str, unit: &str) -> Wrong {
    wrong(
        format!("`{text}` has an unknown unit `{window}`"),
        format!("did you mean `{}{unit}`?", text.trim_end_matches(window)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<(u32, u64), String> {
        Quota::parse(text)
            .map(|quota| (quota.limit, quota.window_micros))
            .map_err(|(message, _)| message)
    }

    #[test]
    fn reads_units_per_window() {
        assert_eq!(read("100/s"), Ok((100, 1_000_000)));
        assert_eq!(read("100/1m"), Ok((100, 60_000_000)));
        assert_eq!(read("5000/1h30m"), Ok((5000, 5_400_000_000)));
        assert_eq!(read("0/1s"), Ok((0, 1_000_000)));
        assert_eq!(read("4294967295/1d"), Ok((u32::MAX, 86_400_000_000)));
    }

    #[test]
    fn says_what_is_wrong() {
        for (text, message) in [
            ("100", "`100` has no window"),
            ("100/60", "`60` has no unit"),
            ("/1m", "`/1m` does not start with a whole number"),
            ("1.5/s", "`1.5/s` does not start with a whole number"),
            ("4294967296/s", "`4294967296/s` is more than 4294967295"),
            ("100/min", "`100/min` has an unknown unit `min`"),
            ("3/1mo", "`1mo`: months and years differ in length"),
            ("3/0s", "the window of `3/0s` is out of bounds"),
            ("3/53w", "the window of `3/53w` is out of bounds"),
        ] {
            assert_eq!(read(text), Err(message.to_owned()));
        }
    }
}
