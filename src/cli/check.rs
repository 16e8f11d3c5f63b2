//! `sluicegate check`: all that is wrong with configuration files.

mod sarif;

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use serde::Serialize;

use super::{USAGE, WRONG, run};
use crate::clock::Clock;
use crate::config::{
    CheckReport, CheckVerdict, Checked, Code, Compiled, Report, Source, compile_rules,
};
use crate::proxy::ruleset::reload_diff::{BucketChange, compare};

const EXAMPLES: &str = include_str!("help/check.txt");

#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct CheckArgs {
    /// The configurations to check; `-` is stdin [default: the file that run would use]
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
    /// The configuration to check, as other commands name it
    #[arg(short, long, value_name = "FILE", conflicts_with = "files")]
    config: Option<PathBuf>,
    /// Say also what becomes of the buckets of this configuration when it is replaced
    #[arg(long, value_name = "OLD", conflicts_with = "explain")]
    against: Option<PathBuf>,
    /// How the result is written
    #[arg(long, value_name = "FORMAT", default_value = "text", conflicts_with_all = ["explain", "json"])]
    format: CheckFormat,
    /// Print the result as JSON: the same as --format json
    #[arg(long, conflicts_with = "explain")]
    json: bool,
    /// Exit with 1 also if there are only warnings
    #[arg(long, conflicts_with = "explain")]
    deny_warnings: bool,
    /// Say what a warning with this code means, why it matters, and how to fix it
    #[arg(long, value_name = "CODE", conflicts_with_all = ["files", "config"], value_parser = lints())]
    explain: Option<String>,
}

/// The form of the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum CheckFormat {
    /// For people: problems on stderr, a line for each usable file on stdout
    Text,
    /// A JSON object with all files
    Json,
    /// SARIF 2.1.0, which code hosts and editors show beside the lines
    Sarif,
}

/// The result for all files, as JSON.
#[derive(Serialize)]
struct CheckedFiles<'a> {
    files: &'a [CheckReport],
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
    let results: Vec<_> = options
        .sources()
        .into_iter()
        .map(|source| FileResult::new(source, options.against.as_deref()))
        .collect();
    let is_wrong = results.iter().any(|result| result.is_wrong(options));
    let written = options.write(results);
    super::finish(written, ExitCode::from(if is_wrong { WRONG } else { 0 }))
}

/// The section of a code, without the links of its page.
fn section(code: &str) -> &'static str {
    let title = format!("## `{code}`\n");
    let start = LINTS.find(&title).map_or(0, |start| start + "## ".len());
    let section = &LINTS[start..];
    &section[..section.find("\n## ").unwrap_or(section.len())]
}

impl CheckArgs {
    /// The configurations to check, or what is wrong with stdin.
    fn sources(&self) -> Vec<Result<Source, Report>> {
        if self.files.is_empty() {
            return vec![run::find(self.config.clone())];
        }
        let files = self.files.iter();
        files.map(|file| run::find(Some(file.clone()))).collect()
    }

    fn format(&self) -> CheckFormat {
        if self.json {
            CheckFormat::Json
        } else {
            self.format
        }
    }

    fn write(&self, results: Vec<FileResult>) -> io::Result<()> {
        let mut out = io::stdout().lock();
        if self.format() == CheckFormat::Text {
            return results
                .iter()
                .try_for_each(|result| result.write(self, &mut out));
        }
        results.iter().for_each(FileResult::tell_old);
        let reports: Vec<_> = results.into_iter().map(FileResult::for_machines).collect();
        match self.format() {
            CheckFormat::Sarif => serde_json::to_writer_pretty(&mut out, &sarif::log(&reports))?,
            _ => serde_json::to_writer_pretty(&mut out, &CheckedFiles { files: &reports })?,
        }
        out.write_all(b"\n")
    }
}

/// The result for one file.
struct FileResult {
    checked: Checked,
    /// The outcome for the buckets of another configuration, or the problems of that.
    buckets: Option<Result<Vec<BucketChange>, Report>>,
}

impl FileResult {
    fn new(source: Result<Source, Report>, against: Option<&Path>) -> Self {
        let checked = match source {
            Ok(source) => source.check(Clock::system().now()),
            Err(report) => Checked {
                report,
                compiled: None,
            },
        };
        let compiled = checked.compiled.as_ref();
        let compared = |(old, compiled): (&Path, &Compiled)| {
            let before = compile_rules(&Source::File(old.to_owned()).load()?)?;
            Ok(compare(&before, &compiled.rules))
        };
        FileResult {
            buckets: against.zip(compiled).map(compared),
            checked,
        }
    }

    /// The report, and what becomes of these `buckets`.
    fn report(&self, buckets: Option<Vec<BucketChange>>) -> CheckReport {
        let compiled = self.checked.compiled.as_ref();
        let rules = compiled.map(|compiled| &compiled.rules);
        CheckReport::new(&self.checked.report, rules, buckets)
    }

    fn is_wrong(&self, options: &CheckArgs) -> bool {
        let is_invalid = self.checked.compiled.is_none();
        let is_denied = options.deny_warnings && !self.checked.report.problems.is_empty();
        is_invalid || is_denied || matches!(self.buckets, Some(Err(_)))
    }

    fn for_machines(mut self) -> CheckReport {
        let buckets = self.buckets.take().and_then(Result::ok);
        self.report(buckets)
    }

    /// Says what is wrong with the configuration to compare with.
    fn tell_old(&self) {
        if let Some(Err(report)) = &self.buckets {
            super::print_report(report);
        }
    }

    /// Prints the problems, and describes a usable file.
    fn write(&self, options: &CheckArgs, out: &mut impl Write) -> io::Result<()> {
        let report = &self.checked.report;
        if !report.problems.is_empty() {
            super::print_report(report);
        }
        self.tell_old();
        let buckets = match &self.buckets {
            None => &[][..],
            Some(Ok(changes)) => changes,
            Some(Err(_)) => return Ok(()),
        };
        let CheckReport {
            file,
            verdict,
            memory_bytes,
            ..
        } = self.report(None);
        let word = match verdict {
            CheckVerdict::Invalid => return Ok(()),
            CheckVerdict::Usable if options.deny_warnings => {
                super::tell("warnings are denied: fix them, or drop --deny-warnings");
                return Ok(());
            }
            CheckVerdict::Usable => "usable",
            CheckVerdict::Sound => "sound",
        };
        let buckets_text = match memory_bytes.unwrap_or_default().div_ceil(1 << 20) {
            0 => String::new(),
            mib => format!("; its buckets take up to {mib} MiB"),
        };
        writeln!(out, "{file}: {word}{buckets_text}")?;
        if let Some(old) = options.against.as_ref().filter(|_| !buckets.is_empty()) {
            writeln!(out, "after {}:", old.display())?;
        }
        let mut changes = buckets.iter();
        changes.try_for_each(|change| writeln!(out, "  {change}"))
    }
}
