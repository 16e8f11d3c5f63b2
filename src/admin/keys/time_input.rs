//! Instants and durations as the body of a request has them.

use std::time::Duration;

use crate::admin::problem_details::ProblemDetails;
use crate::clock::{Timestamp, duration, text};
use crate::visible;

/// The shortest grant or ban by its length, in microseconds.
const SHORTEST: u64 = 1_000;

/// The most characters of a text that an error repeats.
const MAX_SHOWN: usize = 200;

/// An instant. One before 1970 is over, and one beyond what a `Timestamp` may be is far away.
///
/// # Errors
/// The text is no instant of RFC 3339.
pub(super) fn instant(text: &str) -> Result<Timestamp, ProblemDetails> {
    let instant = text::parse_instant(text).ok_or_else(|| {
        let detail = "`until` is an instant, such as 2026-11-24T18:00:00Z (RFC 3339); `for` takes \
                      a duration";
        ProblemDetails::impossible(detail)
    })?;
    Ok(text::timestamp(instant).unwrap_or(Timestamp::EPOCH))
}

/// A duration of 1 ms at least, as the configuration writes it; days have 24 hours.
///
/// # Errors
/// The text is no such duration.
pub(super) fn duration(text: &str) -> Result<Duration, ProblemDetails> {
    let reason = match duration::parse_micros(text) {
        Ok(micros) if micros >= SHORTEST => return Ok(Duration::from_micros(micros)),
        Ok(_) => format!("`{text}` is shorter"),
        Err(error) => format!("{}; {}", error.message, error.help),
    };
    let reason = visible::text(&visible::cut(&reason, MAX_SHOWN));
    Err(ProblemDetails::impossible(format!(
        "`for` is a duration from 1ms to 366 days, such as 15m, 24h or 7d: {reason}"
    )))
}
