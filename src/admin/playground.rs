//! The playground: `POST /v1/playground`, and a server of its own that needs no configuration.
//!
//! The server has no secrets and asks for no token. Pages of other sites cannot use it all the
//! same: their requests have another Host, or another Origin.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use http::StatusCode;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout_at};

use super::auth::{is_cross_origin, problem};
use super::hosts::{AllowedHosts, HostCheck};
use super::json::JsonText;
use super::problem_details::{self, ProblemDetails};
use super::{AdminState, NO_STORE, assets, bind, service};
use crate::server::{Server, StartError};
use crate::telemetry::metrics::{AdminMetrics, AdminRefusal};
use crate::telemetry::registry::Registry;

/// The longest time of a computation, with its wait for earlier ones. With the time of a body it ends
/// before the connection does.
const COMPUTATION_TIMEOUT: Duration = Duration::from_secs(5);

/// A computation from the JSON of a request to the JSON of its answer.
pub type Compute = fn(&[u8]) -> JsonAnswer;

/// An answer of JSON; from status 400 on, problem details (RFC 9457).
#[derive(Debug)]
pub struct JsonAnswer {
    /// The status.
    pub status: StatusCode,
    /// The JSON.
    pub body: Vec<u8>,
}

/// The computations of the playground, which layers above this one have.
#[derive(Clone, Copy, Debug)]
pub struct PlaygroundApi {
    /// Decides about arrivals.
    pub play: Compute,
    /// Checks the text of a configuration.
    pub check: Compute,
}

/// The computations, one at a time. Clones share it.
#[derive(Clone)]
pub(super) struct Playground {
    api: PlaygroundApi,
    turn: Arc<Semaphore>,
}

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
    let bound = bind(address, None, super::MAX_CONNECTIONS, registry)?;
    bound.serve(router(Playground::new(api)), hosts, |_| {
        std::future::ready(())
    })
}

fn router(playground: Playground) -> Router {
    // The page itself is for everybody: links to it are shared.
    let computing = Router::new()
        .route("/v1/playground", post(play_openly))
        .route(service::CHECK, post(check_openly))
        .layer(from_fn(own_pages_only));
    Router::new()
        .route("/", get(assets::playground))
        .route("/assets/{*name}", get(assets::asset))
        .merge(computing)
        .with_state(playground)
}

impl Playground {
    pub(super) fn new(api: PlaygroundApi) -> Self {
        Self {
            api,
            turn: Arc::new(Semaphore::new(1)),
        }
    }

    /// Computes on a thread of its own, once earlier computations have ended. A computation that
    /// takes too long is not waited for, and keeps its turn until it ends.
    async fn compute(&self, compute: Compute, JsonText(text): JsonText) -> Response {
        let deadline = Instant::now() + COMPUTATION_TIMEOUT;
        let turn = timeout_at(deadline, Arc::clone(&self.turn).acquire_owned()).await;
        let Ok(Ok(turn)) = turn else {
            return unavailable("others are being answered: try again");
        };
        let computing = spawn_blocking(move || {
            let answer = compute(&text);
            drop(turn);
            answer
        });
        match timeout_at(deadline, computing).await {
            Ok(computed) => computed.map_err(ProblemDetails::internal).into_response(),
            Err(_) => unavailable("it takes longer than 5 s: use the command line, which waits"),
        }
    }
}

fn unavailable(detail: &str) -> Response {
    let problem = ProblemDetails::new(StatusCode::SERVICE_UNAVAILABLE, detail);
    ([(RETRY_AFTER, "1")], problem).into_response()
}

/// `POST /v1/playground` of the API.
pub(super) async fn play(State(state): State<AdminState>, text: JsonText) -> Response {
    play_openly(State(state.playground), text).await
}

/// `POST /v1/check` of the API.
pub(super) async fn check(State(state): State<AdminState>, text: JsonText) -> Response {
    check_openly(State(state.playground), text).await
}

async fn play_openly(State(playground): State<Playground>, text: JsonText) -> Response {
    playground.compute(playground.api.play, text).await
}

async fn check_openly(State(playground): State<Playground>, text: JsonText) -> Response {
    playground.compute(playground.api.check, text).await
}

impl IntoResponse for JsonAnswer {
    fn into_response(self) -> Response {
        let media_type = match self.status.is_success() {
            true => "application/json",
            false => problem_details::MEDIA_TYPE,
        };
        let headers = [NO_STORE, (CONTENT_TYPE, media_type)];
        (self.status, headers, self.body).into_response()
    }
}

/// Refuses requests of pages that this server did not send.
async fn own_pages_only(request: Request, next: Next) -> Response {
    match is_cross_origin(request.headers()) {
        false => next.run(request).await,
        true => problem(AdminRefusal::CrossOrigin).into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compute_slowly(_: &[u8]) -> JsonAnswer {
        std::thread::sleep(Duration::from_millis(200));
        JsonAnswer {
            status: StatusCode::OK,
            body: Vec::new(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_computation_is_not_waited_for_beyond_its_time() {
        let playground = Playground::new(PlaygroundApi {
            play: compute_slowly,
            check: compute_slowly,
        });
        let text = || JsonText(Vec::new().into());
        let (slow, ()) = tokio::join!(
            playground.compute(compute_slowly, text()),
            tokio::time::advance(COMPUTATION_TIMEOUT * 2),
        );
        assert_eq!(slow.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert!(slow.headers().contains_key(RETRY_AFTER));
        // The next one waits for its turn, and has it.
        let next = playground.compute(compute_slowly, text()).await;
        assert_eq!(next.status(), StatusCode::OK);
    }
}
