//! The readers of streams, and the events of the last hour that new ones begin with.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::Frame;
use parking_lot::Mutex;
use serde::Serialize;
use tokio::sync::mpsc;
use tokio::time::{Instant, Sleep, sleep};

use crate::admin::actor::Actor;
use crate::admin::json::Rfc3339;
use crate::clock::Timestamp;
use crate::http::body::PolledFrame;
use crate::telemetry::metrics::{AdminMetrics, AdminStream};
use crate::telemetry::registry::GaugeGuard;

/// The messages that wait for one reader.
const QUEUE: usize = 16;
/// The time for which events are kept.
const KEPT: Duration = Duration::from_secs(3_600);
/// The most bytes of past events.
const MAX_PAST_BYTES: usize = 256 << 10;
/// The most readers of both streams.
const MAX_READERS: usize = 64;
/// The most readers with one token: others find a place.
const MAX_OF_TOKEN: usize = MAX_READERS / 2;
/// The most readers from one address.
const MAX_OF_ADDRESS: usize = MAX_READERS / 4;
/// The longest silence of a stream.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// The start of each stream: the time until clients connect again, in milliseconds.
const START: &[u8] = b"retry: 2000\n\n";

/// The readers of all streams. Clones share them.
#[derive(Clone, Debug)]
pub(in crate::admin) struct Streams {
    readers: Arc<Mutex<Readers>>,
    past: Arc<Mutex<PastEvents>>,
    metrics: AdminMetrics,
}

#[derive(Debug, Default)]
struct Readers {
    all: Vec<Reader>,
}

/// The events of the last hour, the oldest first.
#[derive(Debug, Default)]
pub(in crate::admin) struct PastEvents {
    pub messages: VecDeque<(Rfc3339, String)>,
    bytes: usize,
}

impl PastEvents {
    /// Puts these events before its own.
    pub fn begin_with(&mut self, events: impl Iterator<Item = (Rfc3339, String)>) {
        let own = std::mem::take(self).messages;
        for (at, message) in events.chain(own) {
            self.add(at.0, message);
        }
    }

    /// Forgets what happened to keys, whose texts these events may have.
    pub fn forget_keys(&mut self) {
        let begins =
            |message: &str| ["event: ban\n", "event: change\n"].map(|one| message.starts_with(one));
        self.messages
            .retain(|(_, message)| !begins(message).contains(&true));
        self.bytes = self.messages.iter().map(|(_, message)| message.len()).sum();
    }

    fn add(&mut self, now: Timestamp, message: String) {
        self.bytes += message.len();
        self.messages.push_back((Rfc3339(now), message));
        let is_over = |at: Timestamp| now.since(at) > KEPT;
        while let Some((at, first)) = self.messages.front()
            && (is_over(at.0) || self.bytes > MAX_PAST_BYTES)
        {
            self.bytes -= first.len();
            self.messages.pop_front();
        }
    }

    fn since(&self, start: Timestamp) -> Bytes {
        let messages = self.messages.iter().filter(|(at, _)| at.0 >= start);
        let messages: Vec<&str> = messages.map(|(_, message)| &**message).collect();
        messages.concat().into()
    }
}

#[derive(Debug)]
struct Reader {
    stream: AdminStream,
    caller: Actor,
    queue: mpsc::Sender<Bytes>,
}

/// The body of a stream. The place of its reader is free when it is dropped.
pub(in crate::admin) struct EventBody {
    messages: mpsc::Receiver<Bytes>,
    silence: Pin<Box<Sleep>>,
    /// The end of the stream, if its reader wants one.
    end: Option<Pin<Box<Sleep>>>,
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

/// An event as a stream has it.
pub(in crate::admin) fn message(name: &str, event: &impl Serialize) -> String {
    let json = serde_json::to_string(event).unwrap_or_default();
    format!("event: {name}\ndata: {json}\n\n")
}

impl Streams {
    /// No readers yet. They begin with the events of the past.
    pub(in crate::admin) fn new(metrics: AdminMetrics, past: Arc<Mutex<PastEvents>>) -> Self {
        Self {
            readers: Arc::default(),
            past,
            metrics,
        }
    }

    /// A new reader, which begins with the events from `since` on.
    ///
    /// # Errors
    /// There are too many readers.
    pub(super) fn subscribe(
        &self,
        stream: AdminStream,
        caller: Actor,
        length: Option<Duration>,
        since: Option<Timestamp>,
    ) -> Result<EventBody, NoPlace> {
        let mut readers = self.readers.lock();
        readers.find_place(&caller)?;
        let (queue, messages) = mpsc::channel(QUEUE);
        let past = since.map(|since| self.past.lock().since(since));
        let past = past.filter(|past| !past.is_empty());
        for message in [Bytes::from_static(START)].into_iter().chain(past) {
            // The queue has room.
            let _ = queue.try_send(message);
        }
        readers.all.push(Reader {
            stream,
            caller,
            queue,
        });
        drop(readers);
        Ok(EventBody {
            messages,
            silence: Box::pin(sleep(HEARTBEAT)),
            end: length.map(|length| Box::pin(sleep(length))),
            _counted: self.metrics.reader(stream),
        })
    }

    /// The events from an instant on.
    pub(super) fn past(&self, since: Timestamp) -> Bytes {
        self.past.lock().since(since)
    }

    /// Sends events to their readers, and keeps them for later ones.
    pub(in crate::admin) fn tell(&self, events: String, now: Timestamp) {
        let mut readers = self.readers.lock();
        self.past.lock().add(now, events.clone());
        readers.send(AdminStream::Events, &events.into());
    }

    /// Sends a message to the readers of a stream. Drops those that do not keep up.
    pub(in crate::admin) fn send(&self, stream: AdminStream, message: &Bytes) {
        self.readers.lock().send(stream, message);
    }

    /// Ends all streams: their readers connect again, with tokens that are still valid.
    pub(super) fn end_all(&self) {
        self.readers.lock().all.clear();
    }

    /// True if the stream has readers.
    pub(super) fn has_readers(&self, stream: AdminStream) -> bool {
        let mut readers = self.readers.lock();
        readers.forget_gone();
        readers.all.iter().any(|reader| reader.stream == stream)
    }
}

impl Readers {
    /// Forgets readers whose streams have ended.
    fn forget_gone(&mut self) {
        self.all.retain(|reader| !reader.queue.is_closed());
    }

    /// Finds a place for another reader: there is a bound in all, for each token and for each address.
    fn find_place(&mut self, caller: &Actor) -> Result<(), NoPlace> {
        self.forget_gone();
        let count = |is_alike: &dyn Fn(&Actor) -> bool| {
            let alike = self.all.iter().filter(|reader| is_alike(&reader.caller));
            alike.count()
        };
        if self.all.len() >= MAX_READERS {
            Err(NoPlace::All)
        } else if count(&|other| other.peer.ip() == caller.peer.ip()) >= MAX_OF_ADDRESS {
            Err(NoPlace::Address)
        } else if count(&|other| other.token() == caller.token()) >= MAX_OF_TOKEN {
            Err(NoPlace::Token)
        } else {
            Ok(())
        }
    }

    fn send(&mut self, stream: AdminStream, message: &Bytes) {
        self.all.retain(|reader| {
            reader.stream != stream || reader.queue.try_send(message.clone()).is_ok()
        });
    }
}

/// The reason why there is no place for a reader.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum NoPlace {
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

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use http_body_util::BodyExt;

    use super::*;
    use crate::admin::actor::TokenRole;
    use crate::telemetry::registry::Registry;

    fn streams(registry: &Registry) -> Streams {
        Streams::new(AdminMetrics::new(registry), Arc::default())
    }

    /// The caller with this token, from this address.
    fn caller(token: usize, address: u8) -> Actor {
        Actor {
            role: TokenRole::Read,
            number: token,
            peer: IpAddr::from([192, 0, 2, address]).into(),
        }
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
        let length = Some(Duration::from_secs(6));
        let mut body = streams
            .subscribe(AdminStream::Live, caller(1, 1), length, None)
            .expect("a place");
        let started = Instant::now();
        assert_eq!(next(&mut body).await.as_deref(), Some(START));
        assert_eq!(next(&mut body).await.as_deref(), Some(&b":\n\n"[..]));
        assert_eq!(next(&mut body).await, None);
        assert_eq!(started.elapsed(), Duration::from_secs(6));
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
            streams.tell(seconds.to_string(), at(seconds));
        }
        assert_eq!(read(at(0)).await, "0123456789");
        assert_eq!(read(at(7)).await, "789");
        streams.tell("later".to_owned(), at(3_605));
        assert_eq!(read(at(0)).await, "56789later", "an hour is kept");
        for _ in 0..10 {
            streams.tell("x".repeat(MAX_PAST_BYTES / 4), at(3_606));
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
        let both = [AdminStream::Live, AdminStream::Events];
        let read = || both.map(|stream| streams.has_readers(stream));
        assert_eq!(read(), [true, true]);
        readers.clear();
        assert_eq!(read(), [false, false]);
        assert!(counted(
            "sluicegate_admin_stream_readers{stream=\"live\"} 0"
        ));
    }
}
