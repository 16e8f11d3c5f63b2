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
use crate::nearest;
use crate::proxy::ruleset::RulesetSpec;
use crate::replay::{self, LogFormat, ReplayError, ReplayReport};
use crate::telemetry::terminal::has_cursor;

/// The most policies that an error names.
const MAX_NAMES: usize = 8;

const EXAMPLES: &str = "\
Examples:
  sluicegate replay /var/log/nginx/access.log --config sluicegate.yaml
  zcat access.log.*.gz | sluicegate replay - --config sluicegate.yaml --host api.example.com
  sluicegate replay access.json --config sluicegate.yaml --decisions | grep '\"limited\"'
  sluicegate replay access.json --config new.yaml --against sluicegate.yaml

Times are those of the log, and buckets are new. Certificates and upstreams that the
configuration names need not be there.";

#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct ReplayArgs {
    /// The access log; `-` is stdin
    log: PathBuf,
    /// The configuration [default: the file that run would use]
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// How lines are written [default: what the first one looks like]
    #[arg(long, value_name = "FORMAT")]
    format: Option<LogFormat>,
    /// The host of requests whose line names none [default: localhost]
    #[arg(long, value_name = "HOST")]
    host: Option<String>,
    /// Show only this policy in the summary
    #[arg(long, value_name = "NAME", conflicts_with = "decisions")]
    policy: Option<String>,
    /// Compare with this configuration: what each limits, by policies and by clients
    #[arg(long, value_name = "OLD", conflicts_with = "decisions")]
    against: Option<PathBuf>,
    /// Print a JSON line for each request, instead of a summary
    #[arg(long, conflicts_with = "json")]
    decisions: bool,
    /// Print the summary as JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn replay(options: &ReplayArgs) -> ExitCode {
    match options.run() {
        Ok(code) | Err(code) => code,
    }
}

impl ReplayArgs {
    /// # Errors
    /// The exit code, once the reason was told.
    fn run(&self) -> Result<ExitCode, ExitCode> {
        let ready = self.reading().and_then(|how| Ok((how, self.open()?)));
        let (reading, log) = ready.map_err(|message| {
            super::tell(message);
            ExitCode::from(USAGE)
        })?;
        let rules = self.rules(self.config.clone())?;
        let old = self.against.as_ref();
        let old = old.map(|old| self.rules(Some(old.clone()))).transpose()?;
        self.check_policy([Some(&rules), old.as_ref()])?;
        let mut out = BufWriter::new(io::stdout().lock());
        let (written, code) = match old {
            Some(old) => self.compare([old, rules], &reading, log, &mut out)?,
            None => self.summarize(rules, &reading, log, &mut out)?,
        };
        Ok(super::finish(written.and_then(|()| out.flush()), code))
    }

    fn compare(
        &self,
        rules: [RulesetSpec; 2],
        reading: &replay::Options,
        log: impl Read,
        out: &mut impl Write,
    ) -> Result<(io::Result<()>, ExitCode), ExitCode> {
        let compared = replay::compare(rules, reading, log, self.policy.as_deref());
        let comparison = compared.map_err(|error| self.fail(error, out))?;
        let written = if self.json {
            print_line(out, &comparison)
        } else {
            write!(out, "{comparison}")
        };
        Ok((written, self.judge(&comparison.after)))
    }

    fn summarize(
        &self,
        rules: RulesetSpec,
        reading: &replay::Options,
        log: impl Read,
        out: &mut impl Write,
    ) -> Result<(io::Result<()>, ExitCode), ExitCode> {
        let replayed = replay::replay(rules, reading, log, |decided| {
            if self.decisions {
                print_line(out, decided)
            } else {
                Ok(())
            }
        });
        let mut report = replayed.map_err(|error| self.fail(error, out))?;
        if let Some(policy) = &self.policy {
            report.keep_policy(policy);
        }
        Ok((self.print(&report, out), self.judge(&report)))
    }

    /// The exit code for a replay that ended early, which is told.
    fn fail(&self, error: ReplayError, out: &mut impl Write) -> ExitCode {
        if let ReplayError::Write(error) = error {
            return super::finish(Err(error), ExitCode::SUCCESS);
        }
        // What was decided until then is true.
        _ = out.flush();
        super::tell(format_args!("{}: {error}", self.log.display()));
        ExitCode::from(match error {
            ReplayError::Compressed { .. } => USAGE,
            _ => WRONG,
        })
    }

    fn reading(&self) -> Result<replay::Options, String> {
        let host = self.host.as_ref().map(|host| {
            HeaderValue::from_str(host)
                .map_err(|_| format!("{host:?} isn't a host; write it as in api.example.com"))
        });
        let host = host.transpose()?;
        Ok(replay::Options {
            host,
            format: self.format,
        })
    }

    /// The rules of a configuration.
    ///
    /// # Errors
    /// The exit code, once the reason was told.
    fn rules(&self, config: Option<PathBuf>) -> Result<RulesetSpec, ExitCode> {
        let loaded = run::find(config).and_then(|source| source.load());
        let rules = loaded.and_then(|loaded| compile_rules(&loaded));
        rules.map_err(|report| {
            super::print_report(&report);
            ExitCode::from(WRONG)
        })
    }

    /// # Errors
    /// No configuration has the policy: the exit code, once that was told.
    fn check_policy(&self, rules: [Option<&RulesetSpec>; 2]) -> Result<(), ExitCode> {
        let Some(name) = &self.policy else {
            return Ok(());
        };
        let policies = rules
            .into_iter()
            .flatten()
            .flat_map(|rules| &rules.policies);
        let known: Vec<_> = policies.map(|policy| policy.name.as_str()).collect();
        if known.contains(&name.as_str()) {
            return Ok(());
        }
        let some = &known[..known.len().min(MAX_NAMES)];
        let advice = nearest::phrase(
            nearest::nearest(name, &known),
            some,
            "the configuration has",
        );
        super::tell(format_args!("there is no policy `{name}`: {advice}"));
        Err(ExitCode::from(USAGE))
    }

    /// The log, with a bar where somebody can see it and nothing else is written there.
    fn open(&self) -> Result<Progress<Box<dyn Read>>, String> {
        let (input, size) = if self.log.as_os_str() == "-" {
            (Box::new(io::stdin()) as Box<dyn Read>, None)
        } else {
            open(&self.log)?
        };
        let is_written_over = self.decisions && io::stdout().is_terminal();
        Ok(if has_cursor(&io::stderr()) && !is_written_over {
            Progress::shown(input, size)
        } else {
            Progress::hidden(input, size)
        })
    }

    /// A log of which no line can be read is not one, or of another format. An empty one is told.
    fn judge(&self, report: &ReplayReport) -> ExitCode {
        if report.requests == 0 && report.unparsable.count == 0 {
            super::tell(format_args!("no request in {}", self.log.display()));
        }
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
        if self.json {
            print_line(out, report)
        } else {
            write!(out, "{report}")
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
