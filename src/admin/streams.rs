//! Streams of server-sent events (WHATWG HTML, section 9.2.6), and the bounds of their readers.
//!
//! A task makes the messages once a second, one for all readers, and figures only while somebody reads
//! them. Events are kept for an hour, so that a reader can begin with those of the past. A reader that does not keep up loses its stream: its queue is bounded, and so is the time in which
//! its connection takes each message.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{StatusCode, Uri};
use http_body::Frame;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, MissedTickBehavior, Sleep, interval, sleep};

use super::auth::Actor;
use super::events::EventSource;
use super::live::LiveSource;
use super::problem_details::ProblemDetails;
use super::query::{number, parameters};
use super::{AdminState, NO_STORE};
use crate::clock::Timestamp;
use crate::http::body::PolledFrame;
use crate::telemetry::metrics::{AdminMetrics, AdminStream};
use crate::telemetry::registry::GaugeGuard;

/// The most readers of both streams.
const MAX_READERS: usize = 64;
/// The most readers with one token: others find a place.
const MAX_OF_TOKEN: usize = MAX_READERS / 2;
/// The most readers from one address.
const MAX_OF_ADDRESS: usize = MAX_READERS / 4;
/// The messages that wait for one reader.
const QUEUE: usize = 16;
/// The time between two messages.
const PERIOD: Duration = Duration::from_secs(1);
/// The longest silence of a stream.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// The longest length of a stream that ends by itself, in seconds.
const MAX_SECONDS: usize = 3_600;
/// The most seconds before its start from which a stream has events.
const MAX_PAST: usize = 3_600;
/// The most bytes of past events.
const MAX_PAST_BYTES: usize = 256 << 10;
/// The start of each stream: the time until clients connect again, in milliseconds.
const START: &[u8] = b"retry: 2000\n\n";

/// The readers of all streams. Clones share them.
#[derive(Clone, Debug)]
pub(super) struct Streams {
    places: Places,
    readers: Arc<Mutex<Readers>>,
    metrics: AdminMetrics,
}

#[derive(Debug, Default)]
struct Readers {
    all: Vec<Reader>,
    past: PastEvents,
}

/// The events of the last hour, the oldest first.
#[derive(Debug, Default)]
struct PastEvents {
    messages: VecDeque<(Timestamp, Bytes)>,
    bytes: usize,
}

impl PastEvents {
    fn add(&mut self, now: Timestamp, message: &Bytes) {
        self.messages.push_back((now, message.clone()));
        self.bytes += message.len();
        let is_over = |at: Timestamp| now.since(at) > Duration::from_secs(MAX_PAST as u64);
        while let Some((at, first)) = self.messages.front()
            && (is_over(*at) || self.bytes > MAX_PAST_BYTES)
        {
            self.bytes -= first.len();
            self.messages.pop_front();
        }
    }

    fn since(&self, start: Timestamp) -> Bytes {
        let messages = self.messages.iter().filter(|(at, _)| *at >= start);
        let messages: Vec<&[u8]> = messages.map(|(_, message)| &**message).collect();
        messages.concat().into()
    }
}

#[derive(Debug)]
struct Reader {
    stream: AdminStream,
    queue: mpsc::Sender<Bytes>,
}

/// The streams that have readers.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    live: bool,
    events: bool,
}

pub(super) async fn live(
    State(state): State<AdminState>,
    Extension(caller): Extension<Actor>,
    uri: Uri,
) -> Response {
    match parameters(uri.query(), ["seconds"]) {
        Ok([seconds]) => open(&state, AdminStream::Live, caller, [seconds, None]),
        Err(problem) => problem.into_response(),
    }
}

pub(super) async fn events(
    State(state): State<AdminState>,
    Extension(caller): Extension<Actor>,
    uri: Uri,
) -> Response {
    match parameters(uri.query(), ["seconds", "past"]) {
        Ok(given) => open(&state, AdminStream::Events, caller, given),
        Err(problem) => problem.into_response(),
    }
}

/// The response to a new reader: the stream, or 503 if there are too many.
fn open(
    state: &AdminState,
    stream: AdminStream,
    caller: Actor,
    [seconds, past]: [Option<String>; 2],
) -> Response {
    let length = match duration("seconds", seconds.as_deref(), MAX_SECONDS) {
        Ok(length) => length,
        Err(problem) => return problem.into_response(),
    };
    let since = match duration("past", past.as_deref(), MAX_PAST) {
        Ok(past) => past.map(|past| {
            state
                .clock
                .now()
                .saturating_sub_micros(past.as_micros() as u64)
        }),
        Err(problem) => return problem.into_response(),
    };
    let body = match state.streams.subscribe(stream, caller, length, since) {
        Ok(body) => body,
        Err(full) => {
            let problem = ProblemDetails::new(StatusCode::SERVICE_UNAVAILABLE, full.to_string());
            return ([(RETRY_AFTER, "5")], problem).into_response();
        }
    };
    let headers = [NO_STORE, (CONTENT_TYPE, "text/event-stream")];
    (headers, Body::new(body)).into_response()
}

/// The callers of all streams. Clones share them.
#[derive(Clone, Debug, Default)]
struct Places(Arc<Mutex<Vec<Actor>>>);

/// The place of a reader, which is free when it is dropped.
#[derive(Debug)]
struct Place {
    places: Places,
    caller: Actor,
}

impl Places {
    fn take(&self, caller: Actor) -> Result<Place, NoPlace> {
        let mut callers = self.0.lock();
        let has_token = |other: &&Actor| other.token() == caller.token();
        let has_address = |other: &&Actor| other.peer.ip() == caller.peer.ip();
        if callers.len() >= MAX_READERS {
            return Err(NoPlace::All);
        }
        if callers.iter().filter(has_address).count() >= MAX_OF_ADDRESS {
            return Err(NoPlace::Address);
        }
        if callers.iter().filter(has_token).count() >= MAX_OF_TOKEN {
            return Err(NoPlace::Token);
        }
        callers.push(caller.clone());
        Ok(Place {
            places: self.clone(),
            caller,
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut callers = self.places.0.lock();
        let own = callers.iter().position(|caller| *caller == self.caller);
        own.map(|own| callers.swap_remove(own));
    }
}

/// The reason why there is no place for a reader.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
enum NoPlace {
    #[error(
        "{MAX_READERS} callers read streams already, which is the most: close one of them, or ask /v1/status and /v1/policies instead"
    )]
    All,
    #[error(
        "{MAX_OF_TOKEN} callers read streams with this token already, which is the most: close one of them"
    )]
    Token,
    #[error(
        "{MAX_OF_ADDRESS} callers read streams from this address already, which is the most: close one of them"
    )]
    Address,
}

/// A number of seconds from 1 to `most`.
///
/// # Errors
/// 400 for another.
fn duration(
    name: &str,
    given: Option<&str>,
    most: usize,
) -> Result<Option<Duration>, ProblemDetails> {
    let seconds = number(name, given, 1..=most)?;
    Ok(seconds.map(|seconds| Duration::from_secs(seconds as u64)))
}

impl Streams {
    /// No readers yet.
    pub(super) fn new(metrics: AdminMetrics) -> Self {
        Self {
            places: Places::default(),
            readers: Arc::default(),
            metrics,
        }
    }

    /// A new reader, which begins with the events from `since` on.
    ///
    /// # Errors
    /// There are too many readers.
    fn subscribe(
        &self,
        stream: AdminStream,
        caller: Actor,
        length: Option<Duration>,
        since: Option<Timestamp>,
    ) -> Result<EventBody, NoPlace> {
        let place = self.places.take(caller)?;
        let (queue, messages) = mpsc::channel(QUEUE);
        let mut readers = self.readers.lock();
        let past = since.map(|since| readers.past.since(since));
        let past = past.filter(|past| !past.is_empty());
        for message in [Bytes::from_static(START)].into_iter().chain(past) {
            queue.try_send(message).map_err(|_| NoPlace::All)?;
        }
        readers.all.push(Reader { stream, queue });
        drop(readers);
        let body = EventBody {
            messages,
            silence: Box::pin(sleep(HEARTBEAT)),
            end: length.map(|length| Box::pin(sleep(length))),
            _place: place,
            _counted: self.metrics.reader(stream),
        };
        Ok(body)
    }

    /// Sends events to their readers, and keeps them for later ones.
    pub(super) fn tell(&self, events: &Bytes, now: Timestamp) {
        let mut readers = self.readers.lock();
        readers.past.add(now, events);
        readers.send(AdminStream::Events, events);
    }

    /// Sends a message to the readers of a stream. Drops those that do not keep up.
    pub(super) fn send(&self, stream: AdminStream, message: &Bytes) {
        self.readers.lock().send(stream, message);
    }

    /// Ends all streams: their readers connect again, with tokens that are still valid.
    fn end_all(&self) {
        self.readers.lock().all.clear();
    }

    /// The streams that have readers.
    fn wanted(&self) -> Wanted {
        let mut readers = self.readers.lock();
        readers.all.retain(|reader| !reader.queue.is_closed());
        let has = |stream| readers.all.iter().any(|reader| reader.stream == stream);
        Wanted {
            live: has(AdminStream::Live),
            events: has(AdminStream::Events),
        }
    }
}

impl Readers {
    fn send(&mut self, stream: AdminStream, message: &Bytes) {
        self.all.retain(|reader| {
            reader.stream != stream || reader.queue.try_send(message.clone()).is_ok()
        });
    }
}

/// Makes messages for all readers, and keeps events, until the process ends.
pub(super) async fn make_messages(state: AdminState) {
    let mut sources = (LiveSource::default(), EventSource::default());
    let mut second = interval(PERIOD);
    second.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut tokens = state.access.tokens();
    loop {
        second.tick().await;
        let wanted = state.streams.wanted();
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
            let of_live = match wanted.live {
                true => live.message(&process),
                false => live.forget(),
            };
            events.tell_new(&process);
            let refusals = events.refusals(&process, wanted.events);
            ((live, events), (of_live, refusals))
        });
        let Ok((next, (live, refusals))) = made.await else {
            // A panic, which is logged, or the end of the process.
            state.streams.end_all();
            sources = Default::default();
            continue;
        };
        sources = next;
        let messages = [(AdminStream::Live, live), (AdminStream::Events, refusals)];
        for (stream, message) in messages {
            if let Some(message) = message {
                state.streams.send(stream, &message);
            }
        }
    }
}

/// The body of a stream. Its reader's place is free when it is dropped.
struct EventBody {
    messages: mpsc::Receiver<Bytes>,
    silence: Pin<Box<Sleep>>,
    /// The end of the stream, if its reader wants one.
    end: Option<Pin<Box<Sleep>>>,
    _place: Place,
    _counted: GaugeGuard,
}

impl http_body::Body for EventBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> PolledFrame<Infallible> {
        if let Some(end) = &mut self.end
            && end.as_mut().poll(cx).is_ready()
        {
            return Poll::Ready(None);
        }
        let message = match self.messages.poll_recv(cx) {
            Poll::Ready(message) => message,
            Poll::Pending => {
                ready!(self.silence.as_mut().poll(cx));
                // A comment.
                Some(Bytes::from_static(b":\n\n"))
            }
        };
        self.silence.as_mut().reset(Instant::now() + HEARTBEAT);
        Poll::Ready(message.map(|message| Ok(Frame::data(message))))
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use http_body_util::BodyExt;

    use super::*;
    use crate::telemetry::registry::Registry;

    fn streams(registry: &Registry) -> Streams {
        Streams::new(AdminMetrics::new(registry))
    }

    /// The caller with this token, from this address.
    fn caller(token: usize, address: u8) -> Actor {
        Actor::reader(token, IpAddr::from([192, 0, 2, address]).into())
    }

    async fn next(body: &mut EventBody) -> Option<Bytes> {
        let frame = body.frame().await?.expect("infallible");
        frame.into_data().ok()
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_that_does_not_keep_up_loses_its_stream() {
        let streams = streams(&Registry::default());
        let mut slow = streams
            .subscribe(AdminStream::Events, caller(1, 1), None, None)
            .expect("a place");
        let mut other = streams
            .subscribe(AdminStream::Live, caller(1, 1), None, None)
            .expect("a place");
        let message = Bytes::from_static(b"data: 1\n\n");
        for _ in 0..2 * QUEUE {
            streams.send(AdminStream::Events, &message);
        }
        assert_eq!(next(&mut slow).await.as_deref(), Some(START));
        for _ in 1..QUEUE {
            assert_eq!(next(&mut slow).await.as_ref(), Some(&message));
        }
        assert_eq!(next(&mut slow).await, None, "the stream has ended");
        assert_eq!(next(&mut other).await.as_deref(), Some(START));
        // Nothing happens, and the connection stays alive.
        assert_eq!(next(&mut other).await.as_deref(), Some(&b":\n\n"[..]));
        assert_eq!(next(&mut other).await.as_deref(), Some(&b":\n\n"[..]));
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_with_a_length_ends_by_itself() {
        let streams = streams(&Registry::default());
        let length = duration("seconds", Some("6"), MAX_SECONDS).expect("a length");
        let mut body = streams
            .subscribe(AdminStream::Live, caller(1, 1), length, None)
            .expect("a place");
        let started = Instant::now();
        assert_eq!(next(&mut body).await.as_deref(), Some(START));
        assert_eq!(next(&mut body).await.as_deref(), Some(&b":\n\n"[..]));
        assert_eq!(next(&mut body).await, None);
        assert_eq!(started.elapsed(), Duration::from_secs(6));
        for wrong in ["0", "3601", "1s"] {
            assert!(
                duration("seconds", Some(wrong), MAX_SECONDS).is_err(),
                "{wrong}"
            );
        }
    }

    #[tokio::test]
    async fn a_reader_begins_with_the_events_of_the_past_which_are_bounded() {
        let streams = streams(&Registry::default());
        let at = |seconds| Timestamp::EPOCH.saturating_add(Duration::from_secs(seconds));
        let read = async |since| {
            let body = streams.subscribe(AdminStream::Events, caller(1, 1), None, Some(since));
            let mut body = body.expect("a place");
            assert_eq!(next(&mut body).await.as_deref(), Some(START));
            next(&mut body).await.expect("a message")
        };
        for seconds in 0..10 {
            streams.tell(&Bytes::from(vec![b'0' + seconds]), at(seconds.into()));
        }
        assert_eq!(read(at(0)).await, "0123456789");
        assert_eq!(read(at(7)).await, "789");
        streams.tell(&Bytes::from_static(b"later"), at(3_605));
        assert_eq!(read(at(0)).await, "56789later", "an hour is kept");
        for _ in 0..10 {
            streams.tell(&Bytes::from(vec![b'x'; MAX_PAST_BYTES / 4]), at(3_606));
        }
        assert_eq!(read(at(0)).await.len(), MAX_PAST_BYTES);
    }

    #[tokio::test]
    async fn readers_are_bounded_and_free_their_places() {
        let registry = Registry::default();
        let streams = streams(&registry);
        let subscribe = |stream, token, address| {
            let subscribed = streams.subscribe(stream, caller(token, address), None, None);
            subscribed.map_err(|full| full.to_string())
        };
        let refused = |token, address| {
            let refused = subscribe(AdminStream::Events, token, address);
            refused.map(|_| ()).expect_err("no place")
        };
        let mut readers = Vec::new();
        for (token, address) in [(1, 1), (1, 2), (2, 3), (2, 4)] {
            for _ in 0..MAX_OF_ADDRESS {
                readers.push(subscribe(AdminStream::Live, token, address).expect("a place"));
            }
            if readers.len() < MAX_READERS {
                assert!(refused(3, address).contains("from this address"));
            }
            if readers.len() == MAX_OF_TOKEN {
                assert!(refused(1, 9).contains("with this token"));
            }
        }
        assert!(refused(3, 9).contains("64 callers"));
        let counted = |series: &str| registry.render().contains(series);
        assert!(counted(
            "sluicegate_admin_stream_readers{stream=\"live\"} 64"
        ));
        assert!(counted(
            "sluicegate_admin_stream_readers{stream=\"events\"} 0"
        ));
        readers.pop();
        readers.push(subscribe(AdminStream::Events, 3, 9).expect("a place"));
        let wanted = || (streams.wanted().live, streams.wanted().events);
        assert_eq!(wanted(), (true, true));
        readers.clear();
        assert_eq!(wanted(), (false, false));
        assert!(counted(
            "sluicegate_admin_stream_readers{stream=\"live\"} 0"
        ));
    }
}
