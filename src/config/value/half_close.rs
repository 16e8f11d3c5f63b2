//! Handling of requests whose client has closed its side of the connection.

use std::fmt;

use super::duration::{micros, show};
use super::{Duration, ParseFailure, TextValue, VARIABLE, failure, text_value};
use crate::server::HalfClose;

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
    const NAME: &'static str = "HalfClose";
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

    #[test]
    fn round_trips_through_text() {
        for text in ["serve", "0s", "250ms", "1h"] {
            let value: Result<HalfClose, _> = text.parse();
            assert_eq!(value.map(|value| value.to_string()), Ok(text.to_owned()));
        }
        assert_eq!(HalfClose::default().to_string(), "1s");
    }

    #[test]
    fn errors_say_what_is_wrong() {
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
