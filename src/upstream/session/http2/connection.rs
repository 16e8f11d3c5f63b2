//! A connection of HTTP/2, which the requests of one worker share. A task of that worker drives it.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use h2::Ping;
use h2::client::{Builder, Connection, SendRequest};
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::io_counts::IoCounts;
use super::keep_alive::{KeepAlive, KeepAliveStep};
use crate::http::http2::{FrameIo, RESET_STREAMS, RESET_TIME, ReceiveBuffers, STREAM_WINDOW};
use crate::upstream::connector::{OpenConnection, Stream};
use crate::upstream::error::into_io;

/// The most bytes that a stream buffers for the connection.
const BUFFER: usize = 64 * 1024;

/// The largest head of a response, in bytes.
pub(super) const MAX_HEAD: u32 = 64 * 1024;

/// The largest head that h2 decodes. It resets the stream of a larger one, but ends the connection if
/// a head has four times as much.
const MAX_DECODED_HEAD: u32 = 256 * 1024;

/// The most streams on a connection, if the host allows more.
const MAX_STREAMS: u32 = 128;

/// The limit of streams before the host's SETTINGS have come. No host can announce this number.
const UNKNOWN_LIMIT: usize = usize::MAX - 1;

/// The I/O of a connection.
type HostIo = FrameIo<Stream, Arc<IoCounts>>;

/// A connection with its streams.
#[derive(Debug)]
pub(in crate::upstream) struct SharedConnection {
    pub(super) requests: Mutex<SendRequest<Bytes>>,
    pub state: Arc<ConnectionState>,
}

/// The state that a connection's task shares with requests.
#[derive(Debug, Default)]
pub(in crate::upstream) struct ConnectionState {
    /// Streams that requests hold.
    pub streams: AtomicU32,
    pub io: Arc<IoCounts>,
    /// The bodies of its responses.
    pub bodies: ReceiveBuffers,
    keep_alive: Mutex<KeepAlive>,
    /// A request has had a stream since the last sweep.
    is_used: AtomicBool,
    /// The host does not answer pings.
    is_dead: AtomicBool,
    /// The host allows no stream; a request may wait until it does.
    allows_no_streams: AtomicBool,
    /// The host has violated HTTP/2, which ended the connection with all its streams.
    pub has_violated: AtomicBool,
    /// Set once one stream has counted as the host's failure: h2 doesn't say which response violated
    /// HTTP/2.
    pub(super) has_counted_failure: AtomicBool,
    /// Wakes the task, for a ping or the end.
    task: Notify,
    /// Wakes the requests that wait for a stream.
    freed: Arc<Notify>,
}

/// The room of a connection for further requests.
#[derive(Clone, Copy, Debug)]
pub(in crate::upstream) struct Room {
    /// Streams that requests may have beside those that they hold.
    pub free: u32,
    /// The most streams at once.
    pub limit: u32,
}

/// A stream that its holder may open. Dropping it lets another request have it.
#[derive(Debug)]
pub(in crate::upstream) struct StreamPermit(pub Arc<SharedConnection>);

impl SharedConnection {
    /// Begins HTTP/2 on `stream`, and waits for the SETTINGS of the host. Wakes requests through
    /// `freed` when they may have a stream.
    ///
    /// # Errors
    /// When the host does not speak HTTP/2, or closes the connection.
    pub(in crate::upstream) async fn open(
        stream: Stream,
        freed: Arc<Notify>,
        guard: OpenConnection,
    ) -> io::Result<Arc<Self>> {
        let counts = Arc::<IoCounts>::default();
        let io = FrameIo::with_server(stream, Arc::clone(&counts));
        let state = Arc::new(ConnectionState {
            freed,
            io: counts,
            bodies: io.bodies.clone(),
            ..ConnectionState::default()
        });
        let (requests, mut connection) = builder().handshake(io).await.map_err(into_io)?;
        poll_fn(|cx| poll_settings(&mut connection, cx)).await?;
        tokio::task::spawn_local(drive(connection, Arc::clone(&state), guard));
        Ok(Arc::new(SharedConnection {
            requests: Mutex::new(requests),
            state,
        }))
    }

    /// The room for further requests; `None` if the connection takes no more: it has ended, the host
    /// sent GOAWAY, or too many of its requests were cancelled.
    pub(in crate::upstream) fn check_room(&self) -> Option<Room> {
        if self.state.io.is_worn_out.load(Relaxed) {
            return None;
        }
        let mut requests = self.requests.lock();
        let mut cx = Context::from_waker(Waker::noop());
        let is_ready = match requests.poll_ready(&mut cx) {
            Poll::Ready(Err(error)) => {
                self.state.has_violated.store(error.is_library(), Relaxed);
                return None;
            }
            Poll::Ready(Ok(())) => true,
            // The last stream within the limit is still to be opened.
            Poll::Pending => false,
        };
        let limit = u32::try_from(requests.current_max_send_streams());
        let limit = limit.map_or(MAX_STREAMS, |limit| limit.min(MAX_STREAMS));
        if limit == 0 {
            self.state.allows_no_streams.store(true, Relaxed);
        }
        let free = limit.saturating_sub(self.state.streams.load(Relaxed));
        Some(Room {
            free: if is_ready { free } else { 0 },
            limit,
        })
    }

    /// Reserves one of the free streams of its [`check_room`](Self::check_room).
    pub(in crate::upstream) fn reserve(self: &Arc<Self>) -> StreamPermit {
        self.state.is_used.store(true, Relaxed);
        self.state.streams.fetch_add(1, Relaxed);
        StreamPermit(Arc::clone(self))
    }

    /// Returns true if the host allows no stream for now, on a connection that has none (RFC 9113
    /// section 5.1.2).
    pub(in crate::upstream) fn is_idle_without_streams(&self) -> bool {
        self.state.allows_no_streams.load(Relaxed) && self.state.streams.load(Relaxed) == 0
    }

    /// Pings a silent host while streams are open, and ends the connection if it doesn't answer.
    /// Call once a second. Returns true if requests have used the connection since the last call.
    pub(in crate::upstream) fn sweep(&self) -> bool {
        let state = &self.state;
        let has_streams = state.streams.load(Relaxed) > 0;
        let reads = state.io.reads.load(Relaxed);
        let action = state.keep_alive.lock().tick(reads, has_streams);
        if action != KeepAliveStep::None {
            state.is_dead.store(action == KeepAliveStep::Close, Relaxed);
            state.task.notify_one();
        }
        state.is_used.swap(has_streams, Relaxed) || has_streams
    }
}

impl Drop for StreamPermit {
    fn drop(&mut self) {
        let state = &self.0.state;
        state.streams.fetch_sub(1, Relaxed);
        state.freed.notify_one();
    }
}

fn builder() -> Builder {
    let mut builder = Builder::new();
    builder
        .initial_max_send_streams(UNKNOWN_LIMIT)
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(MAX_STREAMS * STREAM_WINDOW)
        // [`ReceiveBuffers`] bound these. h2 would end the connection with all its streams.
        .data_frame_budget(usize::MAX)
        .max_concurrent_reset_streams(RESET_STREAMS)
        .reset_stream_duration(RESET_TIME)
        // The same: what comes later is answered with a reset.
        .max_local_error_reset_streams(None)
        .max_send_buffer_size(BUFFER)
        .max_header_list_size(MAX_DECODED_HEAD)
        .enable_push(false);
    builder
}

/// Waits for the SETTINGS of the host, with which every connection begins (RFC 9113 section 3.4).
fn poll_settings(
    connection: &mut Connection<HostIo, Bytes>,
    cx: &mut Context<'_>,
) -> Poll<io::Result<()>> {
    let polled = Pin::new(&mut *connection).poll(cx).map_err(into_io)?;
    if connection.max_concurrent_send_streams() != UNKNOWN_LIMIT {
        return Poll::Ready(Ok(()));
    }
    ready!(polled);
    Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()))
}

/// Drives a connection to its end: until no request holds a stream and its pool has dropped it, the
/// host closes it, or the host is found dead.
async fn drive(
    mut connection: Connection<HostIo, Bytes>,
    state: Arc<ConnectionState>,
    guard: OpenConnection,
) {
    let mut pings = connection.ping_pong();
    loop {
        tokio::select! {
            biased;
            ended = poll_fn(|cx| poll_frames(&mut connection, &state, cx)) => {
                if let Err(error) = ended {
                    let error = &error as &dyn std::error::Error;
                    tracing::debug!(error, "connection to an upstream ended");
                }
                break;
            }
            () = state.task.notified() => {
                if state.is_dead.load(Relaxed) {
                    tracing::debug!("an upstream does not answer pings");
                    break;
                }
                if let Some(pings) = &mut pings {
                    // An earlier answer must be taken before. It counts as any other read.
                    let _ = pings.poll_pong(&mut Context::from_waker(Waker::noop()));
                    let _ = pings.send_ping(Ping::opaque());
                }
            }
        }
    }
    drop((connection, guard));
    state.freed.notify_waiters();
}

/// Moves frames. Wakes the requests that wait once the host allows streams again.
fn poll_frames(
    connection: &mut Connection<HostIo, Bytes>,
    state: &ConnectionState,
    cx: &mut Context<'_>,
) -> Poll<Result<(), h2::Error>> {
    let polled = Pin::new(&mut *connection).poll(cx);
    if state.allows_no_streams.load(Relaxed) && connection.max_concurrent_send_streams() > 0 {
        state.allows_no_streams.store(false, Relaxed);
        state.freed.notify_waiters();
    }
    polled
}
