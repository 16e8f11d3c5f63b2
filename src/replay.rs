//! Runs an access log through a ruleset on virtual time: who would have been limited, by what, and
//! for how long. What decides is the proxy's own code over a memory store of its own; nothing is
//! forwarded.
//!
//! The crate `traffic` reads logs, and says what came of them. `simulation` decides about their lines,
//! `suggest` finds the routes and keys of their requests, `playground` decides about arrivals of a
//! user's choice.

pub mod playground;
mod simulation;
pub mod suggest;
mod warnings;

use std::io::{self, Read};

use traffic::{Comparison, LogReader, Options, ReadError, ReplayReport};

pub use simulation::DecisionLine;

use crate::proxy::ruleset::RulesetSpec;
use simulation::Simulation;

/// Why a replay ended before the log did.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The log cannot be read any further.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The output could not be written.
    #[error("cannot write: {0}")]
    Write(io::Error),
}

/// Decides about every request of `log` by `rules`, and calls `tell` with each of them. Their order
/// is that of their times, as far as a bounded buffer restores it: memory does not grow with the log.
///
/// # Errors
/// See [`ReplayError`]. Lines that cannot be read are no error: the report names them.
pub fn replay(
    rules: RulesetSpec,
    options: &Options,
    log: impl Read,
    mut tell: impl FnMut(&DecisionLine) -> io::Result<()>,
) -> Result<ReplayReport, ReplayError> {
    let mut simulation = Simulation::new(rules, options.host.is_some());
    for line in LogReader::new(options, log).by_time() {
        if let Some(decision) = simulation.decide(&line?) {
            tell(&decision).map_err(ReplayError::Write)?;
        }
    }
    Ok(simulation.report())
}

/// Decides about every request of `log` twice, by the rules `before` and `after`. If `only` names a
/// policy, the others are left out of the result.
///
/// # Errors
/// A log that cannot be read any further.
pub fn compare(
    rules: [RulesetSpec; 2],
    options: &Options,
    log: impl Read,
    only: Option<&str>,
) -> Result<Comparison, ReadError> {
    let mut simulations = rules.map(|rules| Simulation::new(rules, options.host.is_some()));
    for line in LogReader::new(options, log).by_time() {
        let line = line?;
        for simulation in &mut simulations {
            simulation.decide(&line);
        }
    }
    let reports = simulations.each_ref().map(Simulation::report);
    let tallies = simulations.each_ref().map(|one| &one.tally);
    Ok(Comparison::new(tallies, reports, only))
}

#[cfg(test)]
mod tests;
