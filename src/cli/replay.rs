//! `sluicegate replay`: what a configuration would have done to the requests of an access log.

use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use traffic::{Comparison, Options, ReplayPage, ReplayReport};

use super::log_input::{LogArgs, is_same_file};
use super::{Failure, run};
use crate::config::{Source, compile_rules};
use crate::proxy::ruleset::RulesetSpec;
use crate::replay::{self, ReplayError};
use crate::{files, nearest};

/// The most policies that an error names.
const MAX_NAMES: usize = 8;

/// The dashboard's styles, so that it and pages look alike.
const STYLE: &str = concat!(
    include_str!("../admin/dashboard/css/base.css"),
    include_str!("../admin/dashboard/css/tables.css"),
    include_str!("../admin/dashboard/css/dashboard.css"),
    include_str!("../admin/dashboard/css/charts.css"),
);

const EXAMPLES: &str = include_str!("help/replay.txt");

#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct ReplayArgs {
    #[command(flatten)]
    log: LogArgs,
    /// The configuration [default: the file that run would use]
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Show only this policy in the summary
    #[arg(long, value_name = "NAME", conflicts_with = "decisions")]
    policy: Option<String>,
    /// Compare with this configuration: what each limits, by policies and by clients
    #[arg(long, value_name = "OLD", conflicts_with = "decisions")]
    against: Option<PathBuf>,
    /// Also write the summary to this file, as a page with charts that needs nothing else
    #[arg(long, value_name = "FILE", conflicts_with = "decisions")]
    html: Option<PathBuf>,
    /// Print a JSON line for each request, instead of a summary
    #[arg(long, conflicts_with = "json")]
    decisions: bool,
    /// Print the summary as JSON
    #[arg(long)]
    json: bool,
}

impl ReplayArgs {
    /// # Errors
    /// The options, the configuration or the log can't be used.
    pub(super) fn run(&self) -> Result<ExitCode, Failure> {
        let source = run::find(self.config.clone());
        let ready = self
            .check_page(source.as_ref().ok().and_then(Source::file))
            .and_then(|()| self.log.ready(self.decisions));
        let (reading, log) = ready.map_err(Failure::wrong_usage)?;
        let source = source?;
        let name = source.name();
        let new = compile_rules(&source.load()?)?;
        let old = self.against.clone();
        let old = old.map(|old| compile_rules(&run::find(Some(old))?.load()?));
        let old = old.transpose()?;
        self.check_policy([Some(&new), old.as_ref()])?;
        let mut out = BufWriter::new(io::stdout().lock());
        let (written, code) = match old {
            Some(old) => self.compare([old, new], &name, &reading, log, &mut out)?,
            None => self.summarize(new, &name, &reading, log, &mut out)?,
        };
        Ok(super::finish(written.and_then(|()| out.flush()), code))
    }

    fn compare(
        &self,
        rules: [RulesetSpec; 2],
        config: &str,
        reading: &Options,
        log: impl Read,
        out: &mut impl Write,
    ) -> Result<(io::Result<()>, ExitCode), Failure> {
        let compared = replay::compare(rules, reading, log, self.policy.as_deref());
        let comparison = compared.map_err(|error| self.log.failure(&error))?;
        self.write_page(&comparison.after, Some(&comparison), config)?;
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
        config: &str,
        reading: &Options,
        log: impl Read,
        out: &mut impl Write,
    ) -> Result<(io::Result<()>, ExitCode), Failure> {
        let replayed = replay::replay(rules, reading, log, |decided| {
            if self.decisions {
                print_line(out, decided)
            } else {
                Ok(())
            }
        });
        let mut report = match replayed {
            Ok(report) => report,
            Err(ReplayError::Write(error)) => return Ok((Err(error), ExitCode::SUCCESS)),
            Err(ReplayError::Read(error)) => {
                // What was decided until then is true.
                _ = out.flush();
                return Err(self.log.failure(&error));
            }
        };
        if let Some(policy) = &self.policy {
            report.keep_policy(policy);
        }
        self.write_page(&report, None, config)?;
        Ok((self.print(&report, out), self.judge(&report)))
    }

    /// # Errors
    /// The page would replace the log, a configuration, or a file beside it.
    fn check_page(&self, config: Option<&Path>) -> Result<(), String> {
        let Some(page) = &self.html else {
            return Ok(());
        };
        let unfinished = files::unfinished(page);
        if unfinished.exists() {
            let unfinished = unfinished.display();
            return Err(format!(
                "--html would replace {unfinished}, too; remove it, or name another file"
            ));
        }
        let mut configs = config.into_iter().chain(self.against.as_deref());
        let replaced = if self.log.is_file(page) {
            "the log"
        } else if configs.any(|config| is_same_file(config, page)) {
            "the configuration"
        } else {
            return Ok(());
        };
        Err(format!(
            "--html would replace {replaced} {}",
            page.display()
        ))
    }

    /// Writes the page that is asked for.
    ///
    /// # Errors
    /// It can't be written.
    fn write_page(
        &self,
        report: &ReplayReport,
        comparison: Option<&Comparison>,
        config: &str,
    ) -> Result<(), String> {
        let Some(path) = &self.html else {
            return Ok(());
        };
        let against = self.against.as_ref().map(|old| old.display().to_string());
        let page = ReplayPage {
            report,
            comparison,
            log: &self.log.name(),
            config,
            against: against.as_deref(),
            program: concat!("sluicegate ", env!("CARGO_PKG_VERSION")),
            style: STYLE,
        };
        // The page shows keys of clients.
        let written = files::replace(path, |mut file| {
            file.write_all(page.to_string().as_bytes())?;
            Ok(file)
        });
        written.map_err(|error| format!("cannot write {}: {error}", path.display()))
    }

    /// # Errors
    /// No configuration has the policy.
    fn check_policy(&self, rules: [Option<&RulesetSpec>; 2]) -> Result<(), Failure> {
        let Some(name) = &self.policy else {
            return Ok(());
        };
        let policies = rules
            .into_iter()
            .flatten()
            .flat_map(|rules| &rules.policies);
        let known: Vec<_> = policies.map(|one| &*one.spec.name).collect();
        if known.contains(&name.as_str()) {
            return Ok(());
        }
        let some = &known[..known.len().min(MAX_NAMES)];
        let advice = nearest::phrase(
            nearest::nearest(name, &known),
            some,
            "the configuration has",
        );
        let message = format!("there is no policy `{name}`: {advice}");
        Err(Failure::wrong_usage(message))
    }

    fn judge(&self, report: &ReplayReport) -> ExitCode {
        self.log.judge(report.requests, report.unparsable_lines())
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

pub(super) fn print_line(out: &mut impl Write, value: &impl serde::Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *out, value)?;
    out.write_all(b"\n")
}
