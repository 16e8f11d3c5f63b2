//! Runs an access log through a ruleset on virtual time: who would have been limited, by what, and
//! for how long. What decides is the proxy's own code over a memory store of its own; nothing is
//! forwarded.
//!
//! `log` reads lines, `reorder_buffer` orders them by time, `simulation` decides about them, `report`
//! says what came of it.
//! `playground` decides about arrivals of a user's choice.

mod comparison;
mod error;
mod log;
pub mod playground;
mod reorder_buffer;
mod report;
pub mod suggest;
mod simulation;
mod tally;
mod timeline;
mod warnings;

use std::io::{self, Read};

pub use comparison::Comparison;
pub use error::ReplayError;
pub use log::{DEFAULT_HOST, LogFormat, Options};
pub use report::{ReplayPage, ReplayReport};
pub use simulation::DecisionLine;

use crate::proxy::ruleset::RulesetSpec;
use log::{LineError, LogEntry, LogLines, RawLine};
use reorder_buffer::ReorderBuffer;
use simulation::Simulation;

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
    read(options, log, |number, entry| match entry {
        Ok(entry) => tell(&simulation.decide(number, entry)).map_err(ReplayError::Write),
        Err(unparsable) => {
            simulation.skip(number, unparsable);
            Ok(())
        }
    })?;
    Ok(simulation.report())
}

/// Decides about every request of `log` twice, by the rules `before` and `after`. If `only` names a
/// policy, the others are left out of the result.
///
/// # Errors
/// As [`replay`].
pub fn compare(
    [before, after]: [RulesetSpec; 2],
    options: &Options,
    log: impl Read,
    only: Option<&str>,
) -> Result<Comparison, ReplayError> {
    let is_host_given = options.host.is_some();
    let mut before = Simulation::new(before, is_host_given);
    let mut after = Simulation::new(after, is_host_given);
    read(options, log, |number, entry| {
        for simulation in [&mut before, &mut after] {
            match entry {
                Ok(entry) => _ = simulation.decide(number, entry),
                Err(unparsable) => simulation.skip(number, unparsable),
            }
        }
        Ok(())
    })?;
    Ok(Comparison::new([&before, &after], only))
}

/// Calls `take` with every line of `log`: entries by their times, as far as a bounded buffer
/// restores that order, and lines that cannot be read at once.
///
/// # Errors
/// The first of `take`, else that of reading, after all entries before it.
fn read(
    options: &Options,
    log: impl Read,
    mut take: impl FnMut(u64, Result<&LogEntry, &LineError>) -> Result<(), ReplayError>,
) -> Result<(), ReplayError> {
    let mut waiting = ReorderBuffer::new();
    let end = read_lines(options, log, |number, line| {
        match line {
            Ok((bytes, entry)) => waiting.push((entry.time, number), bytes, entry),
            Err(unparsable) => take(number, Err(&unparsable))?,
        }
        while let Some((number, entry)) = waiting.pop_excess() {
            take(number, Ok(&entry))?;
        }
        Ok(())
    });
    // What was read before an error is decided, too.
    while let Some((number, entry)) = waiting.pop() {
        take(number, Ok(&entry))?;
    }
    end
}

/// Calls `take` with every line of `log` in its order: the bytes of the line and what it says.
///
/// # Errors
/// The first of `take`, else that of reading.
fn read_lines(
    options: &Options,
    log: impl Read,
    mut take: impl FnMut(u64, Result<(usize, LogEntry), LineError>) -> Result<(), ReplayError>,
) -> Result<(), ReplayError> {
    let mut lines = LogLines::new(log);
    let mut reader = None;
    while let Some((number, raw)) = lines.next()? {
        let entry = match raw {
            RawLine::Whole(line) => {
                let reader = reader.get_or_insert_with(|| log::LogReader::new(options, line));
                reader.read(line).map(|entry| (line.len(), entry))
            }
            RawLine::TooLong => Err(LineError::TooLong),
        };
        take(number, entry)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
