//! Streams of server-sent events (WHATWG HTML, section 9.2.6).
//!
//! A task makes the messages once a second, one for all readers, and figures only while somebody
//! reads them. Events are kept for an hour, so that a reader can begin with those of the past. A
//! reader that does not keep up loses its stream: its queue is bounded, and so is the time in which
//! its connection takes each message.

pub(super) mod readers;

use std::time::Duration;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval};

use super::actor::Actor;
use super::events::EventSource;
use super::history;
use super::live::LiveSource;
use super::problem_details::{NO_STORE, ProblemDetails};
use super::query::Query;
use super::state::AdminState;
use crate::telemetry::metrics::AdminStream;

/// The time between two messages.
const PERIOD: Duration = Duration::from_secs(1);

/// The part of a stream to read.
#[derive(Deserialize, JsonSchema)]
pub(super) struct LiveQuery {
    /// The length of the stream in seconds. Without it, the stream has no end.
    #[schemars(range(min = 1, max = 3_600))]
    seconds: Option<u64>,
}

/// The part of a stream to read.
#[derive(Deserialize, JsonSchema)]
pub(super) struct EventsQuery {
    /// The length of the stream in seconds; 0 for the `past` alone, of which everybody may ask. Without
    /// it, the stream has no end.
    #[schemars(range(max = 3_600))]
    seconds: Option<u64>,
    /// Begins with the events of the last `past` seconds, except refusals. The proxy keeps up to
    /// 256 KiB of them.
    #[schemars(range(min = 1, max = 3_600))]
    past: Option<u64>,
}

pub(super) async fn live(
    State(state): State<AdminState>,
    Extension(caller): Extension<Actor>,
    Query(LiveQuery { seconds }): Query<LiveQuery>,
) -> Response {
    open(&state, AdminStream::Live, caller, [seconds, None])
}

pub(super) async fn events(
    State(state): State<AdminState>,
    Extension(caller): Extension<Actor>,
    Query(EventsQuery { seconds, past }): Query<EventsQuery>,
) -> Response {
    open(&state, AdminStream::Events, caller, [seconds, past])
}

/// The response to a new reader: the stream, or 503 if there are too many.
fn open(
    state: &AdminState,
    stream: AdminStream,
    caller: Actor,
    [seconds, past]: [Option<u64>; 2],
) -> Response {
    let now = state.clock.now();
    let since = past.map(|past| now.saturating_sub_micros(past * 1_000_000));
    let headers = [NO_STORE, (CONTENT_TYPE, "text/event-stream")];
    if seconds == Some(0) {
        return (headers, state.streams.past(since.unwrap_or(now))).into_response();
    }
    let length = seconds.map(Duration::from_secs);
    let body = match state.streams.subscribe(stream, caller, length, since) {
        Ok(body) => body,
        Err(full) => {
            let problem = ProblemDetails::unavailable(full.to_string());
            return ([(RETRY_AFTER, "5")], problem).into_response();
        }
    };
    (headers, Body::new(body)).into_response()
}

/// Makes messages for all readers, and keeps events, until the process ends.
pub(super) async fn make_messages(state: AdminState) {
    let mut sources = <(LiveSource, EventSource)>::default();
    let mut second = interval(PERIOD);
    second.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut tokens = state.access.tokens();
    loop {
        second.tick().await;
        let both = [AdminStream::Live, AdminStream::Events];
        let [has_live, has_events] = both.map(|stream| state.streams.has_readers(stream));
        let valid = state.access.tokens();
        if valid != tokens {
            state.streams.end_all();
            tokens = valid;
            continue;
        }
        let process = state.clone();
        // Reading all counters takes milliseconds with thousands of routes.
        let made = spawn_blocking(move || {
            let (mut live, mut events) = sources;
            let of_live = if has_live {
                live.message(&process)
            } else {
                live.forget()
            };
            events.tell_new(&process);
            history::sample(&process);
            let refusals = events.refusals(&process, has_events);
            ((live, events), (of_live, refusals))
        });
        let Ok((next, (live, refusals))) = made.await else {
            // A panic, which is logged, or the end of the process.
            state.streams.end_all();
            sources = Default::default();
            continue;
        };
        sources = next;
        for (stream, message) in both.into_iter().zip([live, refusals]) {
            if let Some(message) = message {
                state.streams.send(stream, &message);
            }
        }
    }
}
