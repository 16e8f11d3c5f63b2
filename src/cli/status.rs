//! `sluicegate status`: the state of a running proxy, and its problems.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde_json::Value;

use super::WRONG;
use super::admin_client::AdminArgs;
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

pub(super) fn status(options: &StatusArgs) -> ExitCode {
    let client = options.admin.client(TokenRole::Read);
    let answer = client.and_then(|client| {
        let answer = client.get("/v1/status");
        answer.map_err(|error| error.to_string())
    });
    let status = match answer {
        Ok(status) => status,
        Err(message) => {
            super::tell(message);
            return ExitCode::from(WRONG);
        }
    };
    let has_problems = status["problems"]
        .as_array()
        .is_some_and(|all| !all.is_empty());
    let text = match options.json {
        true => format!("{status:#}\n"),
        false => text(&status),
    };
    let code = match has_problems {
        true => ExitCode::from(WRONG),
        false => ExitCode::SUCCESS,
    };
    super::finish(io::stdout().write_all(text.as_bytes()), code)
}

/// A line for each fact, which starts with its kind.
fn text(status: &Value) -> String {
    let word = |value: &Value| match value {
        Value::String(text) => text.clone(),
        value => value.to_string(),
    };
    let mut text = String::new();
    let mut line = |kind: &str, fact: String| {
        writeln!(text, "{kind:<14} {fact}").expect("a string takes everything");
    };
    let (version, revision) = (word(&status["version"]), word(&status["revision"]));
    line("version", format!("{version} ({revision})"));
    let (pid, phase) = (word(&status["pid"]), word(&status["phase"]));
    let uptime = Duration::from_secs(status["uptime_s"].as_u64().unwrap_or_default());
    let uptime = Span(uptime);
    line("process", format!("{pid}, {phase}, up for {uptime}"));
    let ruleset = &status["ruleset"];
    let (hash, since) = (word(&ruleset["hash"]), word(&ruleset["loaded_at"]));
    line("configuration", format!("{hash}, since {since}"));
    let reload = &status["last_reload"];
    line(
        "last reload",
        match reload.is_null() {
            true => "none".to_owned(),
            false => format!("{} at {}", word(&reload["result"]), word(&reload["at"])),
        },
    );
    for store in status["stores"].as_array().into_iter().flatten() {
        let state = match &store["detail"] {
            Value::String(detail) => detail.clone(),
            _ => word(&store["state"]),
        };
        line("store", format!("{}: {state}", word(&store["name"])));
    }
    let connections = &status["connections"];
    let (open, max) = (word(&connections["open"]), word(&connections["max"]));
    line("connections", format!("{open} of {max}"));
    let problems = status["problems"].as_array();
    for problem in problems.into_iter().flatten() {
        line("problem", word(problem));
    }
    if problems.is_none_or(Vec::is_empty) {
        line("problems", "none".to_owned());
    }
    text
}
