//! Refills of a token bucket: tokens per interval, as in `1 per 10ms`.

use std::fmt;
use std::time::Duration;

use super::duration::show;
use super::quota::{parse_limit, parse_span};
use super::{ParseFailure, TextValue, failure, text_value};

/// Tokens that return together, and the interval: 1 to 2^32 - 1 tokens, 1 ms to 366 days.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refill {
    amount: u32,
    interval_micros: u64,
}

impl Refill {
    /// Tokens per interval, at least one.
    pub const fn amount(self) -> u32 {
        self.amount
    }

    /// The interval.
    pub const fn interval(self) -> Duration {
        Duration::from_micros(self.interval_micros)
    }
}

/// One per second: a stand-in for an unreadable refill.
impl Default for Refill {
    fn default() -> Self {
        Self {
            amount: 1,
            interval_micros: 1_000_000,
        }
    }
}

impl fmt::Display for Refill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} per {}", self.amount, show(self.interval_micros))
    }
}

text_value!(Refill);

impl TextValue for Refill {
    const NAME: &'static str = "Refill";
    const EXPECTED: &'static str =
        "a refill: tokens per interval, as in `1 per 10ms`, `100 per 1h`";
    const PATTERN: &'static str =
        "[0-9]+ +per +([0-9]+(us|ms|s|m|h|d|w))+|[0-9]+ +per +(us|ms|s|m|h|d|w)";

    fn parse(text: &str) -> Result<Self, ParseFailure> {
        let words: Vec<_> = text.split_ascii_whitespace().collect();
        let [amount, "per", interval] = words[..] else {
            let message = format!("`{text}` is no refill");
            return Err(failure(
                message,
                "say how many tokens come back how often: `1 per 10ms`",
            ));
        };
        let amount = parse_limit(text, amount)?;
        if amount == 0 {
            let message = format!("`{text}` gives nothing back");
            return Err(failure(
                message,
                "one token at least; `quota: 0/1s` is what refuses always",
            ));
        }
        Ok(Self {
            amount,
            interval_micros: parse_span(text, interval)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_tokens_per_interval() {
        let read = |text| Refill::parse(text).map(|refill| (refill.amount, refill.interval_micros));
        assert_eq!(read("1 per 10ms"), Ok((1, 10_000)));
        assert_eq!(read("100  per h"), Ok((100, 3_600_000_000)));
        assert_eq!(
            Refill::parse("7 per 90m").map(|refill| refill.to_string()),
            Ok("7 per 90m".to_owned())
        );
    }

    #[test]
    fn errors_say_what_is_wrong() {
        for (text, message) in [
            ("1/10ms", "`1/10ms` is no refill"),
            ("0 per 1s", "`0 per 1s` gives nothing back"),
            ("x per 1s", "`x per 1s` does not start with a whole number"),
            ("1 per 10", "`10` has no unit"),
            ("1 per 1us", "the window of `1 per 1us` is out of bounds"),
            ("1 per 1mo", "`1mo`: months and years differ in length"),
        ] {
            let read = Refill::parse(text).map_err(|(message, _)| message);
            assert_eq!(read, Err(message.to_owned()));
        }
    }
}
