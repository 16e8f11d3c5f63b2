//! Durations between bounds: `250ms`, `15m`, `1h30m`.

use super::bounded::{Bounded, Unit};
use super::{Failure, TextValue, VARIABLE, failure, sentence, text_value};
use crate::clock::duration::{DurationError, parse_micros, show};
use crate::server::HalfClose;

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

    fn read(text: &str, _: &str) -> Result<u64, Failure> {
        parse_micros(text).map_err(no_duration)
    }

    fn show(micros: u64) -> String {
        show(micros)
    }

    fn get(micros: u64) -> std::time::Duration {
        std::time::Duration::from_micros(micros)
    }
}

/// The failure to read a duration, whose texts repeat it.
pub(super) fn no_duration(error: DurationError) -> Failure {
    sentence(error.message, error.help)
}

/// Time for the response to begin or to continue.
type Grace = Duration<0, 3_600_000>;

text_value!(HalfClose);

impl TextValue for HalfClose {
    const EXPECTED: &'static str = "`serve`, or a duration from `0s` to `1h`, as in `250ms`, `1s`";
    const PATTERN: &'static str = "";

    fn read(text: &str) -> Result<Self, Failure> {
        let looks_like_a_word = text.starts_with(|c: char| c.is_ascii_alphabetic());
        match text {
            "serve" => Ok(Self::Serve),
            _ if looks_like_a_word => {
                let help = "write `serve`, or a duration as in `0s`, `1s`";
                Err(failure("is neither `serve` nor a duration", help))
            }
            _ => Grace::read(text).map(|grace| Self::Grace(grace.get())),
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
    fn round_trips_through_text() {
        for text in ["0s", "250ms", "90m", "1w", "75s", "7us"] {
            assert_eq!(
                text.parse::<Any>().map(|duration| duration.to_string()),
                Ok(text.to_owned())
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
