//! What access logs say: who came how often, what limits did to them, and which limits would suit them.
//!
//! ```
//! use limiter::Secret;
//! use traffic::{LogReader, Options, Survey, SurveyedRequest, Wishes};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let mut log = String::new();
//! # for (client, second) in (0..20).flat_map(|client| (0..6).map(move |second| (client, second * 7))) {
//! #     let time = format!("21/Nov/2026:04:41:{second:02} +0000");
//! #     log += &format!("192.0.2.{client} - - [{time}] \"GET /login HTTP/1.1\" 200 5\n");
//! # }
//! # let log = log.as_bytes();
//! let secret = Secret::random();
//! let mut survey = Survey::new(None);
//! let options = Options { format: None, host: None };
//! for line in LogReader::new(&options, log) {
//!     let line = line?;
//!     let Ok(entry) = line.entry else { continue };
//!     let Ok(head) = entry.head else { continue };
//!     let client = entry.peer.to_string();
//!     let request = SurveyedRequest {
//!         time: entry.time,
//!         path: head.request.uri().path(),
//!         route: None,
//!         key: Some(secret.fingerprint(client.as_bytes())),
//!         lacks_key: false,
//!     };
//!     survey.count(line.number, &request, || client.clone());
//! }
//! let wishes = Wishes { key: "client_ip".to_owned(), percentile: 99.0, headroom: 1.5 };
//! let suggestion = survey.suggest(wishes, Default::default());
//! assert!(suggestion.to_string().contains("proposed: quota: 9/1m, burst: 5"));
//! # Ok(())
//! # }
//! ```
//!
//! - [`LogReader`] reads lines in the combined format, or as JSON objects; [`LogReader::by_time`] restores
//!   the order in which requests came.
//! - [`Tally`] counts decided requests over time and by key, in bounded memory. [`ReplayReport`] and
//!   [`Comparison`] say as text and as JSON what came of them, [`ReplayPage`] as a page.
//! - [`Survey`] turns the busiest seconds, minutes and hours of clients into a [`Suggestion`].
//! - [`TopKeys`] follows the keys with the highest counts.
//!
//! Nothing here decides, matches routes or knows a configuration: the program passes what it found.
//! Nothing reads a clock either; times are those of the log.

mod comparison;
mod log;
mod reorder_buffer;
mod report;
mod suggest;
mod tally;
mod timeline;
mod top_keys;

pub use comparison::Comparison;
pub use log::{
    DEFAULT_HOST, LogEntry, LogFormat, LogLine, LogReader, LoggedHead, LoggedResponse, Options,
    ReadError,
};
pub use report::{
    BanCount, LimitCounts, PolicyFacts, ReplayFacts, ReplayPage, ReplayReport, Warning,
};
pub use suggest::{DEFAULT_KEY, KnownRoute, NoLimit, Suggestion, Survey, SurveyedRequest, Wishes};
pub use tally::{RequestDecision, Tally};
pub use top_keys::{KeyCount, TopEntry, TopKeys};
