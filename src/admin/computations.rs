//! The computations of the playground, one at a time.

use std::sync::Arc;
use std::time::Duration;

use axum::response::{IntoResponse, Response};
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use schemars::{JsonSchema, SchemaGenerator};
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout_at};

use super::json::JsonText;
use super::openapi::Describe;
use super::problem_details::{NO_STORE, ProblemDetails};

/// The longest time of a computation, with its wait for earlier ones. With the time of a body it ends
/// before the connection does.
const COMPUTATION_TIMEOUT: Duration = Duration::from_secs(5);

/// From the JSON of a request to the JSON of its answer.
type Compute = fn(&[u8]) -> Result<Vec<u8>, ProblemDetails>;

/// A computation, which a layer above this one has.
#[derive(Clone, Copy, Debug)]
pub struct Computation {
    compute: Compute,
    /// The schema of the request.
    pub(super) request: Describe,
    /// The schema of the answer.
    pub(super) answer: Describe,
}

impl Computation {
    /// A computation from a `Q` to an `A`.
    pub fn new<Q: JsonSchema, A: JsonSchema>(compute: Compute) -> Self {
        Self {
            compute,
            request: SchemaGenerator::subschema_for::<Q>,
            answer: SchemaGenerator::subschema_for::<A>,
        }
    }
}

/// The computations of the playground.
#[derive(Clone, Copy, Debug)]
pub struct PlaygroundApi {
    /// Decides about arrivals.
    pub play: Computation,
    /// Checks the text of a configuration.
    pub check: Computation,
}

/// The computations, one at a time. Clones share it.
#[derive(Clone)]
pub(super) struct Playground {
    pub(super) api: PlaygroundApi,
    turn: Arc<Semaphore>,
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
    pub(super) async fn compute(
        &self,
        Computation { compute, .. }: Computation,
        JsonText(text): JsonText,
    ) -> Response {
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
            Ok(computed) => {
                let answer = computed.map_err(ProblemDetails::internal).flatten();
                let headers = [NO_STORE, (CONTENT_TYPE, "application/json")];
                answer.map(|body| (headers, body)).into_response()
            }
            Err(_) => unavailable("it takes longer than 5 s: use the command line, which waits"),
        }
    }
}

fn unavailable(detail: &str) -> Response {
    ([(RETRY_AFTER, "1")], ProblemDetails::unavailable(detail)).into_response()
}

#[cfg(test)]
mod tests {
    use http::StatusCode;

    use super::*;

    fn compute_slowly(_: &[u8]) -> Result<Vec<u8>, ProblemDetails> {
        std::thread::sleep(Duration::from_millis(200));
        Ok(Vec::new())
    }

    #[tokio::test(start_paused = true)]
    async fn a_computation_is_not_waited_for_beyond_its_time() {
        let slow = Computation::new::<(), ()>(compute_slowly);
        let playground = Playground::new(PlaygroundApi {
            play: slow,
            check: slow,
        });
        let text = || JsonText(Vec::new().into());
        let (late, ()) = tokio::join!(
            playground.compute(slow, text()),
            tokio::time::advance(COMPUTATION_TIMEOUT * 2),
        );
        assert_eq!(late.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert!(late.headers().contains_key(RETRY_AFTER));
        // The next one waits for its turn, and has it.
        let next = playground.compute(slow, text()).await;
        assert_eq!(next.status(), StatusCode::OK);
    }
}
