//! `sluicegate status`: the state of a running proxy, and its problems.

use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde::Deserialize;

use super::WRONG;
use super::admin_client::Answer;
use super::admin_options::AdminArgs;
use crate::clock::text::Span;
use crate::config::TokenRole;

const EXAMPLES: &str = "\
Examples:
  sluicegate status --config sluicegate.yaml
  SLUICEGATE_ADMIN_TOKEN=.. sluicegate status --admin http://127.0.0.1:9980

Exits with 1 if the proxy has a problem, or does not answer.";

#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct StatusArgs {
    #[command(flatten)]
    admin: AdminArgs,
    /// Print the answer of the admin API, as JSON
    #[arg(long)]
    json: bool,
}

/// The fields of the answer that are printed.
#[derive(Deserialize)]
struct Status {
    version: String,
    revision: String,
    pid: u32,
    phase: String,
    uptime_s: u64,
    ruleset: Ruleset,
    last_reload: Option<Reload>,
    stores: Vec<Store>,
    connections: Connections,
    problems: Vec<String>,
    /// Absent in answers of earlier versions.
    #[serde(default)]
    notes: Vec<String>,
}

#[derive(Deserialize)]
struct Ruleset {
    hash: String,
    loaded_at: String,
}

#[derive(Deserialize)]
struct Reload {
    result: String,
    at: String,
}

#[derive(Deserialize)]
struct Store {
    name: String,
    state: String,
    detail: Option<String>,
}

#[derive(Deserialize)]
struct Connections {
    open: u64,
    max: u64,
}

pub(super) fn status(options: &StatusArgs) -> ExitCode {
    let client = options.admin.client(TokenRole::Read);
    let answer = client.and_then(|client| {
        let answer = client.get::<Status>("/v1/status");
        answer.map_err(|error| error.to_string())
    });
    let Answer { json, fields } = match answer {
        Ok(answer) => answer,
        Err(message) => {
            super::tell(message);
            return ExitCode::from(WRONG);
        }
    };
    let text = match options.json {
        true => format!("{json:#}\n"),
        false => fields.to_string(),
    };
    let code = match fields.problems.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(WRONG),
    };
    super::finish(io::stdout().write_all(text.as_bytes()), code)
}

/// A line for each fact, which starts with its kind.
impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = |kind: &str, fact: fmt::Arguments<'_>| writeln!(f, "{kind:<14} {fact}");
        match &*self.revision {
            "unknown" => line("version", format_args!("{}", self.version))?,
            revision => line("version", format_args!("{} ({revision})", self.version))?,
        }
        let uptime = Span(Duration::from_secs(self.uptime_s));
        let (pid, phase) = (self.pid, &self.phase);
        line("process", format_args!("{pid}, {phase}, up for {uptime}"))?;
        let Ruleset { hash, loaded_at } = &self.ruleset;
        line("configuration", format_args!("{hash}, since {loaded_at}"))?;
        match &self.last_reload {
            None => line("last reload", format_args!("none"))?,
            Some(Reload { result, at }) => {
                line("last reload", format_args!("{result} at {at}"))?;
            }
        }
        for store in &self.stores {
            let state = store.detail.as_ref().unwrap_or(&store.state);
            line("store", format_args!("{}: {state}", store.name))?;
        }
        let Connections { open, max } = self.connections;
        line("connections", format_args!("{open} of {max}"))?;
        for note in &self.notes {
            line("note", format_args!("{note}"))?;
        }
        for problem in &self.problems {
            line("problem", format_args!("{problem}"))?;
        }
        match self.problems.is_empty() {
            true => line("problems", format_args!("none")),
            false => Ok(()),
        }
    }
}
