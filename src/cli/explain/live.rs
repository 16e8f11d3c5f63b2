//! The explanation of a running proxy, by `POST /v1/explain`.

use serde_json::Value;

use super::ExplainArgs;
use crate::admin::actor::TokenRole;
use crate::admin::explain::ExplainRequest;
use crate::cli::Failure;
use crate::cli::admin_client::ApiAnswer;
use crate::cli::admin_options::find_client;
use crate::proxy::inspect::explain::{AnswerReport, ExplanationReport};
use crate::visible;

/// An explanation of a running proxy.
pub(super) struct LiveExplanation {
    /// The URL of the proxy.
    proxy: String,
    /// The answer as the proxy sent it.
    pub(super) json: Value,
    /// The answer to the request.
    pub(super) answer: AnswerReport,
}

impl ExplainArgs {
    /// Asks the proxy at `admin`, or that of the configuration.
    ///
    /// # Errors
    /// The proxy refuses or does not answer.
    pub(super) fn ask(
        &self,
        admin: Option<&str>,
        request: &ExplainRequest,
    ) -> Result<LiveExplanation, Failure> {
        let config = self.config.as_ref();
        let client = find_client(admin, &self.token, config, TokenRole::Read)?;
        let ApiAnswer { json, fields } =
            client.post::<ExplanationReport>("/v1/explain", request)?;
        Ok(LiveExplanation {
            proxy: client.url(),
            json,
            answer: fields.answer,
        })
    }
}

impl LiveExplanation {
    /// The explanation for people. It has no characters that would disturb a terminal.
    pub(super) fn text(&self) -> String {
        let lines = self.lines().map(|line| visible::text(line) + "\n");
        [format!("buckets   of the proxy at {}\n", self.proxy)]
            .into_iter()
            .chain(lines)
            .collect()
    }

    /// The answer to the request: the last line of the text without its first word.
    pub(super) fn answer_text(&self) -> String {
        let last = self.lines().last().unwrap_or_default();
        visible::text(last.strip_prefix("answer").unwrap_or(last).trim_start())
    }

    fn lines(&self) -> impl Iterator<Item = &str> {
        self.json["text"].as_str().unwrap_or_default().lines()
    }
}
