//! The playground: a server without a configuration, and the computations behind its endpoints.

use std::net::SocketAddr;

use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use super::StartupError;
use super::signals::Signals;
use crate::admin::playground::{self, JsonAnswer, PlaygroundApi};
use crate::config;
use crate::net::listener::ListenAddress;
use crate::replay::playground::{PlayError, play};
use crate::telemetry::panics;
use crate::telemetry::registry::Registry;

/// The computations of the playground.
pub(super) const API: PlaygroundApi = PlaygroundApi {
    play: decide,
    check,
};

/// Serves the playground at `address`, and calls `tell` with the bound address, until the process
/// is told to end.
///
/// # Errors
/// When it cannot start.
pub fn playground(
    address: SocketAddr,
    tell: impl FnOnce(&ListenAddress),
) -> Result<(), StartupError> {
    panics::install_hook();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(StartupError::system("the main runtime"))?;
    runtime.block_on(async {
        let mut signals = Signals::new().map_err(StartupError::system("signals"))?;
        let server = playground::start(address, &Registry::default(), API)?;
        server.addresses().first().map(tell);
        signals.end().await;
        drop(server);
        Ok(())
    })
}

fn decide(request: &[u8]) -> JsonAnswer {
    match play(request) {
        Ok(answer) => JsonAnswer {
            status: StatusCode::OK,
            body: serde_json::to_vec(&answer).unwrap_or_default(),
        },
        Err(error) => refusal(&error),
    }
}

fn refusal(error: &PlayError) -> JsonAnswer {
    let status = match error {
        PlayError::Malformed(_) => StatusCode::BAD_REQUEST,
        PlayError::Impossible(_) | PlayError::Policies(_) => StatusCode::UNPROCESSABLE_ENTITY,
    };
    let mut problem = problem(status, &error.to_string());
    if let PlayError::Policies(report) = error {
        problem["findings"] = json!(report.reported());
    }
    JsonAnswer {
        status,
        body: problem.to_string().into_bytes(),
    }
}

/// The text to check.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CheckRequest {
    text: String,
}

/// Finds what is wrong with a text, without a look at files or the environment.
fn check(request: &[u8]) -> JsonAnswer {
    let CheckRequest { text } = match serde_json::from_slice(request) {
        Ok(request) => request,
        Err(error) => return refusal(&PlayError::Malformed(error)),
    };
    let checked = config::parse("playground", text, &|_| None);
    let report = checked.map_or_else(|report| report, config::lint_text);
    JsonAnswer {
        status: StatusCode::OK,
        body: json!({ "findings": report.reported(), "masked_text": report.masked_text() })
            .to_string()
            .into_bytes(),
    }
}

/// Problem details (RFC 9457). Errors of JSON repeat names of the request: the first 1000 characters
/// are enough.
fn problem(status: StatusCode, detail: &str) -> Value {
    let detail: String = detail.chars().take(1_000).collect();
    json!({
        "type": "about:blank",
        "title": status.canonical_reason(),
        "status": status.as_u16(),
        "detail": detail,
    })
}
