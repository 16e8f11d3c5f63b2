//! Quotas: units per window, as in `100/1m` and `3/1mo`; and refills, as in `1 per 10ms`.

use std::fmt;
use std::time::Duration;

use derive_more::Display;
use readable::money::amount;

use super::duration::no_duration;
use super::{Failure, TextValue, failure, sentence, text_value};
use crate::clock::duration::{parse_micros, parse_unit, show, unit_of};
use crate::clock::whole_micros;
use crate::limiter::algorithms::FixedWindow;

/// The longest window: a year of 366 days.
const MAX_WINDOW: u64 = 366 * 86_400_000_000;
/// The most units of a quota.
pub const MOST: u64 = FixedWindow::MOST;
/// The shortest window.
const MIN_WINDOW: u64 = 1_000;

/// Units per window: up to [`FixedWindow::MOST`] of them, in 1 ms to 366 days. A quota of 0 refuses
/// always.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    limit: u64,
    window: Window,
    /// The units are millionths of a dollar, and are written in dollars.
    is_money: bool,
}

impl fmt::Display for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.show_units(self.limit), self.window)
    }
}

/// The window of a quota: 1 ms to 366 days, or a unit of the calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Window {
    /// So many microseconds.
    Micros(u64),
    /// A unit of the calendar, where a fixed window follows it.
    Calendar(CalendarUnit),
}

/// A window that is also a unit of the calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CalendarUnit {
    /// `1d`; 24 hours outside the calendar.
    Day,
    /// `1w`; 7 days outside the calendar.
    Week,
    /// `1mo`, which has no length of its own.
    Month,
    /// `1y`, which has no length of its own.
    Year,
}

impl CalendarUnit {
    /// Every unit with its symbol and its microseconds; the longest month and year.
    const ALL: [(Self, &'static str, u64); 4] = [
        (Self::Day, "d", 86_400_000_000),
        (Self::Week, "w", 7 * 86_400_000_000),
        (Self::Month, "mo", 31 * 86_400_000_000),
        (Self::Year, "y", 366 * 86_400_000_000),
    ];

    fn row(self) -> (Self, &'static str, u64) {
        let row = Self::ALL.into_iter().find(|(unit, ..)| *unit == self);
        row.expect("every unit is listed")
    }

    /// True if all windows of this unit are equally long, changes of the clock aside.
    pub const fn has_length(self) -> bool {
        matches!(self, Self::Day | Self::Week)
    }
}

impl Quota {
    /// So many units per window.
    pub const fn new(limit: u64, window: Window) -> Self {
        Self {
            limit,
            window,
            is_money: false,
        }
    }

    /// True if it is written in dollars.
    pub const fn is_money(self) -> bool {
        self.is_money
    }

    /// A number of its units as text.
    pub fn show_units(self, units: u64) -> String {
        amount(units, self.is_money)
    }

    /// The units in a window.
    pub const fn limit(self) -> u64 {
        self.limit
    }

    /// The window, in whole microseconds; for a month or a year the longest one.
    pub fn window(self) -> Duration {
        Duration::from_micros(match self.window {
            Window::Micros(micros) => micros,
            Window::Calendar(unit) => unit.row().2,
        })
    }

    /// The calendar unit of the window, if it is one.
    pub const fn calendar(self) -> Option<CalendarUnit> {
        match self.window {
            Window::Calendar(unit) => Some(unit),
            Window::Micros(_) => None,
        }
    }
}

/// Shows a duration so that it does not read like a day or a week of the calendar.
impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [(_, _, day), (_, _, week), ..] = CalendarUnit::ALL;
        match *self {
            Self::Calendar(unit) => write!(f, "1{}", unit.row().1),
            Self::Micros(micros) if micros == day => f.write_str("24h"),
            Self::Micros(micros) if micros == week => f.write_str("7d"),
            Self::Micros(micros) => f.write_str(&show(micros)),
        }
    }
}

text_value!(Quota = "1/1s");
text_value!(Window = "1s");

impl TextValue for Window {
    const EXPECTED: &'static str = "a window: `1s`, `1m`, `1h30m`, `1d` or `1mo`";
    const PATTERN: &'static str = "([0-9]+(us|ms|s|m|h|d|w))+|(us|ms|s|m|h|d|w)|1?(mo|y)";

    fn read(text: &str) -> Result<Self, Failure> {
        read_window(text, text)
    }
}

impl TextValue for Quota {
    const EXPECTED: &'static str = "a quota: units per window, as in `10/s`, `100/1m`, `5000/1h`, `3/1mo`, or dollars, `$500/1mo`";
    const PATTERN: &'static str = r"([0-9]+|\$[0-9]+(\.[0-9]{1,6})?) */ *(([0-9]+ *(us|ms|s|m|h|d|w) *)+|(us|ms|s|m|h|d|w)|1? *(mo|y))";

    fn read(text: &str) -> Result<Self, Failure> {
        let Some((limit, window)) = text.split_once('/') else {
            if matches!(text, "unlimited" | "infinite" | "none" | "off") {
                return Err("leave the limit out, or say who has none with `exempt`".into());
            }
            let is_number = text.bytes().all(|b| b.is_ascii_digit()) && !text.is_empty();
            let number = if is_number { text } else { "100" };
            let help =
                format!("say how many in which time: `{number}/s`, `{number}/1m`, `{number}/1h`");
            return Err(failure("has no window", help));
        };
        let (limit, window) = (limit.trim_end_matches(' '), window.trim_start_matches(' '));
        let dollars = limit.strip_prefix('$');
        Ok(Self {
            limit: match dollars {
                Some(dollars) => read_dollars(dollars, MOST)?,
                None => read_limit(limit, MOST)?,
            },
            window: read_window(text, window)?,
            is_money: dollars.is_some(),
        })
    }
}

/// Reads dollars to millionths of them, at most `most`.
pub(super) fn read_dollars(written: &str, most: u64) -> Result<u64, Failure> {
    let help = "write dollars with at most six decimals, as in `$500` or `$0.50`";
    let (whole, rest) = written.split_once('.').unwrap_or((written, "0"));
    let is_fine = [whole, rest]
        .iter()
        .all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()));
    if !is_fine || rest.len() > 6 {
        return Err(failure("isn't an amount of dollars", help));
    }
    let digits = format!("{whole}{rest:0<6}").parse();
    let limit = digits.ok().filter(|limit| *limit <= most);
    limit.ok_or_else(|| {
        let help = "write a quota for a shorter window, as in `$1000/1w`";
        failure(format!("is more than {}", amount(most, true)), help)
    })
}

fn read_limit(limit: &str, most: u64) -> Result<u64, Failure> {
    if limit.is_empty() || !limit.bytes().all(|b| b.is_ascii_digit()) {
        let problem = "does not start with a whole number";
        return Err(failure(problem, "as in `100/1m`: a hundred a minute"));
    }
    let help = "write the same rate for a shorter window: `1000000/1s` is `3600000000/1h`";
    let limit = limit.parse().ok().filter(|limit| *limit <= most);
    limit.ok_or_else(|| failure(format!("is more than {most}"), help))
}

fn read_window(text: &str, window: &str) -> Result<Window, Failure> {
    let symbol = window.trim_start_matches(|c: char| c.is_ascii_digit());
    let number = &window[..window.len() - symbol.len()];
    let symbol = symbol.trim_matches(' ');
    if let ("" | "1", Some(short @ ("mo" | "y"))) = (number, unit_of(symbol)) {
        return Err(window_unit(text, symbol, short));
    }
    let mut units = CalendarUnit::ALL.iter();
    let unit = units.find(|(_, known, _)| *known == symbol);
    match (number, unit) {
        ("" | "1", Some((unit, ..))) => Ok(Window::Calendar(*unit)),
        (_, Some((unit, ..))) if !unit.has_length() => {
            let message = format!("`{window}`: months and years differ in length");
            let help = format!("a quota is for one of them, `1{symbol}`, or for days, as in `30d`");
            Err(sentence(message, help))
        }
        _ => read_span(text, window).map(Window::Micros),
    }
}

/// Parses a window of fixed length to microseconds.
fn read_span(text: &str, window: &str) -> Result<u64, Failure> {
    let lone_unit = !window.is_empty() && window.bytes().all(|b| b.is_ascii_alphabetic());
    let micros = match unit_of(window) {
        Some(unit) => return Err(window_unit(text, window, unit)),
        None if lone_unit => parse_unit(text, window).map_err(no_duration)?,
        None => parse_micros(window).map_err(no_duration)?,
    };
    if (MIN_WINDOW..=MAX_WINDOW).contains(&micros) {
        return Ok(micros);
    }
    let help = "it can be from `1ms` to `366d`";
    Err(failure("has a window that is out of bounds", help))
}

fn window_unit(text: &str, window: &str, unit: &str) -> Failure {
    let meant = format!("did you mean `{}{unit}`?", text.trim_end_matches(window));
    failure(format!("has an unknown unit `{window}`"), meant)
}

/// Tokens that return together, and the interval: 1 to 2^32 - 1 tokens, 1 ms to 366 days.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display)]
#[display("{amount} per {}", show(whole_micros(*interval)))]
pub struct Refill {
    /// Tokens per interval, at least one.
    pub amount: u32,
    /// The interval, in whole microseconds.
    pub interval: Duration,
}

text_value!(Refill = "1 per 1s");

impl TextValue for Refill {
    const EXPECTED: &'static str =
        "a refill: tokens per interval, as in `1 per 10ms`, `100 per 1h`";
    const PATTERN: &'static str =
        "[0-9]+ +per +([0-9]+(us|ms|s|m|h|d|w))+|[0-9]+ +per +(us|ms|s|m|h|d|w)";

    fn read(text: &str) -> Result<Self, Failure> {
        let words: Vec<_> = text.split_ascii_whitespace().collect();
        let [amount, "per", interval] = words[..] else {
            return Err("say how many tokens come back how often: `1 per 10ms`".into());
        };
        let amount = read_limit(amount, u32::MAX.into())? as u32;
        if amount == 0 {
            let help = "one token at least; `quota: 0/1s` is what refuses always";
            return Err(failure("gives nothing back", help));
        }
        Ok(Self {
            amount,
            interval: Duration::from_micros(read_span(text, interval)?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<(u64, u64), String> {
        Quota::parse(text)
            .map(|quota| (quota.limit, whole_micros(quota.window())))
            .map_err(|error| error.message)
    }

    #[test]
    fn reads_units_per_window() {
        assert_eq!(read("100/s"), Ok((100, 1_000_000)));
        assert_eq!(read("100 / 1 m"), Ok((100, 60_000_000)));
        assert_eq!(read("100/ s"), Ok((100, 1_000_000)));
        assert_eq!(read("100/1m"), Ok((100, 60_000_000)));
        assert_eq!(read("5000/1h30m"), Ok((5000, 5_400_000_000)));
        assert_eq!(read("0/1s"), Ok((0, 1_000_000)));
        assert_eq!(read("549755813887/1d"), Ok((MOST, 86_400_000_000)));
    }

    #[test]
    fn dollars_are_counted_in_millionths() {
        for (text, limit, shown) in [
            ("$500/1mo", 500_000_000, "$500/1mo"),
            ("$0.5 / 1h", 500_000, "$0.50/1h"),
            ("$0.000001/s", 1, "$0.000001/1s"),
            ("$12.125/1d", 12_125_000, "$12.125/1d"),
            ("$250000/1mo", 250_000_000_000, "$250000/1mo"),
            ("$549755.813887/1y", MOST, "$549755.813887/1y"),
            ("$0/1d", 0, "$0/1d"),
        ] {
            let quota = Quota::parse(text).unwrap();
            assert_eq!((quota.limit(), quota.is_money()), (limit, true), "{text}");
            assert_eq!(quota.to_string(), shown);
        }
        for (text, message) in [
            (
                "$549755.813888/1mo",
                "`$549755.813888/1mo` is more than $549755.813887",
            ),
            (
                "$99999999999/1mo",
                "`$99999999999/1mo` is more than $549755.813887",
            ),
            (
                "$1.1234567/1d",
                "`$1.1234567/1d` isn't an amount of dollars",
            ),
            ("$/1d", "`$/1d` isn't an amount of dollars"),
            ("$1./1d", "`$1./1d` isn't an amount of dollars"),
            ("$.5/1d", "`$.5/1d` isn't an amount of dollars"),
            ("$-1/1d", "`$-1/1d` isn't an amount of dollars"),
            ("1.5$/1d", "`1.5$/1d` does not start with a whole number"),
            ("$5", "`$5` has no window"),
        ] {
            assert_eq!(read(text).expect_err(text), message);
        }
    }

    #[test]
    fn one_day_week_month_or_year_is_of_the_calendar() {
        for (text, unit) in [
            ("1/d", Some(CalendarUnit::Day)),
            ("1/1w", Some(CalendarUnit::Week)),
            ("1/mo", Some(CalendarUnit::Month)),
            ("1/1y", Some(CalendarUnit::Year)),
            ("1/24h", None),
            ("1/7d", None),
        ] {
            assert_eq!(Quota::parse(text).map(Quota::calendar), Ok(unit), "{text}");
        }
        for text in ["5/1d", "5/1w", "5/1mo", "5/1y", "5/2d"] {
            assert_eq!(Quota::parse(text).unwrap().to_string(), text);
        }
        // Common spellings elsewhere.
        assert_eq!(Quota::parse("5/24h").unwrap().to_string(), "5/24h");
        assert_eq!(Quota::parse("5/7d").unwrap().to_string(), "5/7d");
    }

    #[test]
    fn errors_say_what_is_wrong() {
        for (text, message) in [
            ("100", "`100` has no window"),
            ("100/60", "`60` has no unit"),
            ("/1m", "`/1m` does not start with a whole number"),
            ("1.5/s", "`1.5/s` does not start with a whole number"),
            (
                "549755813888/s",
                "`549755813888/s` is more than 549755813887",
            ),
            ("100/min", "`100/min` has an unknown unit `min`"),
            ("300/zz", "`300/zz` has an unknown unit `zz`"),
            ("300/5zz", "`5zz` has an unknown unit `zz`"),
            ("3/months", "`3/months` has an unknown unit `months`"),
            ("3/1month", "`3/1month` has an unknown unit `month`"),
            ("3/5minutes", "`5minutes` has an unknown unit `minutes`"),
            ("3 4/s", "`3 4/s` does not start with a whole number"),
            ("3/2mo", "`2mo`: months and years differ in length"),
            ("3/1y1d", "`1y1d`: months and years differ in length"),
            ("3/0s", "`3/0s` has a window that is out of bounds"),
            ("3/53w", "`3/53w` has a window that is out of bounds"),
        ] {
            assert_eq!(read(text), Err(message.to_owned()));
        }
    }

    #[test]
    fn reads_tokens_per_interval() {
        let parts = |refill: Refill| (refill.amount, whole_micros(refill.interval));
        let read = |text| Refill::parse(text).map(parts);
        assert_eq!(read("1 per 10ms"), Ok((1, 10_000)));
        assert_eq!(read("100  per h"), Ok((100, 3_600_000_000)));
        assert_eq!(
            Refill::parse("7 per 90m").map(|refill| refill.to_string()),
            Ok("7 per 90m".to_owned())
        );
    }

    #[test]
    fn errors_say_what_is_wrong_of_refill() {
        for (text, message) in [
            ("1/10ms", "`1/10ms` isn't a refill"),
            ("0 per 1s", "`0 per 1s` gives nothing back"),
            ("x per 1s", "`x per 1s` does not start with a whole number"),
            ("1 per 10", "`10` has no unit"),
            (
                "1 per 1us",
                "`1 per 1us` has a window that is out of bounds",
            ),
            ("1 per 1mo", "`1mo`: months and years differ in length"),
        ] {
            let read = Refill::parse(text).map_err(|error| error.message);
            assert_eq!(read, Err(message.to_owned()));
        }
    }
}
