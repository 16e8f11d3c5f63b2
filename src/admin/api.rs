//! The endpoints of `/v1`: JSON, behind tokens. Each is a row here, with its callers.

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::{MethodRouter, get, post};
use http::Uri;

use super::audit::Action;
use super::auth::{require_read, require_write};
use super::{
    AdminState, configuration, explain, keys, openapi, playground, policies, routes, service,
    status, streams, top, upstreams,
};

/// An endpoint.
pub(super) struct Endpoint {
    pub(super) path: &'static str,
    pub(super) callers: Callers,
    methods: MethodRouter<AdminState>,
}

/// The callers of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Callers {
    /// Everybody.
    All,
    /// Callers that may read.
    Readers,
    /// Callers that may change something, and the change.
    Writers(Action),
}

/// All endpoints.
pub(super) fn endpoints() -> Vec<Endpoint> {
    vec![
        read("/v1/status", get(status::status)),
        read("/v1/policies", get(policies::list)),
        read("/v1/policies/{name}", get(policies::one)),
        read("/v1/playground", post(playground::play)),
        read(service::CHECK, post(playground::check)),
        write(
            "/v1/policies/{name}/mode",
            Action::Mode,
            post(policies::set_mode),
        ),
        read("/v1/routes", get(routes::list)),
        read("/v1/upstreams", get(upstreams::list)),
        write(
            "/v1/upstreams/{name}/endpoints/{endpoint}/drain",
            Action::Drain,
            post(upstreams::drain),
        ),
        write(
            "/v1/upstreams/{name}/endpoints/{endpoint}/readmit",
            Action::Readmit,
            post(upstreams::readmit),
        ),
        read("/v1/config", get(configuration::running)),
        read("/v1/reloads", get(configuration::reloads)),
        open("/v1/openapi.json", get(openapi::document)),
        read("/v1/explain", post(explain::explain)),
        read("/v1/top", get(top::top)),
        read("/v1/live", get(streams::live)),
        read("/v1/events", get(streams::events)),
        read("/v1/keys/lookup", post(keys::lookup)),
        read("/v1/keys", get(keys::list)),
        write("/v1/keys/revoke", Action::Revoke, post(keys::revoke)),
        write("/v1/keys/reset", Action::Reset, post(keys::reset)),
        write("/v1/keys/grant", Action::Grant, post(keys::grant)),
        write("/v1/keys/ban", Action::Ban, post(keys::ban)),
        write("/v1/keys/unban", Action::Unban, post(keys::unban)),
    ]
}

/// An endpoint for callers that may read.
fn read(path: &'static str, methods: MethodRouter<AdminState>) -> Endpoint {
    Endpoint {
        path,
        callers: Callers::Readers,
        methods,
    }
}

/// An endpoint for callers that may change something.
fn write(path: &'static str, action: Action, methods: MethodRouter<AdminState>) -> Endpoint {
    Endpoint {
        path,
        callers: Callers::Writers(action),
        methods,
    }
}

/// An endpoint for everybody.
fn open(path: &'static str, methods: MethodRouter<AdminState>) -> Endpoint {
    Endpoint {
        path,
        callers: Callers::All,
        methods,
    }
}

/// The router of all endpoints, each for its callers alone.
pub(super) fn router(state: &AdminState) -> Router<AdminState> {
    let endpoints = endpoints().into_iter();
    endpoints.fold(Router::new(), |router, endpoint| {
        let (state, methods) = (state.clone(), endpoint.methods);
        let methods = match endpoint.callers {
            Callers::All => methods,
            Callers::Readers => methods.route_layer(from_fn_with_state(state, require_read)),
            Callers::Writers(action) => {
                methods.route_layer(from_fn_with_state((state, action), require_write))
            }
        };
        router.route(endpoint.path, methods)
    })
}

/// Returns true for paths of the API, whose errors are JSON.
pub(super) fn contains(uri: &Uri) -> bool {
    let path = uri.path();
    path == "/v1" || path.starts_with("/v1/")
}
