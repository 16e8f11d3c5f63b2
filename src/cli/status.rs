//! `sluicegate status`: the state of a running proxy, and its problems.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::process::ExitCode;

use clap::Args;
use serde_json::Value;

use super::WRONG;
use super::admin_client::AdminArgs;
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
    let uptime = status["uptime_s"].as_u64().map_or_else(String::new, span);
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

/// Seconds as people say them: `2d 3h`, `5m 12s`.
fn span(seconds: u64) -> String {
    let units = [("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)];
    let mut left = seconds;
    let counts = units.map(|(unit, length)| {
        let count = left / length;
        left %= length;
        (count, unit)
    });
    let first = counts.iter().position(|(count, _)| *count > 0).unwrap_or(3);
    let shown = counts[first..].iter().take(2);
    let shown: Vec<_> = shown
        .map(|(count, unit)| format!("{count}{unit}"))
        .collect();
    shown.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_have_their_two_largest_units() {
        let spans = [0, 59, 61, 3_600, 86_399, 200_000].map(span);
        assert_eq!(spans, ["0s", "59s", "1m 1s", "1h 0m", "23h 59m", "2d 7h"]);
    }
}
