//! The playground: `POST /v1/playground`, and a server of its own that needs no configuration.
//!
//! The server has no secrets and asks for no token. Pages of other sites cannot use it all the
//! same: their requests have another Host, or another Origin.

use std::net::SocketAddr;

use axum::Router;
use axum::extract::{FromRef, Request, State};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};

use super::auth::is_cross_origin;
use super::computations::{Playground, PlaygroundApi};
use super::hosts::{AllowedHosts, HostCheck};
use super::json::JsonText;
use super::listener::{MAX_CONNECTIONS, bind, serve};
use super::problem_details::ProblemDetails;
use super::state::AdminState;
use super::{assets, service};
use crate::net::listener::passed::PassedSockets;
use crate::server::{Server, StartError, no_hook};
use crate::telemetry::metrics::{AdminMetrics, AdminRefusal};
use crate::telemetry::registry::Registry;

/// Starts a server with the page, `/v1/playground` and `/v1/check`.
///
/// # Errors
/// An address that cannot be bound, or a thread that cannot be started.
pub fn start(
    address: SocketAddr,
    registry: &Registry,
    api: PlaygroundApi,
) -> Result<Server, StartError> {
    let hosts = AllowedHosts::without_names();
    let hosts = HostCheck::new(hosts, AdminMetrics::new(registry));
    let bound = bind(
        address,
        None,
        MAX_CONNECTIONS,
        registry,
        &mut PassedSockets::default(),
    )?;
    serve(bound, router(Playground::new(api)), hosts, no_hook())
}

fn router(playground: Playground) -> Router {
    // The page itself is for everybody: links to it are shared.
    let computing = Router::new()
        .route("/v1/playground", post(play))
        .route(service::CHECK, post(check))
        .layer(from_fn(own_pages_only));
    Router::new()
        .route("/", get(assets::playground))
        .route("/assets/{*name}", get(assets::asset))
        .merge(computing)
        .with_state(playground)
}

/// `POST /v1/playground`.
pub(super) async fn play(State(playground): State<Playground>, text: JsonText) -> Response {
    playground.compute(playground.api.play, text).await
}

/// `POST /v1/check`.
pub(super) async fn check(State(playground): State<Playground>, text: JsonText) -> Response {
    playground.compute(playground.api.check, text).await
}

impl FromRef<AdminState> for Playground {
    fn from_ref(state: &AdminState) -> Self {
        state.playground.clone()
    }
}

/// Refuses requests of pages that this server did not send.
async fn own_pages_only(request: Request, next: Next) -> Response {
    if is_cross_origin(request.headers()) {
        ProblemDetails::from(AdminRefusal::CrossOrigin).into_response()
    } else {
        next.run(request).await
    }
}
