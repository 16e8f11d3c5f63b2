//! HTTP/2 with a client, on hyper.

mod activity;
mod tracked_io;
mod tracked_service;
mod trailers;
mod tunnel;

use std::{
    error::Error as _,
    future::{Future, poll_fn},
    pin::pin,
    rc::Rc,
    task::{Context, Poll},
    time::Duration,
};

use hyper::server::conn::http2::Builder;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::time::{Instant, timeout};

use self::{
    activity::{Activity, Overdue, Wait, Watchdog},
    tracked_io::TrackedIo,
    tracked_service::TrackedService,
};
use super::{ConnectionHandler, ConnectionService, Io, NegotiatedConnection};
use crate::http::http2::STREAM_WINDOW;
use crate::http::trailers::LEAST_LIST_BOUND;
use crate::net::drain::DrainStage;
use crate::server::drain::DRAIN_GRACE;
use crate::server::{
    ClientSpec, HttpService, connection_guard::ConnectionGuard, service::BoxError,
};
use crate::telemetry::metrics::BadRequest;

/// The size of hyper's buffer for a body in each direction. A larger one costs memory and latency:
/// p99 of large bodies was halved against hyper's default of 400 KiB.
const BUFFER: usize = 64 * 1024;

/// The most streams that a client may have open on a connection.
const MAX_STREAMS: u32 = 100;

/// A silent connection is pinged after `PING_EVERY`, and closed without an answer within
/// `PING_TIMEOUT`.
const PING_EVERY: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(20);

pub(in crate::server) fn builder(client: &ClientSpec) -> Builder<LocalExecutor> {
    // The service refuses heads beyond `max_head`.
    let list_bound = client.max_head.max(LEAST_LIST_BOUND);
    let mut builder = Builder::new(LocalExecutor);
    builder
        .timer(TokioTimer::new())
        .max_header_list_size(u32::try_from(list_bound).unwrap_or(u32::MAX))
        .max_concurrent_streams(MAX_STREAMS)
        .enable_connect_protocol()
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(MAX_STREAMS * STREAM_WINDOW)
        .max_send_buf_size(BUFFER)
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_TIMEOUT);
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
        let io = TrackedIo::new(negotiated.io, negotiated.first, activity.clone());
        let (max_requests, expires) = self.client.life.of(service.id, Instant::now());
        let service = TrackedService::new(
            service.service,
            (self.client.max_head, self.client.max_fields),
            activity.clone(),
        );
        let mut connection = pin!(self.http2.serve_connection(TokioIo::new(io), service));
        let mut watchdog = Watchdog::new(
            activity.clone(),
            self.client.timeouts,
            negotiated.first_head,
            expires,
        );
        let (mut closing, mut draining) = (guard.closing().clone(), false);
        loop {
            tokio::select! {
                biased;
                result = &mut connection => {
                    if activity.is_flooded() || result.as_ref().is_err_and(is_cut_off) {
                        guard.bad_request(BadRequest::Flood);
                    }
                    return result.map_err(Into::into);
                }
                () = closing.reached(drain_stage(draining)) => if draining {
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
                    Overdue::Wait(Wait::Reader { .. } | Wait::Window { .. }) => {
                        return Err("the client stopped reading".into());
                    }
                    Overdue::HeaderBlock => {
                        guard.bad_request(BadRequest::Timeout);
                        connection.as_mut().graceful_shutdown();
                        let _ = timeout(DRAIN_GRACE, connection).await;
                        return Err("a header block or a frame's head did not end in time".into());
                    }
                },
            }
            draining = true;
            activity.close();
            connection.as_mut().graceful_shutdown();
        }
    }
}

/// The stage of its drain that the connection waits for.
fn drain_stage(draining: bool) -> DrainStage {
    match draining {
        false => DrainStage::Finish,
        true => DrainStage::Cut,
    }
}

/// Returns true if `h2` itself has ended the connection of a client that resets too many streams.
fn is_cut_off(error: &hyper::Error) -> bool {
    let source = error
        .source()
        .and_then(|source| source.downcast_ref::<h2::Error>());
    source.is_some_and(|error| {
        error.is_library() && error.reason() == Some(h2::Reason::ENHANCE_YOUR_CALM)
    })
}

/// Becomes ready when the client has to open another connection: after its last request, or because
/// this one gives way.
fn poll_spent(
    activity: &Activity,
    guard: &ConnectionGuard,
    max_requests: u32,
    cx: &mut Context<'_>,
) -> Poll<()> {
    if activity.begun() >= max_requests {
        return Poll::Ready(());
    }
    if let Some(status) = activity.take_status() {
        let was_served = activity.was_served();
        if !guard.may_stay(status, was_served) {
            return Poll::Ready(());
        }
    }
    match activity.in_flight() {
        0 => guard.poll_evicted(cx, Instant::now),
        _ => {
            guard.begin();
            Poll::Pending
        }
    }
}

/// Runs streams on the worker of their connection.
#[derive(Clone, Copy, Debug)]
pub(in crate::server) struct LocalExecutor;

impl<F> hyper::rt::Executor<F> for LocalExecutor
where
    F: Future<Output = ()> + 'static,
{
    fn execute(&self, stream: F) {
        tokio::task::spawn_local(stream);
    }
}
