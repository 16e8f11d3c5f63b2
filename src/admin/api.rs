//! The endpoints of `/v1`: JSON, behind tokens. Each is a row here, with the role that it takes.

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::{MethodRouter, get, post};
use http::Uri;

use super::auth::{Role, require_read, require_write};
use super::{
    AdminState, configuration, explain, keys, openapi, playground, policies, routes, service,
    status, streams, top, upstreams,
};

/// An endpoint.
pub(super) struct Endpoint {
    pub(super) path: &'static str,
    /// The role that its callers need; `None` if they need no token.
    pub(super) role: Option<Role>,
    methods: MethodRouter<AdminState>,
}

/// All endpoints.
pub(super) fn endpoints() -> Vec<Endpoint> {
    vec![
        read("/v1/status", get(status::status)),
        read("/v1/policies", get(policies::list)),
        read("/v1/policies/{name}", get(policies::one)),
        read("/v1/playground", post(playground::play)),
        read(service::CHECK, post(playground::check)),
        write("/v1/policies/{name}/mode", post(policies::set_mode)),
        read("/v1/routes", get(routes::list)),
        read("/v1/upstreams", get(upstreams::list)),
        write(
            "/v1/upstreams/{name}/endpoints/{endpoint}/drain",
            post(upstreams::drain),
        ),
        read("/v1/config", get(configuration::running)),
        read("/v1/reloads", get(configuration::reloads)),
        open("/v1/openapi.json", get(openapi::document)),
        read("/v1/explain", post(explain::explain)),
        read("/v1/top", get(top::top)),
        read("/v1/live", get(streams::live)),
        read("/v1/events", get(streams::events)),
        read("/v1/keys/lookup", post(keys::lookup)),
        write("/v1/keys/reset", post(keys::reset)),
        write("/v1/keys/grant", post(keys::grant)),
        write("/v1/keys/ban", post(keys::ban)),
        write("/v1/keys/unban", post(keys::unban)),
    ]
}

/// An endpoint for callers that may read.
fn read(path: &'static str, methods: MethodRouter<AdminState>) -> Endpoint {
    Endpoint {
        path,
        role: Some(Role::Read),
        methods,
    }
}

/// An endpoint for callers that may change something.
fn write(path: &'static str, methods: MethodRouter<AdminState>) -> Endpoint {
    Endpoint {
        path,
        role: Some(Role::Write),
        methods,
    }
}

/// An endpoint for everybody.
fn open(path: &'static str, methods: MethodRouter<AdminState>) -> Endpoint {
    Endpoint {
        path,
        role: None,
        methods,
    }
}

/// The router of all endpoints, each behind its role.
pub(super) fn router(state: &AdminState) -> Router<AdminState> {
    let endpoints = endpoints().into_iter();
    endpoints.fold(Router::new(), |router, endpoint| {
        let (state, methods) = (state.clone(), endpoint.methods);
        let methods = match endpoint.role {
            None => methods,
            Some(Role::Read) => methods.route_layer(from_fn_with_state(state, require_read)),
            Some(Role::Write) => methods.route_layer(from_fn_with_state(state, require_write)),
        };
        router.route(endpoint.path, methods)
    })
}

/// Returns true for paths of the API, whose errors are JSON.
pub(super) fn contains(uri: &Uri) -> bool {
    let path = uri.path();
    path == "/v1" || path.starts_with("/v1/")
}
