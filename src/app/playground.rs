//! The playground: a server without a configuration, and the computations behind its endpoints.

use std::net::SocketAddr;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use similar::TextDiff;

use super::StartupError;
use super::signals::Signals;
use super::startup_error::runtime;
use crate::admin::computations::{Computation, PlaygroundApi};
use crate::admin::playground;
use crate::admin::problem_details::ProblemDetails;
use crate::config::{self, Problem};
use crate::net::socket::StreamAddress;
use crate::replay::playground::{Answer, PlayError, PlayRequest, play};
use crate::telemetry::panics;
use crate::telemetry::registry::Registry;

/// The computations of the playground.
pub(super) fn api() -> PlaygroundApi {
    PlaygroundApi {
        play: Computation::new::<PlayRequest, Answer>(decide),
        check: Computation::new::<CheckRequest, CheckAnswer<'static>>(check),
    }
}

/// Serves the playground at `address`, and calls `tell` with the bound address, until the process
/// is told to end.
///
/// # Errors
/// When it cannot start.
pub fn playground(
    address: SocketAddr,
    tell: impl FnOnce(&StreamAddress),
) -> Result<(), StartupError> {
    panics::install_hook();
    let runtime = runtime("the main runtime")?;
    runtime.block_on(async {
        let mut signals = Signals::new().map_err(StartupError::system("signals"))?;
        let server = playground::start(address, &Registry::default(), api())?;
        server.addresses().first().map(tell);
        signals.end().await;
        drop(server);
        Ok(())
    })
}

fn decide(request: &[u8]) -> Result<Vec<u8>, ProblemDetails> {
    let answer = play(request).map_err(|error| match error {
        PlayError::Malformed(_) => ProblemDetails::malformed(error.to_string()),
        PlayError::Impossible(_) => ProblemDetails::impossible(error.to_string()),
        PlayError::Policies(ref report) => {
            ProblemDetails::impossible(error.to_string()).with_findings(json!(report.reported()))
        }
    })?;
    serde_json::to_vec(&answer).map_err(ProblemDetails::internal)
}

/// The text to check.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct CheckRequest {
    /// The configuration.
    text: String,
    /// A masked text to compare with, as /v1/config has it.
    against: Option<String>,
}

/// The problems of a text.
#[derive(Serialize, JsonSchema)]
struct CheckAnswer<'a> {
    /// The first 1000 problems, in the order of the text.
    #[schemars(length(max = 1_000))]
    findings: &'a [Problem],
    /// The text as `text` of `/v1/config` shows it: without secrets, unknown keys and comments. Empty
    /// of values if it is no YAML.
    masked_text: String,
    /// The changes from `against` to `masked_text`, as `diff -u` writes them below its head. Empty if
    /// there are none, null without `against`.
    difference: Option<String>,
}

/// Finds what is wrong with a text, without a look at files or the environment.
fn check(request: &[u8]) -> Result<Vec<u8>, ProblemDetails> {
    let request = serde_json::from_slice(request);
    let CheckRequest { text, against } =
        request.map_err(|error| ProblemDetails::malformed(error.to_string()))?;
    let checked = config::parse("playground", text, &|_| None);
    let report = checked.map_or_else(|report| report, config::lint_text);
    let masked_text = report.masked_text();
    let answer = CheckAnswer {
        findings: report.reported(),
        difference: against.map(|against| difference(&against, &masked_text)),
        masked_text,
    };
    serde_json::to_vec(&answer).map_err(ProblemDetails::internal)
}

/// The lines that differ, beside the number of empty lines: comments leave some. What is not compared after
/// a second counts as different.
fn difference(old: &str, new: &str) -> String {
    let [old, new] = [old, new].map(|text| {
        let mut lines: Vec<_> = text.trim_end().lines().collect();
        lines.dedup_by(|line, last| line.trim().is_empty() && last.trim().is_empty());
        lines.join("\n") + "\n"
    });
    let mut compared = TextDiff::configure();
    let compared = compared.timeout(Duration::from_secs(1));
    let compared = compared.diff_lines(&old, &new);
    compared.unified_diff().to_string()
}
