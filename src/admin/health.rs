//! Liveness and readiness of the process, for probes.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::RETRY_AFTER;

use super::problem_details::NO_STORE;
use super::readiness::Phase;
use super::state::AdminState;
use super::upstreams;
use crate::proxy::Ruleset;

pub(super) async fn livez() -> impl IntoResponse {
    ([NO_STORE], "alive\n")
}

pub(super) async fn readyz(State(state): State<AdminState>) -> Response {
    let ruleset = state.gateway.ruleset();
    let mut lines = String::new();
    if let Some(store) = ruleset.store.redis() {
        let crowded = if store.client().is_crowded() {
            ", crowded"
        } else {
            ""
        };
        lines += &format!("redis: {}{crowded}\n", store.client().state());
    }
    for name in upstreams::down(&ruleset) {
        lines += &format!("upstream {name}: {}\n", upstreams::DOWN);
    }
    lines += &state.readiness.pressure_line();
    match (state.readiness.get(), unready(&ruleset)) {
        (Phase::Ready, None) => ([NO_STORE], format!("ready\n{lines}")).into_response(),
        (Phase::Ready, Some(reason)) => unavailable(format!("not ready: {reason}\n{lines}")),
        (phase, _) => unavailable(format!("{}\n{lines}", <&str>::from(phase))),
    }
}

/// The reason why the process takes no traffic although its listeners serve, if there is one.
fn unready(ruleset: &Ruleset) -> Option<String> {
    let policies = match &*ruleset.policies_without_store() {
        // The other servers of a cluster decide about the other keys.
        _ if ruleset.store.unreachable_share() < 1.0 => return None,
        [] => return None,
        [first] => format!("policy {first}"),
        [first, others @ ..] => format!("policy {first} and {} more", others.len()),
    };
    let consequence = "cannot reach Redis, and on_store_error is refuse";
    Some(format!("{policies} {consequence}"))
}

fn unavailable(body: String) -> Response {
    let headers = [NO_STORE, (RETRY_AFTER, "1")];
    (StatusCode::SERVICE_UNAVAILABLE, headers, body).into_response()
}
