//! HTTP/2 with a client, on the `h2` crate: a task for the connection, and one for each request that
//! isn't answered at once.

mod activity;
mod observer;
mod ping;
mod stall;
mod stream;
mod trailers;
mod tunnel;

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::RecvStream;
use h2::server::{Builder, Connection, Handshake, SendResponse};
use smallvec::SmallVec;
use tokio::time::{Instant, timeout};

use self::activity::{Activity, Overdue, Wait, Watchdog};
use self::observer::ClientObserver;
use self::ping::PingTimer;
use self::stream::StreamStarter;
use super::{ConnectionHandler, ConnectionService, Io, NegotiatedConnection};
use crate::http::http2::{FrameIo, RESET_STREAMS, RESET_TIME, STREAM_WINDOW};
use crate::http::service::{BoxError, HttpService};
use crate::http::trailers::LEAST_LIST_BOUND;
use crate::net::drain::DrainStage;
use crate::server::connection_guard::ConnectionGuard;
use crate::server::drain::DRAIN_GRACE;
use crate::server::spec::ClientSpec;
use crate::telemetry::metrics::BadRequest;

/// The most bytes of a response's body that wait for the client, for each stream.
const BUFFER: usize = 64 * 1024;

/// The most streams that a client may have open on a connection.
const MAX_STREAMS: u32 = 100;

/// The most streams of a connection that may be reset because of the client's errors.
const MAX_ERRORS: usize = 1024;

pub(in crate::server) fn builder(client: &ClientSpec) -> Builder {
    // Larger heads than `max_head` are refused when they have come.
    let list_bound = client.max_head.max(LEAST_LIST_BOUND);
    let mut builder = Builder::new();
    builder
        .max_header_list_size(u32::try_from(list_bound).unwrap_or(u32::MAX))
        .max_concurrent_streams(MAX_STREAMS)
        .max_local_error_reset_streams(Some(MAX_ERRORS))
        .max_concurrent_reset_streams(RESET_STREAMS)
        .reset_stream_duration(RESET_TIME)
        .enable_connect_protocol()
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(MAX_STREAMS * STREAM_WINDOW)
        // [`ReceiveBuffers`] bound these. h2 would end the connection with all its streams.
        .data_frame_budget(usize::MAX)
        .max_send_buffer_size(BUFFER);
    builder
}

impl ConnectionHandler {
    pub(super) async fn http2<T, S>(
        self: Rc<Self>,
        negotiated: NegotiatedConnection<T>,
        service: ConnectionService<S>,
        guard: ConnectionGuard,
    ) -> Result<(), BoxError>
    where
        T: Io,
        S: HttpService,
    {
        let activity = Rc::new(Activity::default());
        activity.is_of_proxy.set(guard.is_of_proxy());
        let (max_requests, expires) = self.client.life.of(service.id, Instant::now());
        let observer = ClientObserver::new(activity.clone());
        let io = FrameIo::with_client(negotiated.io, negotiated.first, observer);
        let streams = StreamStarter {
            service,
            handler: self.clone(),
            activity: activity.clone(),
            bodies: io.bodies.clone(),
        };
        let mut connection = Http2Connection {
            state: ConnectionStage::Handshake(self.http2.handshake(io)),
            streams,
            is_draining: false,
        };
        let mut watchdog = Watchdog::new(
            activity.clone(),
            self.client.timeouts,
            negotiated.first_head,
            expires,
        );
        let mut closing = guard.closing().clone();
        // The stage of its drain that the connection waits for.
        let mut next_stage = DrainStage::Finish;
        loop {
            let draining = next_stage == DrainStage::Cut;
            tokio::select! {
                biased;
                result = poll_fn(|cx| connection.poll_serve(cx)) => {
                    if activity.flooded.get() || result.as_ref().is_err_and(is_cut_off) {
                        guard.bad_request(BadRequest::Flood);
                    }
                    return result.map_err(Into::into);
                }
                () = closing.reached(next_stage) => if draining {
                    return Err("the drain deadline".into());
                },
                () = poll_fn(|cx| poll_spent(&activity, &guard, max_requests, cx)), if !draining => {}
                late = &mut watchdog => match late {
                    // A request on its way is served, or the client learns that it was not (RFC
                    // 9113 section 6.8).
                    Overdue::Wait(Wait::FirstRequest | Wait::NextRequest { .. }) if !draining => {}
                    Overdue::Age => {}
                    Overdue::Wait(
                        Wait::Preface
                        | Wait::FirstRequest
                        | Wait::NextRequest { .. }
                        | Wait::Service,
                    ) => return Ok(()),
                    Overdue::Wait(Wait::Reader { .. }) => {
                        return Err("the client stopped reading".into());
                    }
                    Overdue::HeaderBlock => {
                        guard.bad_request(BadRequest::Timeout);
                        connection.drain();
                        let ending = poll_fn(|cx| connection.poll_serve(cx));
                        let _ = timeout(DRAIN_GRACE, ending).await;
                        return Err("a header block or a frame's head did not end in time".into());
                    }
                },
            }
            next_stage = DrainStage::Cut;
            activity.closing.set(true);
            connection.drain();
        }
    }
}

/// The requests that a turn accepts, most often one.
type Accepted = SmallVec<[(http::Request<RecvStream>, SendResponse<Bytes>); 1]>;

/// The I/O of a connection.
type ClientIo<T> = FrameIo<T, ClientObserver>;

/// A connection, from its handshake to its end.
struct Http2Connection<T, S> {
    state: ConnectionStage<T>,
    streams: StreamStarter<S>,
    is_draining: bool,
}

/// The progress of a connection.
enum ConnectionStage<T> {
    Handshake(Handshake<ClientIo<T>, Bytes>),
    Open {
        connection: Connection<ClientIo<T>, Bytes>,
        ping: Option<PingTimer>,
    },
}

impl<T: Io, S: HttpService> Http2Connection<T, S> {
    /// Moves frames, and starts requests. Ready at the end of the connection.
    fn poll_serve(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), h2::Error>> {
        loop {
            match &mut self.state {
                ConnectionStage::Handshake(handshake) => {
                    let mut connection = ready!(Pin::new(handshake).poll(cx))?;
                    if self.is_draining {
                        connection.graceful_shutdown();
                    }
                    let ping = connection.ping_pong().map(PingTimer::new);
                    self.state = ConnectionStage::Open { connection, ping };
                }
                ConnectionStage::Open { connection, ping } => {
                    let reads = self.streams.activity.reads.get();
                    if ping
                        .as_mut()
                        .is_some_and(|ping| ping.poll_gone(reads, cx).is_ready())
                    {
                        connection.abrupt_shutdown(h2::Reason::NO_ERROR);
                    }
                    let Some(requests) = accept_all(connection, cx)? else {
                        return Poll::Ready(Ok(()));
                    };
                    for (request, respond) in requests {
                        self.streams.start(request, respond);
                    }
                    // `h2` wakes this task when an answer waits to be written.
                    return Poll::Pending;
                }
            }
        }
    }

    /// Lets the requests in flight end, and refuses others.
    fn drain(&mut self) {
        if !std::mem::replace(&mut self.is_draining, true)
            && let ConnectionStage::Open { connection, .. } = &mut self.state
        {
            connection.graceful_shutdown();
        }
    }
}

/// Accepts the requests that have come; `None` at the end of the connection.
///
/// Each call of [`Connection::poll_accept`] writes what waits to be written. So none is answered before
/// all are accepted: the answers of one turn are one write.
fn accept_all<T: Io>(
    connection: &mut Connection<ClientIo<T>, Bytes>,
    cx: &mut Context<'_>,
) -> Result<Option<Accepted>, h2::Error> {
    let mut requests = Accepted::new();
    while let Poll::Ready(accepted) = connection.poll_accept(cx) {
        match accepted.transpose()? {
            Some(request) => requests.push(request),
            None => return Ok(None),
        }
        if requests.len() == MAX_STREAMS as usize {
            // There may be more.
            cx.waker().wake_by_ref();
            break;
        }
    }
    Ok(Some(requests))
}

/// Returns true if `h2` itself has ended the connection of a client that resets too many streams.
fn is_cut_off(error: &h2::Error) -> bool {
    error.is_library() && error.reason() == Some(h2::Reason::ENHANCE_YOUR_CALM)
}

/// Becomes ready when the client has to open another connection: after its last request, or because
/// this one gives way.
fn poll_spent(
    activity: &Activity,
    guard: &ConnectionGuard,
    max_requests: u32,
    cx: &mut Context<'_>,
) -> Poll<()> {
    if activity.begun.get() >= max_requests {
        return Poll::Ready(());
    }
    if let Some(status) = activity.status.take()
        && !guard.may_stay(status, activity.was_served.get())
    {
        return Poll::Ready(());
    }
    match activity.in_flight.get() {
        0 => guard.poll_evicted(cx, Instant::now),
        _ => {
            guard.begin();
            Poll::Pending
        }
    }
}
