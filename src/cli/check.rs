//! `sluicegate check`: all that is wrong with configuration files.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;

use super::WRONG;
use crate::config::{Source, compile, lint};

const EXAMPLES: &str = "\
Example:
  sluicegate check sluicegate.yaml

Problems are printed with file, line and column; warnings alone leave the exit code 0.";

#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct Options {
    /// The configurations to check
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
}

pub(super) fn check(options: &Options) -> ExitCode {
    let sound = options.files.iter().filter(|file| is_sound(file)).count();
    match sound == options.files.len() {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(WRONG),
    }
}

/// Prints what is wrong with one file, or that it is sound.
fn is_sound(file: &Path) -> bool {
    let source = Source::File(file.to_owned());
    let compiled = source.load().and_then(|loaded| {
        compile(&loaded)?;
        Ok(lint(loaded))
    });
    match compiled {
        Ok(warnings) if warnings.problems.is_empty() => println!("{}: sound", file.display()),
        Ok(report) | Err(report) => {
            super::print_report(&report);
            return !report.has_errors();
        }
    }
    true
}
