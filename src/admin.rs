//! The admin listener: a server of its own, whose router leads to endpoints over the process's
//! state.
//!
//! | path | answers |
//! | --- | --- |
//! | `/metrics` | every metric, in Prometheus's text format |
//! | `/livez` | 200 while the process runs: never depends on upstreams or stores |
//! | `/readyz` | 200 while it takes traffic, 503 while it starts, drains, or cannot do without a store that is out of reach; more lines say how each store is, and if connections run out |
//! | `/v1/..` | the API, behind tokens: `api` has its endpoints |
//! | `/`, `/playground`, `/assets/..` | pages and their files, open to everybody: the pages ask the API |
//!
//! Other paths are 404, other methods 405, and hosts that are not of the listener 421.

pub mod access;
pub mod actor;
mod api;
mod assets;
mod audit;
mod auth;
pub mod computations;
mod configuration;
mod events;
pub mod explain;
mod health;
pub mod history;
pub mod hosts;
pub mod json;
pub mod keys;
pub mod listener;
mod live;
mod openapi;
pub mod playground;
pub mod per_label;
pub mod policies;
pub mod problem;
pub mod problem_details;
pub mod problems;
mod query;
pub mod readiness;
pub mod reload_history;
mod routes;
mod scrape;
mod service;
pub mod state;
pub mod status;
pub mod status_problem;
mod streams;
pub mod top;
pub mod totals;
pub mod traffic_history;
pub mod upstreams;

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::header::ALLOW;
use http::{StatusCode, Uri};
use tokio::sync::watch;

use self::access::AccessSpec;
use self::hosts::HostCheck;
use self::problem_details::{NO_STORE, ProblemDetails};
pub use self::problems::recent_events;
use self::state::{AdminContext, AdminState};
use self::streams::make_messages;
use crate::rules::HostPattern;
use crate::server::tls::Tls;
use crate::server::{BoundListeners, Server, StartError, WorkerHook};
use crate::telemetry::access_log::KeyForm;

/// The settings of the admin listener.
#[derive(Clone, Debug)]
pub struct AdminSpec {
    /// The address to bind.
    pub address: SocketAddr,
    /// The tokens of the API's callers.
    pub access: AccessSpec,
    /// The form of keys in answers.
    pub keys: KeyForm,
    /// The names by which clients address the listener.
    pub hosts: Vec<HostPattern>,
    /// TLS, loaded for [`listener::PROTOCOLS`]; `None` for clear text.
    pub tls: Option<Tls>,
}

/// Starts the admin server. It accepts clients once `is_open` is true.
///
/// # Errors
///
/// A thread that cannot be started.
pub fn start(
    bound: BoundListeners,
    context: AdminContext,
    is_open: watch::Receiver<bool>,
) -> Result<Server, StartError> {
    let hosts = context.hosts.clone();
    let state = AdminState::new(context);
    let source = state.clone();
    let begin: WorkerHook = Arc::new(move |_| {
        let (source, mut is_open) = (source.clone(), is_open.clone());
        Box::pin(async move {
            tokio::spawn(make_messages(source));
            // The sender is gone only if the process ends.
            let _ = is_open.wait_for(|is_open| *is_open).await;
        })
    });
    let hosts = HostCheck::new(hosts, state.admin_metrics.clone());
    listener::serve(bound, router(state), hosts, begin)
}

/// All paths. Those of the API alone need a token.
fn router(state: AdminState) -> Router {
    Router::new()
        .route("/livez", get(health::livez))
        .route("/readyz", get(health::readyz))
        .route("/metrics", get(scrape::metrics))
        .route("/", get(assets::dashboard))
        .route("/playground", get(assets::playground))
        .route("/assets/{*name}", get(assets::asset))
        .merge(api::router(&state))
        .method_not_allowed_fallback(method_not_allowed)
        .fallback(not_found)
        .with_state(state)
}

async fn not_found(uri: Uri) -> Response {
    let status = StatusCode::NOT_FOUND;
    if api::contains(&uri) {
        let detail = "the API has no such path: see /v1/openapi.json";
        return ProblemDetails::new(status, detail).into_response();
    }
    let body = "not found: try /metrics, /livez or /readyz\n";
    (status, [NO_STORE], body).into_response()
}

async fn method_not_allowed(uri: Uri) -> Response {
    let status = StatusCode::METHOD_NOT_ALLOWED;
    if api::contains(&uri) {
        // The router adds `Allow`.
        let detail = "this path has other methods: `Allow` names them";
        return ProblemDetails::new(status, detail).into_response();
    }
    let headers = [NO_STORE, (ALLOW, "GET, HEAD")];
    (status, headers, "only GET and HEAD\n").into_response()
}

#[cfg(test)]
mod tests;
