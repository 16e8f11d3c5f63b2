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

/// The state of the stores, and of connections.
#[derive(Debug, Default)]
struct StoreReport {
    /// A line for each store.
    lines: String,
    /// The reason why the process takes no traffic without them; `None` if it does.
    unready: Option<String>,
}

impl StoreReport {
    fn new(ruleset: &Ruleset) -> Self {
        let Some(store) = ruleset.store.redis() else {
            return Self::default();
        };
        let policies = match &*ruleset.policies_without_store() {
            // The other servers of a cluster decide about the other keys.
            _ if ruleset.store.unreachable_share() < 1.0 => None,
            [] => None,
            [first] => Some(format!("policy {first}")),
            [first, others @ ..] => Some(format!("policy {first} and {} more", others.len())),
        };
        let unready =
            |policies| format!("{policies} cannot reach Redis, and on_store_error is refuse");
        let crowded = if store.client().is_crowded() {
            ", crowded"
        } else {
            ""
        };
        Self {
            lines: format!("redis: {}{crowded}\n", store.client().state()),
            unready: policies.map(unready),
        }
    }
}

pub(super) async fn livez() -> impl IntoResponse {
    ([NO_STORE], "alive\n")
}

pub(super) async fn readyz(State(state): State<AdminState>) -> Response {
    let ruleset = state.gateway.ruleset();
    let mut report = StoreReport::new(&ruleset);
    for name in upstreams::down(&ruleset) {
        report.lines += &format!("upstream {name}: {}\n", upstreams::DOWN);
    }
    report.lines += &state.readiness.pressure_line();
    respond(state.readiness.get(), report)
}

fn respond(phase: Phase, StoreReport { lines, unready }: StoreReport) -> Response {
    let is_ready = phase == Phase::Ready && unready.is_none();
    let body = match unready {
        Some(reason) if phase == Phase::Ready => format!("not ready: {reason}\n{lines}"),
        _ => format!("{}\n{lines}", <&str>::from(phase)),
    };
    if is_ready {
        return ([NO_STORE], body).into_response();
    }
    let headers = [NO_STORE, (RETRY_AFTER, "1")];
    (StatusCode::SERVICE_UNAVAILABLE, headers, body).into_response()
}
