//! Instants and durations as the body of a request has them.

use std::time::Duration;

use jiff::SpanRelativeTo;
use jiff::fmt::temporal::Pieces;

use crate::admin::problem_details::ProblemDetails;
use crate::clock::Timestamp;

/// The shortest grant or ban by its length.
const SHORTEST: Duration = Duration::from_millis(1);

/// An instant. One before 1970 is over, and one beyond what a `Timestamp` may be is far away.
///
/// # Errors
/// The text is no instant of RFC 3339.
pub(super) fn instant(text: &str) -> Result<Timestamp, ProblemDetails> {
    let instant = text.parse().ok().or_else(|| last_instant(text));
    let instant: jiff::Timestamp = instant.ok_or_else(|| {
        let detail = "`until` is an instant, such as 2026-11-24T18:00:00Z (RFC 3339); `for` takes \
                      a duration";
        ProblemDetails::impossible(detail)
    })?;
    let micros = u64::try_from(instant.as_microsecond()).unwrap_or_default();
    Ok(Timestamp::from_micros(micros))
}

/// The last instant of jiff, for an instant of the last day or two of 9999: jiff leaves room for
/// time zones there.
fn last_instant(text: &str) -> Option<jiff::Timestamp> {
    let pieces = Pieces::parse(text).ok()?;
    pieces.time()?;
    pieces.to_numeric_offset()?;
    (pieces.date().year() == 9999).then_some(jiff::Timestamp::MAX)
}

/// A duration of 1 ms at least; days have 24 hours.
///
/// # Errors
/// The text is no such duration.
pub(super) fn duration(text: &str) -> Result<Duration, ProblemDetails> {
    let span: Option<jiff::Span> = text.parse().ok();
    let day = SpanRelativeTo::days_are_24_hours();
    let length = span.and_then(|span| span.to_duration(day).ok());
    let length = length.and_then(|length| Duration::try_from(length).ok());
    length.filter(|length| *length >= SHORTEST).ok_or_else(|| {
        let detail = "`for` is a duration from 1ms to 366 days, such as 15m, 24h or 7d";
        ProblemDetails::impossible(detail)
    })
}
