//! The endpoints of `/v1`: JSON, behind tokens. Each is a row here, with its callers. What it takes and
//! answers is in the types of its handler, which also document it.

use std::sync::OnceLock;

use axum::Router;
use axum::extract::State;
use axum::handler::Handler;
use axum::middleware::from_fn_with_state;
use axum::routing::{self, MethodRouter};
use http::Uri;
use schemars::SchemaGenerator;
use serde_json::{Map, Value, json};

use super::audit::{Action, ChangeEvent};
use super::auth::require_token;
use super::computations::Computation;
use super::events::{BanEvent, EjectionEvent, RefusalEvent};
use super::json::Json;
use super::live::Live;
use super::openapi::{self, Describe, Documented, Failure, Operation, Schemas};
use super::problem::ProblemEvent;
use super::reload_history::ReloadEvent;
use super::state::AdminState;
use super::traffic_history::UpgradeEvent;
use super::{
    configuration, explain, history, keys, playground, policies, routes, service, status, streams,
    top, upstreams,
};
use crate::text_table;

/// An endpoint.
struct ApiEndpoint {
    path: &'static str,
    method: &'static str,
    id: &'static str,
    callers: Callers,
    failures: &'static [Failure],
    describe: Vec<DescribeOperation>,
    handler: MethodRouter<AdminState>,
}

/// Documents a part of an endpoint.
type DescribeOperation = Box<dyn Fn(&mut Operation<'_>)>;

/// The callers of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Callers {
    /// Everybody.
    All,
    /// Callers that may read.
    Readers,
    /// Callers that may change something, and the change.
    Writers(Action),
}

const UNKNOWN: Failure = (404, "No such name.");
const IMPOSSIBLE: Failure = (422, "Well-formed, and impossible.");
const NO_REDIS: Failure = (503, "Redis is out of reach.");
const NO_PLACE: Failure = (503, "64 callers read streams already.");
const NO_TIME: Failure = (
    503,
    "The answer takes longer than 5 s, or others come first.",
);
/// The failures of all requests.
const OF_REQUESTS: [Failure; 2] = [
    (400, "Malformed, or with several hosts."),
    (421, "The host of the request is not one of the listener."),
];
/// The failures of callers: the last is that of writers alone.
const OF_CALLERS: [Failure; 3] = [
    (401, "No known token."),
    (429, "Too many wrong tokens came from this address."),
    (403, "The token may not do this."),
];
/// The failures of a change of a key.
const OF_KEYS: &[Failure] = &[UNKNOWN, IMPOSSIBLE, NO_REDIS];

/// The ids of operations, and their summaries.
const OPERATIONS: &str = include_str!("operations.txt");

/// The events of a stream, by name.
const LIVE: &[(&str, Describe)] = &[("message", SchemaGenerator::subschema_for::<Live>)];
const EVENTS: &[(&str, Describe)] = &[
    ("refusal", SchemaGenerator::subschema_for::<RefusalEvent>),
    ("ban", SchemaGenerator::subschema_for::<BanEvent>),
    ("reload", SchemaGenerator::subschema_for::<ReloadEvent>),
    ("ejection", SchemaGenerator::subschema_for::<EjectionEvent>),
    (
        "problem",
        SchemaGenerator::subschema_for::<ProblemEvent<'static>>,
    ),
    ("upgrade", SchemaGenerator::subschema_for::<UpgradeEvent>),
    (
        "change",
        SchemaGenerator::subschema_for::<ChangeEvent<'static>>,
    ),
];

/// All endpoints, with the ids of their operations.
fn endpoints(state: &AdminState) -> Vec<ApiEndpoint> {
    let playground = state.playground.api;
    vec![
        get("/v1/openapi.json", "openapi", document).open(),
        get("/v1/status", "status", status::status),
        get("/v1/policies", "policies", policies::list),
        get("/v1/policies/{name}", "policy", policies::one).fails(&[UNKNOWN]),
        post("/v1/policies/{name}/mode", "setMode", policies::set_mode)
            .changes(Action::Mode)
            .fails(&[UNKNOWN, IMPOSSIBLE]),
        get("/v1/routes", "routes", routes::list),
        get("/v1/upstreams", "upstreams", upstreams::list),
        post(
            "/v1/upstreams/{name}/endpoints/{endpoint}/drain",
            "drain",
            upstreams::drain,
        )
        .changes(Action::Drain)
        .fails(&[UNKNOWN]),
        post(
            "/v1/upstreams/{name}/endpoints/{endpoint}/readmit",
            "readmit",
            upstreams::readmit,
        )
        .changes(Action::Readmit)
        .fails(&[UNKNOWN]),
        post("/v1/playground", "playground", playground::play)
            .computes(playground.play)
            .fails(&[IMPOSSIBLE, NO_TIME]),
        post(service::CHECK, "check", playground::check)
            .computes(playground.check)
            .fails(&[NO_TIME]),
        get("/v1/config", "config", configuration::running),
        get("/v1/reloads", "reloads", configuration::reloads),
        post("/v1/explain", "explain", explain::explain).fails(&[IMPOSSIBLE]),
        get("/v1/top", "top", top::top).fails(&[UNKNOWN]),
        get("/v1/history", "history", history::history).fails(&[UNKNOWN]),
        get("/v1/live", "live", streams::live)
            .streams(LIVE)
            .fails(&[NO_PLACE]),
        get("/v1/events", "events", streams::events)
            .streams(EVENTS)
            .fails(&[NO_PLACE]),
        get("/v1/keys", "listOperatorActions", keys::list).fails(&[UNKNOWN]),
        post("/v1/keys/revoke", "revokeOperatorAction", keys::revoke)
            .changes(Action::Revoke)
            .fails(OF_KEYS),
        post("/v1/keys/lookup", "lookupKey", keys::lookup).fails(OF_KEYS),
        post("/v1/keys/find", "findKeys", keys::find_all).fails(&[IMPOSSIBLE]),
        post("/v1/keys/reset", "resetKey", keys::reset)
            .changes(Action::Reset)
            .fails(OF_KEYS),
        post("/v1/keys/grant", "grantKey", keys::grant)
            .changes(Action::Grant)
            .fails(OF_KEYS),
        post("/v1/keys/ban", "banKey", keys::ban)
            .changes(Action::Ban)
            .fails(OF_KEYS),
        post("/v1/keys/unban", "unbanKey", keys::unban)
            .changes(Action::Unban)
            .fails(OF_KEYS),
    ]
}

/// An endpoint that is read, for callers that may read.
fn get<H, A>(path: &'static str, id: &'static str, handler: H) -> ApiEndpoint
where
    H: Handler<A, AdminState> + Documented<A>,
    A: 'static,
{
    ApiEndpoint {
        path,
        method: "get",
        id,
        callers: Callers::Readers,
        failures: &[],
        describe: vec![Box::new(H::describe)],
        handler: routing::get(handler),
    }
}

/// An endpoint that takes a body, for callers that may read.
fn post<H, A>(path: &'static str, id: &'static str, handler: H) -> ApiEndpoint
where
    H: Handler<A, AdminState> + Documented<A>,
    A: 'static,
{
    ApiEndpoint {
        method: "post",
        handler: routing::post(handler.clone()),
        ..get(path, id, handler)
    }
}

impl ApiEndpoint {
    /// Opens the endpoint to everybody.
    fn open(self) -> Self {
        Self {
            callers: Callers::All,
            ..self
        }
    }

    /// Closes the endpoint to callers that may not change something.
    fn changes(self, action: Action) -> Self {
        Self {
            callers: Callers::Writers(action),
            ..self
        }
    }

    /// Documents errors that the handler answers.
    fn fails(self, failures: &'static [Failure]) -> Self {
        Self { failures, ..self }
    }

    /// Documents the types of this computation.
    fn computes(mut self, computation: Computation) -> Self {
        self.describe.push(Box::new(move |operation| {
            operation.set_body(computation.request);
            operation.set_answer(computation.answer);
        }));
        self
    }

    /// Documents a stream of these events.
    fn streams(mut self, events: &'static [(&'static str, Describe)]) -> Self {
        let describe = move |operation: &mut Operation<'_>| operation.set_stream(events);
        self.describe.push(Box::new(describe));
        self
    }

    /// The endpoint in the OpenAPI document.
    fn operation(&self, schemas: &mut Schemas) -> Value {
        let mut operation = Operation::new(schemas);
        for describe in &self.describe {
            describe(&mut operation);
        }
        let (role, of_caller) = match self.callers {
            Callers::All => (None, 0),
            Callers::Readers => (Some("read"), 2),
            Callers::Writers(_) => (Some("write"), OF_CALLERS.len()),
        };
        operation.failures.extend(OF_REQUESTS);
        let of_caller = OF_CALLERS[..of_caller].iter().chain(self.failures);
        operation.failures.extend(of_caller.copied());
        let mut summaries = text_table::rows(OPERATIONS);
        let summary = summaries.find(|[id, _]| *id == self.id);
        let security: Vec<_> = role.into_iter().map(|role| json!({ role: [] })).collect();
        operation.finish(json!({
            "operationId": self.id,
            "summary": summary.map(|[_, summary]| summary),
            "security": security,
        }))
    }
}

/// The OpenAPI document. It takes milliseconds to make, once.
async fn document(State(state): State<AdminState>) -> Json<&'static Value> {
    static DOCUMENT: OnceLock<Value> = OnceLock::new();
    Json(DOCUMENT.get_or_init(|| {
        let (mut schemas, mut paths) = (Schemas::new(), Map::new());
        for endpoint in endpoints(&state) {
            let operation = endpoint.operation(&mut schemas);
            paths.insert(
                endpoint.path.to_owned(),
                json!({ endpoint.method: operation }),
            );
        }
        openapi::document(&paths, schemas)
    }))
}

/// The router of all endpoints, each for its callers alone.
pub(super) fn router(state: &AdminState) -> Router<AdminState> {
    let endpoints = endpoints(state).into_iter();
    endpoints.fold(Router::new(), |router, endpoint| {
        let action = match endpoint.callers {
            Callers::All => return router.route(endpoint.path, endpoint.handler),
            Callers::Readers => None,
            Callers::Writers(action) => Some(action),
        };
        let require_token = from_fn_with_state((state.clone(), action), require_token);
        let handler = endpoint.handler.route_layer(require_token);
        router.route(endpoint.path, handler)
    })
}

/// Returns true for paths of the API, whose errors are JSON.
pub(super) fn contains(uri: &Uri) -> bool {
    let path = uri.path();
    path == "/v1" || path.starts_with("/v1/")
}
