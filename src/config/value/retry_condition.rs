//! Conditions of retries: a kind of failure, or a status.

use derive_more::Display;
use http::StatusCode;

use super::{ParseFailure, TextValue, failure, text_value};

/// A failure that is followed by another attempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Display)]
#[display(rename_all = "snake_case")]
pub enum RetryCondition {
    /// There is no connection.
    #[default]
    ConnectFailure,
    /// The endpoint has not processed the request.
    Refused,
    /// The connection breaks, or the response is not valid.
    Reset,
    /// The response is late.
    Timeout,
    /// The response has this status, 500 to 599.
    #[display("{}", _0.as_u16())]
    Status(StatusCode),
}

text_value!(RetryCondition);

impl TextValue for RetryCondition {
    const NAME: &'static str = "RetryCondition";
    const EXPECTED: &'static str =
        "`connect_failure`, `refused`, `reset`, `timeout`, or a status from 500 to 599";
    const PATTERN: &'static str = "connect_failure|refused|reset|timeout|5[0-9][0-9]";

    fn parse(text: &str) -> Result<Self, ParseFailure> {
        let status = || {
            let number = text.parse().ok().filter(|_| text.len() == 3)?;
            StatusCode::from_u16(number)
                .ok()
                .filter(StatusCode::is_server_error)
        };
        Ok(match text {
            "connect_failure" => Self::ConnectFailure,
            "refused" => Self::Refused,
            "reset" => Self::Reset,
            "timeout" => Self::Timeout,
            _ => match status() {
                Some(status) => Self::Status(status),
                None => {
                    return Err(failure(
                        format!("`{text}` is no reason to retry"),
                        format!("write {}", Self::EXPECTED),
                    ));
                }
            },
        })
    }

    fn schema() -> serde_json::Value {
        serde_json::json!({
            "type": ["integer", "string"],
            "minimum": 500,
            "maximum": 599,
            "pattern": super::pattern::<Self>(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            assert_eq!(error, Err(format!("`{text}` is no reason to retry")));
        }
    }
}
