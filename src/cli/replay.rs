//! `sluicegate replay`: what a configuration would have done to the requests of an access log.

use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use http::HeaderValue;

use super::progress::Progress;
use super::{USAGE, WRONG, run};
use crate::config::compile_rules;
use crate::proxy::ruleset::RulesetSpec;
use crate::replay::{self, LogFormat, ReplayError, ReplayReport};
use crate::telemetry::terminal::has_cursor;

const EXAMPLES: &str = "\
Examples:
  sluicegate replay /var/log/nginx/access.log --config sluicegate.yaml
  zcat access.log.*.gz | sluicegate replay - --config sluicegate.yaml --host api.example.com
  sluicegate replay access.json --config sluicegate.yaml --decisions | grep '\"limited\"'

Times are those of the log, and buckets are new. Certificates and upstreams that the
configuration names need not be there.";

#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct ReplayArgs {
    /// The access log; `-` is stdin
    log: PathBuf,
    /// The configuration [default: as for run]
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// How lines are written [default: what the first one looks like]
    #[arg(long, value_name = "FORMAT")]
    format: Option<LogFormat>,
    /// The host of requests whose line names none [default: localhost]
    #[arg(long, value_name = "HOST")]
    host: Option<String>,
    /// Print a JSON line for each request, instead of a summary
    #[arg(long, conflicts_with = "json")]
    decisions: bool,
    /// Print the summary as JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn replay(options: &ReplayArgs) -> ExitCode {
    let (reading, log) = match options.reading().and_then(|how| Ok((how, options.open()?))) {
        Ok(ready) => ready,
        Err(message) => {
            super::tell(message);
            return ExitCode::from(USAGE);
        }
    };
    let rules = match options.rules() {
        Ok(rules) => rules,
        Err(code) => return code,
    };
    let mut out = BufWriter::new(io::stdout().lock());
    let replayed = replay::replay(rules, &reading, log, |decided| match options.decisions {
        true => print_line(&mut out, decided),
        false => Ok(()),
    });
    match replayed {
        Ok(report) => {
            let written = options.print(&report, &mut out).and_then(|()| out.flush());
            super::finish(written, options.judge(&report))
        }
        Err(ReplayError::Write(error)) => super::finish(Err(error), ExitCode::SUCCESS),
        Err(failure) => {
            // What was decided until then is true.
            _ = out.flush();
            super::tell(format_args!("{}: {failure}", options.log.display()));
            ExitCode::from(match failure {
                ReplayError::Compressed { .. } => USAGE,
                _ => WRONG,
            })
        }
    }
}

impl ReplayArgs {
    fn reading(&self) -> Result<replay::Options, String> {
        let host = self.host.as_ref().map(|host| {
            HeaderValue::from_str(host)
                .map_err(|_| format!("{host:?} is no host; write it as in api.example.com"))
        });
        let host = host.transpose()?;
        Ok(replay::Options {
            host,
            format: self.format,
        })
    }

    fn rules(&self) -> Result<RulesetSpec, ExitCode> {
        let loaded = run::find(self.config.clone(), |example| super::tell(example)).load();
        loaded
            .and_then(|loaded| compile_rules(&loaded))
            .map_err(|report| {
                super::print_report(&report);
                ExitCode::from(WRONG)
            })
    }

    /// The log, with a bar where somebody can see it and nothing else is written there.
    fn open(&self) -> Result<Progress<Box<dyn Read>>, String> {
        let (input, size) = match self.log.as_os_str() == "-" {
            true => (Box::new(io::stdin()) as Box<dyn Read>, None),
            false => open(&self.log)?,
        };
        let is_written_over = self.decisions && io::stdout().is_terminal();
        Ok(match has_cursor(&io::stderr()) && !is_written_over {
            true => Progress::shown(input, size),
            false => Progress::hidden(input, size),
        })
    }

    /// A log of which no line can be read is not one, or of another format.
    fn judge(&self, report: &ReplayReport) -> ExitCode {
        if report.requests > 0 || report.unparsable.count == 0 {
            return ExitCode::SUCCESS;
        }
        let (log, lines) = (self.log.display(), report.unparsable.count);
        super::tell(format_args!(
            "{log}: none of its {lines} lines could be read; --format says how they are written, combined or json"
        ));
        ExitCode::from(WRONG)
    }

    fn print(&self, report: &ReplayReport, out: &mut impl Write) -> io::Result<()> {
        if self.decisions {
            _ = write!(io::stderr(), "{}", report.remarks());
            return Ok(());
        }
        match self.json {
            true => print_line(out, report),
            false => write!(out, "{report}"),
        }
    }
}

/// A file, and how many bytes it has, if it is an ordinary one.
fn open(path: &Path) -> Result<(Box<dyn Read>, Option<u64>), String> {
    let fail = |error: io::Error| format!("{}: {error}", path.display());
    let file = File::open(path).map_err(fail)?;
    let metadata = file.metadata().map_err(fail)?;
    if metadata.is_dir() {
        let path = path.display();
        return Err(format!("{path} is a directory; name a log within it"));
    }
    let size = metadata.is_file().then_some(metadata.len());
    Ok((Box::new(file), size))
}

fn print_line(out: &mut impl Write, value: &impl serde::Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *out, value)?;
    out.write_all(b"\n")
}
