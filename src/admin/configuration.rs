//! The running configuration, and the last reloads.

use std::sync::Arc;

use axum::extract::State;
use schemars::JsonSchema;
use serde::Serialize;

use super::json::{Json, Rfc3339};
use super::reload_history::{ReloadEvent, ReloadResult};
use super::state::AdminState;
use crate::proxy::ruleset::reload_diff::{BucketChange, OutcomeKind};

/// The running configuration.
#[derive(Serialize, JsonSchema)]
pub(super) struct Config {
    /// The path of the file.
    source: String,
    /// The text, with its secrets masked.
    text: Arc<str>,
    /// A hash of the text.
    hash: String,
    /// The instant since which it runs.
    loaded_at: Rfc3339,
    /// The error of the last reload, if it failed.
    last_error: Option<Arc<str>>,
    /// The buckets that the last successful reload reset or rescaled.
    reset: Vec<BucketChange>,
}

/// The last reloads.
#[derive(Serialize, JsonSchema)]
pub(super) struct ReloadList {
    /// The newest first.
    #[schemars(length(max = 50))]
    reloads: Vec<ReloadEvent>,
}

pub(super) async fn running(State(state): State<AdminState>) -> Json<Config> {
    let (running, reloads) = (state.reloads.running(), state.reloads.all());
    let succeeded = reloads
        .iter()
        .find(|reload| reload.result != ReloadResult::Failed);
    let last_error = reloads.first().and_then(|reload| reload.error.clone());
    let reset = succeeded.map_or_else(Vec::new, |reload| {
        let changes = reload.buckets.iter();
        changes
            .filter(|one| matches!(one.outcome, OutcomeKind::Reset | OutcomeKind::Rescaled))
            .cloned()
            .collect()
    });
    Json(Config {
        source: running.info.source,
        text: running.info.text,
        hash: running.info.hash,
        loaded_at: Rfc3339(running.loaded_at),
        last_error,
        reset,
    })
}

pub(super) async fn reloads(State(state): State<AdminState>) -> Json<ReloadList> {
    let reloads = state.reloads.all();
    Json(ReloadList { reloads })
}
