//! The running configuration, and the last reloads.

use std::sync::Arc;

use axum::extract::State;
use serde::Serialize;

use super::AdminState;
use super::json::{Json, Rfc3339};
use super::reload_history::{Reload, ReloadResult};
use crate::proxy::ruleset::reload_diff::{BucketChange, OutcomeKind};

#[derive(Serialize)]
pub(super) struct RunningConfigBody {
    source: String,
    /// The text, with its secrets masked.
    text: Arc<str>,
    hash: String,
    loaded_at: Rfc3339,
    /// The error of the last reload, if it failed.
    last_error: Option<Arc<str>>,
    /// The buckets that the last successful reload reset or rescaled.
    reset: Vec<BucketChange>,
}

#[derive(Serialize)]
pub(super) struct ReloadList {
    /// The newest first, 50 at most.
    reloads: Vec<ReloadBody>,
}

#[derive(Serialize)]
pub(super) struct ReloadBody {
    at: Rfc3339,
    result: ReloadResult,
    /// The hash of the configuration that runs since then.
    hash: Option<String>,
    error: Option<Arc<str>>,
    buckets: Vec<BucketChange>,
    warnings: Vec<String>,
}

pub(super) async fn running(State(state): State<AdminState>) -> Json<RunningConfigBody> {
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
    Json(RunningConfigBody {
        source: running.source,
        text: running.text,
        hash: running.hash,
        loaded_at: Rfc3339(running.loaded_at),
        last_error,
        reset,
    })
}

pub(super) async fn reloads(State(state): State<AdminState>) -> Json<ReloadList> {
    let reloads = state.reloads.all().into_iter().map(ReloadBody::from);
    Json(ReloadList {
        reloads: reloads.collect(),
    })
}

impl From<Reload> for ReloadBody {
    fn from(reload: Reload) -> Self {
        Self {
            at: Rfc3339(reload.at),
            result: reload.result,
            hash: reload.hash,
            error: reload.error,
            buckets: reload.buckets,
            warnings: reload.warnings,
        }
    }
}
