//! Texts that people read and write: durations, instants, names with a misspelling, and keys that others
//! chose.
//!
//! ```
//! use std::time::Duration;
//!
//! use readable::time::{Span, parse_rfc_3339, rfc_3339};
//! use readable::{duration, nearest, visible};
//!
//! assert_eq!(duration::parse_micros("1h30m"), Ok(5_400_000_000));
//! let error = duration::parse_micros("5").expect_err("there is no unit");
//! assert_eq!(error.message, "`5` has no unit");
//!
//! assert_eq!(Span(Duration::from_millis(2_554_000)).to_string(), "42m 34s");
//! let instant = parse_rfc_3339("2026-11-24T15:17:26+01:00").expect("an instant");
//! assert_eq!(rfc_3339(instant), "2026-11-24T14:17:26Z");
//!
//! let advice = nearest::advice("algoritm", &["algorithm", "quota"], "known are");
//! assert_eq!(advice, "did you mean `algorithm`?");
//! assert_eq!(visible::text("a\u{202e}b"), "a\\u202eb");
//! ```
//!
//! - [`time`] writes and reads instants and spans; [`duration`] is for settings, with advice for what isn't
//!   one.
//! - [`money`] writes amounts.
//! - [`nearest`] suggests a known word in place of a wrong one.
//! - [`visible`] shows what a text consists of, so that it can't pretend to be another.
//!
//! Nothing here reads a clock, knows a locale, or formats for a terminal.

pub mod duration;
pub mod money;
pub mod nearest;
pub mod time;
pub mod visible;

/// What keys look like where they are shown, for tests here and in a browser.
#[cfg(test)]
#[path = "../../../tests/support/visibility.rs"]
mod visibility;
