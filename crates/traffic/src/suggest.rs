//! Proposes limits for the requests of a log: for each route a quota that nearly all clients would
//! never have met, and whom it would have limited.
//!
//! `survey` keeps the requests; `paths` finds routes where no configuration has them; `quota` turns the
//! peaks of clients into a limit; `report` has the result, and `yaml` writes it as a configuration.

mod paths;
mod quota;
mod report;
mod survey;
mod yaml;

use serde::Serialize;

pub use report::{NoLimit, Suggestion};
pub use survey::{KnownRoute, Survey, SurveyedRequest};

/// The key unless the user wants another.
pub const DEFAULT_KEY: &str = "client_ip";

/// What the user wants.
#[derive(Clone, Debug, Serialize)]
pub struct Wishes {
    /// By which requests are counted, as the configuration writes keys.
    pub key: String,
    /// The percentile of clients that the quotas are made for, above 0 and up to 100.
    pub percentile: f64,
    /// What their peaks are multiplied by, 1 or more.
    pub headroom: f64,
}
