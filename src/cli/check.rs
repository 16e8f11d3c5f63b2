//! `sluicegate check`: all that is wrong with configuration files.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};

use super::WRONG;
use crate::config::{Code, Source, compile, lint};
use crate::proxy::build::memory_of;

const EXAMPLES: &str = "\
Example:
  sluicegate check sluicegate.yaml
  sluicegate check --explain forgeable-key

Problems are printed with file, line and column; warnings alone leave the exit code 0.";

#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct Options {
    /// The configurations to check
    #[arg(required_unless_present = "explain", value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Say what a warning with this code means, why it matters, and how to mend it
    #[arg(long, value_name = "CODE", conflicts_with = "files", value_parser = lints())]
    explain: Option<String>,
}

/// A section for each code that warnings have.
const LINTS: &str = include_str!("../../docs/lints.md");

fn lints() -> impl TypedValueParser<Value = String> {
    PossibleValuesParser::new(Code::LINTS.map(Code::as_str))
}

pub(super) fn check(options: &Options) -> ExitCode {
    if let Some(code) = &options.explain {
        let written = io::stdout().write_all(section(code).as_bytes());
        return super::finish(written, ExitCode::SUCCESS);
    }
    let sound = options.files.iter().filter(|file| is_sound(file)).count();
    match sound == options.files.len() {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(WRONG),
    }
}

/// The section of a code, without the links of its page.
fn section(code: &str) -> &'static str {
    let title = format!("## `{code}`\n");
    let start = LINTS.find(&title).map_or(0, |start| start + "## ".len());
    let section = &LINTS[start..];
    &section[..section.find("\n## ").unwrap_or(section.len())]
}

/// Prints what is wrong with one file, or that it is sound.
fn is_sound(file: &Path) -> bool {
    let source = Source::File(file.to_owned());
    let compiled = source.load().and_then(|loaded| {
        let compiled = compile(&loaded)?;
        Ok((memory_of(&compiled.rules), lint(loaded)))
    });
    let (memory, report) = match compiled {
        Ok((memory, warnings)) => (Some(memory), warnings),
        Err(report) => (None, report),
    };
    if !report.problems.is_empty() {
        super::print_report(&report);
    }
    if let Some(memory) = memory {
        let (name, mib) = (file.display(), memory.div_ceil(1 << 20));
        let how = if report.problems.is_empty() {
            "sound"
        } else {
            "usable"
        };
        println!("{name}: {how}; its buckets take up to {mib} MiB");
    }
    memory.is_some()
}
