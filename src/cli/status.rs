//! `sluicegate status`: the state of a running proxy, and its problems.

use std::fmt;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;

use super::admin_options::AdminArgs;
use super::{Failure, WRONG};
use crate::admin::actor::TokenRole;
use crate::admin::readiness::Connections;
use crate::admin::status::Status;
use crate::clock::text::{Span, rfc_3339};

const EXAMPLES: &str = include_str!("help/status.txt");

#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct StatusArgs {
    #[command(flatten)]
    admin: AdminArgs,
    /// Print the answer of the admin API, as JSON
    #[arg(long)]
    json: bool,
}

impl StatusArgs {
    /// # Errors
    /// The proxy refuses or does not answer.
    pub(super) fn run(&self) -> Result<ExitCode, Failure> {
        let client = self.admin.client(TokenRole::Read)?;
        let answer = client.get::<Status>("/v1/status")?;
        let code = if answer.fields.problems.is_empty() {
            ExitCode::SUCCESS
        } else {
            ExitCode::from(WRONG)
        };
        let printed = answer.print(self.json, |status| Lines(status).to_string());
        Ok(super::finish(printed, code))
    }
}

/// A line for each fact, which starts with its kind.
struct Lines<'a>(&'a Status);

impl fmt::Display for Lines<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let status = self.0;
        let mut line = |kind: &str, fact: fmt::Arguments<'_>| writeln!(f, "{kind:<14} {fact}");
        match &*status.revision {
            "unknown" => line("version", format_args!("{}", status.version))?,
            revision => line("version", format_args!("{} ({revision})", status.version))?,
        }
        let uptime = Span(Duration::from_secs(status.uptime_s));
        let (pid, phase) = (status.pid, <&str>::from(status.phase));
        line("process", format_args!("{pid}, {phase}, up for {uptime}"))?;
        let (hash, since) = (&status.ruleset.hash, rfc_3339(status.ruleset.loaded_at.0));
        line("configuration", format_args!("{hash}, since {since}"))?;
        match &status.last_reload {
            None => line("last reload", format_args!("none"))?,
            Some(reload) => {
                let (result, at) = (<&str>::from(reload.result), rfc_3339(reload.at.0));
                line("last reload", format_args!("{result} at {at}"))?;
            }
        }
        for store in &status.stores {
            let state = store.detail.as_deref().unwrap_or(store.state.into());
            line("store", format_args!("{}: {state}", store.name))?;
        }
        let Connections { open, max } = status.connections;
        line("connections", format_args!("{open} of {max}"))?;
        for note in &status.notes {
            line("note", format_args!("{note}"))?;
        }
        for problem in &status.problem_details {
            let since = rfc_3339(problem.since.0);
            line("problem", format_args!("{} (since {since})", problem.text))?;
            let severity = format!("  {}", problem.severity);
            line(&severity, format_args!("{}", problem.remedy))?;
        }
        if status.problems.is_empty() {
            line("problems", format_args!("none"))
        } else {
            Ok(())
        }
    }
}
