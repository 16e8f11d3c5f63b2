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

mod api;
mod assets;
mod audit;
pub mod auth;
pub mod health;
mod configuration;
mod events;
mod explain;
pub mod hosts;
mod json;
mod keys;
mod live;
pub mod playground;
mod openapi;
mod policies;
mod problem_details;
pub mod problems;
mod query;
pub mod reload_history;
mod routes;
mod scrape;
mod service;
pub mod status;
mod streams;
mod top;
mod upstreams;

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::header::{ALLOW, CACHE_CONTROL, HeaderName};
use http::{StatusCode, Uri};

use self::auth::{Access, AccessSpec};
use self::health::Readiness;
use self::hosts::{AllowedHosts, HostCheck};
use self::playground::{Playground, PlaygroundApi};
use self::problem_details::ProblemDetails;
use self::problems::StatusProblem;
use self::reload_history::ReloadHistory;
use self::scrape::MetricsRenderer;
use self::service::AdminService;
use self::status::ProcessFacts;
use self::streams::{Streams, make_messages};
use crate::clock::Clock;
use crate::http::connection::ClientConnection;
use crate::proxy::Gateway;
use crate::rules::HostPattern;
use crate::server::tls::Tls;
use crate::server::{
    BoundListeners, ClientRules, ClientSpec, ConnectionLife, HalfClose, ListenerSpec, Protocols,
    Server, ServerSpec, StartError, Timeouts,
};
use crate::telemetry::access_log::KeyForm;
use crate::telemetry::log_throttle::LogThrottle;
use crate::telemetry::metrics::{AdminMetrics, RecentCounts};
use crate::telemetry::registry::Registry;

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
    /// TLS, loaded for [`PROTOCOLS`]; `None` for clear text.
    pub tls: Option<Tls>,
}

/// The version of HTTP: one answer at a time, while in HTTP/2 a connection may have a hundred.
pub const PROTOCOLS: Protocols = Protocols::Http1;

/// The parts of the process that endpoints read and change. `app` keeps clones of some.
#[derive(Clone, Debug)]
pub struct AdminContext {
    /// The registry of metric series.
    pub registry: Registry,
    /// The phase of the process, and the use of its connections.
    pub readiness: Readiness,
    /// The server of requests, with the ruleset in force.
    pub gateway: Arc<Gateway>,
    /// The clock.
    pub clock: Arc<Clock>,
    /// The tokens of callers.
    pub access: Access,
    /// The hosts of the listener.
    pub hosts: AllowedHosts,
    /// The running configuration, and the last reloads.
    pub reloads: ReloadHistory,
    /// The constants of the process.
    pub facts: ProcessFacts,
    /// The events of the last minutes.
    pub recent: RecentCounts,
    /// The reason why buckets aren't saved.
    pub snapshot_problem: StatusProblem,
    /// The changes that wait for a restart.
    pub restart_problem: StatusProblem,
    /// The computations of the playground.
    pub playground: PlaygroundApi,
}

/// The process, as endpoints see it. Clones share it.
#[derive(Clone)]
struct AdminState {
    metrics: MetricsRenderer,
    admin_metrics: AdminMetrics,
    readiness: Readiness,
    gateway: Arc<Gateway>,
    clock: Arc<Clock>,
    access: Access,
    reloads: ReloadHistory,
    facts: ProcessFacts,
    recent: RecentCounts,
    snapshot_problem: StatusProblem,
    restart_problem: StatusProblem,
    playground: Playground,
    streams: Streams,
    /// Changes that callers ask for which may make none.
    refused_changes: Arc<LogThrottle>,
}

impl AdminState {
    fn new(context: AdminContext) -> Self {
        let admin_metrics = AdminMetrics::new(&context.registry);
        Self {
            metrics: MetricsRenderer::new(context.registry.clone()),
            streams: Streams::new(admin_metrics.clone()),
            admin_metrics,
            readiness: context.readiness,
            gateway: context.gateway,
            clock: context.clock,
            access: context.access,
            reloads: context.reloads,
            facts: context.facts,
            recent: context.recent,
            snapshot_problem: context.snapshot_problem,
            restart_problem: context.restart_problem,
            playground: Playground::new(context.playground),
            refused_changes: Arc::new(LogThrottle::new(Duration::from_secs(1))),
        }
    }
}

/// The admin server before it starts: its address is bound.
#[derive(Debug)]
pub struct BoundAdmin {
    spec: ServerSpec,
    listeners: BoundListeners,
}

/// Binds the admin server's address.
///
/// # Errors
///
/// An address that cannot be bound.
pub fn bind(
    address: SocketAddr,
    tls: Option<Tls>,
    max_connections: usize,
    registry: &Registry,
) -> Result<BoundAdmin, StartError> {
    let spec = spec(listener(address, tls), max_connections);
    let listeners = BoundListeners::bind(&spec, registry)?;
    Ok(BoundAdmin { spec, listeners })
}

impl BoundAdmin {
    /// Starts the admin server.
    ///
    /// # Errors
    ///
    /// A thread that cannot be started.
    pub fn start(self, context: AdminContext) -> Result<Server, StartError> {
        let hosts = context.hosts.clone();
        let state = AdminState::new(context);
        let source = state.clone();
        let begin = move |_| {
            let source = source.clone();
            async move { drop(tokio::spawn(make_messages(source))) }
        };
        let hosts = HostCheck::new(hosts, state.admin_metrics.clone());
        self.serve(router(state), hosts, begin)
    }

    /// Serves this router, once `begin` has run.
    fn serve<F, B>(self, router: Router, hosts: HostCheck, begin: F) -> Result<Server, StartError>
    where
        F: Fn(usize) -> B + Clone + Send + 'static,
        B: Future<Output = ()> + 'static,
    {
        let Self { spec, listeners } = self;
        let factory = move |connection: &ClientConnection| {
            AdminService::new(router.clone(), hosts.clone(), connection.peer)
        };
        let nothing = |_| std::future::ready(());
        Server::start_with(spec, listeners, factory, begin, nothing)
    }
}

/// The most connections, if there are files enough.
pub const MAX_CONNECTIONS: usize = 256;

/// The admin listener.
pub fn listener(address: SocketAddr, tls: Option<Tls>) -> ListenerSpec {
    ListenerSpec {
        address: address.into(),
        proxy_protocol: false,
        protocols: PROTOCOLS,
        tls,
    }
}

/// One worker, with bounds that suit operators and their monitoring.
fn spec(listener: ListenerSpec, max_connections: usize) -> ServerSpec {
    ServerSpec {
        name: "admin",
        workers: NonZeroUsize::MIN,
        listeners: vec![listener],
        client: ClientSpec {
            timeouts: Timeouts {
                head: Duration::from_secs(2),
                body: Duration::from_secs(10),
                idle: Duration::from_secs(60),
            },
            max_head: 16 * 1024,
            max_fields: 100,
            max_connections,
            // Older connections give way instead.
            max_connections_per_client: Some(usize::MAX),
            life: ConnectionLife {
                max_requests: u32::MAX,
                max_lifetime: Duration::from_secs(24 * 3600),
            },
            half_close: HalfClose::default(),
        },
        client_rules: ClientRules::default(),
        max_exchange: Some(Duration::from_secs(10)),
    }
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

/// A header field of every response: each is true for a moment only.
const NO_STORE: (HeaderName, &str) = (CACHE_CONTROL, "no-store");

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
