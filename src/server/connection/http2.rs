//! HTTP/2: how hyper runs it.

mod activity;
mod header_blocks;
mod tracked_service;
mod tracked_io;

use std::{future::Future, pin::pin, rc::Rc, time::Duration};

use hyper::server::conn::http2::Builder;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::time::timeout;

use self::{
    activity::{Activity, Overdue, Wait, Watchdog},
    tracked_io::TrackedIo,
    tracked_service::TrackedService,
};
use super::{ConnectionHandler, Io, NegotiatedConnection};
use crate::server::drain::{DRAIN_GRACE, DrainWatcher};
use crate::server::{
    ClientSpec, HttpService, connection_guard::ConnectionGuard, service::BoxError,
};
use crate::telemetry::metrics::BadRequest;

/// What hyper buffers of a body in each direction: larger costs memory and latency (p99 of large bodies
/// was halved against hyper's default of 400 KiB).
const BUFFER: usize = 64 * 1024;

/// HTTP/2 streams that a client may have open at once on a connection.
const MAX_STREAMS: u32 = 100;

/// Flow-control windows: what a client may send unread on one stream, and on all of a connection.
const STREAM_WINDOW: u32 = 256 * 1024;
const CONNECTION_WINDOW: u32 = 1024 * 1024;

/// A silent HTTP/2 connection is pinged after the first, and closed when no answer comes within the second.
const PING_EVERY: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(20);

pub(super) fn builder(client: &ClientSpec) -> Builder<LocalExecutor> {
    let mut builder = Builder::new(LocalExecutor);
    builder
        .timer(TokioTimer::new())
        .max_header_list_size(u32::try_from(client.max_head).unwrap_or(u32::MAX))
        .max_concurrent_streams(MAX_STREAMS)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buf_size(BUFFER)
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_TIMEOUT);
    builder
}

impl ConnectionHandler {
    pub(super) async fn http2<T, S>(
        &self,
        opened: NegotiatedConnection<T>,
        service: S,
        held: ConnectionGuard,
        mut closing: DrainWatcher,
    ) -> Result<(), BoxError>
    where
        T: Io,
        S: HttpService,
    {
        let activity = Rc::new(Activity::default());
        let io = TrackedIo::new(opened.io, opened.first, activity.clone());
        let service = TrackedService::new(service, activity.clone());
        let mut connection = pin!(self.http2.serve_connection(TokioIo::new(io), service));
        let mut watchdog = Watchdog::new(activity.clone(), self.client.timeouts, opened.first_head);
        let mut draining = false;
        loop {
            tokio::select! {
                biased;
                result = &mut connection => return result.map_err(Into::into),
                () = closing.started(), if !draining => {}
                late = &mut watchdog => match late {
                    // A request may be on its way: it is served, or the client is told that it was not (RFC 9113
                    // section 6.8).
                    Overdue::Wait(Wait::FirstRequest | Wait::NextRequest { .. }) if !draining => {}
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
                        held.bad_request(BadRequest::Timeout);
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

/// Runs HTTP/2 streams on the worker that has their connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct LocalExecutor;

impl<F> hyper::rt::Executor<F> for LocalExecutor
where
    F: Future<Output = ()> + 'static,
{
    fn execute(&self, stream: F) {
        tokio::task::spawn_local(stream);
    }
}
