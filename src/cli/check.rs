//! `sluicegate check`: all that is wrong with configuration files.

mod against;

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};

use super::{USAGE, WRONG};
use crate::clock::Clock;
use crate::config::{Code, Source, compile, lint};
use crate::proxy::ruleset::build::memory_bytes;

const EXAMPLES: &str = "\
Example:
  sluicegate check sluicegate.yaml
  sluicegate check --explain forgeable-key
  sluicegate check new.yaml --against sluicegate.yaml

Problems are printed with file, line and column; warnings alone leave the exit code 0.";

#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct CheckArgs {
    /// The configurations to check
    #[arg(required_unless_present = "explain", value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Say also what becomes of the buckets of this configuration when it is replaced
    #[arg(long, value_name = "OLD", conflicts_with = "explain")]
    against: Option<PathBuf>,
    /// Say what a warning with this code means, why it matters, and how to mend it
    #[arg(long, value_name = "CODE", conflicts_with = "files", value_parser = lints())]
    explain: Option<String>,
}

/// A section for each code that warnings have.
const LINTS: &str = include_str!("../../docs/lints.md");

fn lints() -> impl TypedValueParser<Value = String> {
    PossibleValuesParser::new(Code::lints().map(Code::as_str))
}

pub(super) fn check(options: &CheckArgs) -> ExitCode {
    if let Some(code) = &options.explain {
        let written = io::stdout().write_all(section(code).as_bytes());
        return super::finish(written, ExitCode::SUCCESS);
    }
    if options.against.is_some() && options.files.len() > 1 {
        super::tell("one configuration takes the place of the old one: name one FILE");
        return ExitCode::from(USAGE);
    }
    let against = options.against.as_deref();
    let mut code = ExitCode::SUCCESS;
    let mut written = Ok(());
    for file in &options.files {
        match said(file, against) {
            Some(text) => written = written.and_then(|()| io::stdout().write_all(text.as_bytes())),
            None => code = ExitCode::from(WRONG),
        }
    }
    super::finish(written, code)
}

/// The section of a code, without the links of its page.
fn section(code: &str) -> &'static str {
    let title = format!("## `{code}`\n");
    let start = LINTS.find(&title).map_or(0, |start| start + "## ".len());
    let section = &LINTS[start..];
    &section[..section.find("\n## ").unwrap_or(section.len())]
}

/// Describes a sound file, and its effect on the buckets of another; `None` after printing what is
/// wrong with either.
fn said(file: &Path, against: Option<&Path>) -> Option<String> {
    let source = Source::File(file.to_owned());
    let compiled = source.load().and_then(|loaded| {
        let compiled = compile(&loaded)?;
        Ok((compiled.rules, lint(loaded, Clock::system().now())))
    });
    let (rules, report) = match compiled {
        Ok((rules, warnings)) => (Some(rules), warnings),
        Err(report) => (None, report),
    };
    if !report.problems.is_empty() {
        super::print_report(&report);
    }
    let rules = rules?;
    let (name, mib) = (file.display(), memory_bytes(&rules).div_ceil(1 << 20));
    let how = match report.problems.is_empty() {
        true => "sound",
        false => "usable",
    };
    let sound = format!("{name}: {how}; its buckets take up to {mib} MiB\n");
    let Some(old) = against else {
        return Some(sound);
    };
    match against::compared(old, &rules) {
        Ok(text) => Some(sound + &text),
        Err(report) => {
            super::print_report(&report);
            None
        }
    }
}
