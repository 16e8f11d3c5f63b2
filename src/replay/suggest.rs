//! Proposes limits for the requests of a log: for each route a quota that nearly all clients would
//! never have met, and whom it would have limited.
//!
//! `survey` reads the log; `paths` finds routes where no configuration has them; `quota` turns the
//! peaks of clients into a limit; `report` has the result, and `yaml` writes it as a configuration.

mod paths;
mod quota;
mod report;
mod survey;
mod yaml;

use std::io::Read;

use serde::Serialize;

pub use report::Suggestion;
pub use survey::DEFAULT_KEY;

use super::{Options, ReplayError, read_lines};
use crate::config::{self, Loaded, Report};
use survey::Survey;

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

/// Why nothing was proposed.
#[derive(Debug)]
pub enum SuggestError {
    /// The key isn't valid.
    Key(Report),
    /// The configuration isn't valid.
    Config(Report),
    /// The log can't be read.
    Log(ReplayError),
}

/// Proposes limits for a log: for the routes of `config` that have none, or for routes that the log
/// suggests.
///
/// # Errors
/// See [`SuggestError`]. Lines that can't be read aren't an error: the result names them.
pub fn suggest(
    wishes: &Wishes,
    config: Option<&Loaded>,
    options: &Options,
    log: impl Read,
) -> Result<Suggestion, SuggestError> {
    let rules = config.map(config::compile_rules).transpose();
    let rules = rules.map_err(SuggestError::Config)?;
    let mut survey = Survey::new(rules, &wishes.key).map_err(SuggestError::Key)?;
    let read = read_lines(options, log, |line, entry| {
        survey.take(line, entry);
        Ok(())
    });
    read.map_err(SuggestError::Log)?;
    let routes = survey.sort_by_route(config);
    Ok(Suggestion::new(&survey, routes, wishes, config.is_none()))
}

#[cfg(test)]
mod tests;
