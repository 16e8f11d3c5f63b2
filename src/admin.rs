//! The admin listener: a server of its own, whose router leads to endpoints over the process's
//! state.
//!
//! | path | answers |
//! | --- | --- |
//! | `/metrics` | every metric, in Prometheus's text format |
//! | `/livez` | 200 while the process runs: never depends on upstreams or stores |
//! | `/readyz` | 200 while it takes traffic, 503 while it starts, drains, or cannot do without a store that is out of reach; more lines say how each store is, and if connections run out |
//!
//! Other paths are 404, other methods than GET and HEAD are 405. Nothing here changes the process.

mod auth;
pub mod health;
mod scrape;
mod service;

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::middleware::from_fn;
use axum::response::IntoResponse;
use axum::routing::get;
use http::StatusCode;
use http::header::{ALLOW, CACHE_CONTROL, HeaderName};

use self::health::Readiness;
use self::scrape::MetricsRenderer;
use self::service::AdminService;
use crate::http::connection::ClientConnection;
use crate::proxy::Gateway;
use crate::server::{
    ClientRules, ClientSpec, ConnectionLife, ConnectionTable, HalfClose, ListenerSpec, Protocols,
    Server, ServerSpec, StartError, Timeouts,
};
use crate::telemetry::registry::Registry;

/// The process, as endpoints see it. Clones share it.
#[derive(Clone)]
struct AdminState {
    metrics: MetricsRenderer,
    readiness: Readiness,
    gateway: Arc<Gateway>,
}

/// Starts the admin server at `address`.
///
/// # Errors
///
/// An address that cannot be bound, or a thread that cannot be started.
pub fn start(
    address: SocketAddr,
    registry: &Registry,
    readiness: Readiness,
    gateway: Arc<Gateway>,
) -> Result<Server, StartError> {
    let metrics = MetricsRenderer::new(registry.clone());
    let router = router(AdminState {
        metrics,
        readiness,
        gateway,
    });
    let table = ConnectionTable::default();
    let spec = spec(address, table.clone());
    Server::start(spec, registry, move |connection: &ClientConnection| {
        AdminService::new(router.clone(), table.clone(), connection.id)
    })
}

/// One worker in clear text, with bounds that suit operators and their monitoring.
fn spec(address: SocketAddr, table: ConnectionTable) -> ServerSpec {
    ServerSpec {
        name: "admin",
        workers: NonZeroUsize::MIN,
        listeners: vec![ListenerSpec {
            address: address.into(),
            proxy_protocol: false,
            // One answer at a time: in HTTP/2 a connection may have a hundred.
            protocols: Protocols::Http1,
            tls: None,
        }],
        client: ClientSpec {
            timeouts: Timeouts {
                head: Duration::from_secs(2),
                body: Duration::from_secs(10),
                idle: Duration::from_secs(60),
            },
            max_head: 16 * 1024,
            max_connections: 256,
            // The table evicts instead.
            max_connections_per_client: Some(usize::MAX),
            life: ConnectionLife {
                max_requests: u32::MAX,
                max_lifetime: Duration::from_secs(24 * 3600),
            },
            half_close: HalfClose::default(),
        },
        client_rules: ClientRules::default(),
        table: Some(table),
    }
}

/// All endpoints, behind authentication.
fn router(state: AdminState) -> Router {
    Router::new()
        .route("/livez", get(health::livez))
        .route("/readyz", get(health::readyz))
        .route("/metrics", get(scrape::metrics))
        .method_not_allowed_fallback(method_not_allowed)
        .fallback(not_found)
        .layer(from_fn(auth::authenticate))
        .with_state(state)
}

/// A header field of every response: each is true for a moment only.
const NO_STORE: (HeaderName, &str) = (CACHE_CONTROL, "no-store");

async fn not_found() -> impl IntoResponse {
    let body = "not found: try /metrics, /livez or /readyz\n";
    (StatusCode::NOT_FOUND, [NO_STORE], body)
}

async fn method_not_allowed() -> impl IntoResponse {
    let headers = [NO_STORE, (ALLOW, "GET, HEAD")];
    (
        StatusCode::METHOD_NOT_ALLOWED,
        headers,
        "only GET and HEAD\n",
    )
}

#[cfg(test)]
mod tests;
