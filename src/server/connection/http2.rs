//! HTTP/2: how hyper runs it.

use std::{future::Future, sync::Arc, time::Duration};

use bytes::Bytes;
use hyper::server::conn::http2::Builder;
use hyper_util::rt::{TokioIo, TokioTimer};

use super::{BUFFER, End, Io, Protocol, watch};
use crate::server::{
    ClientSpec, HttpService,
    activity::Activity,
    drain::Closing,
    exchange::Exchanges,
    service::BoxError,
    tracked::{Held, Tracked},
};

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

impl Protocol {
    pub(super) async fn http2<T, S>(
        &self,
        io: T,
        first: Bytes,
        service: S,
        held: Held,
        closing: Closing,
    ) -> Result<(), BoxError>
    where
        T: Io,
        S: HttpService,
    {
        let activity = Arc::new(Activity::http2());
        let io = TokioIo::new(Tracked::new(io, first, activity.clone(), held));
        let service = Exchanges::new(service, activity.clone());
        let mut connection = self.http2.serve_connection(io, service);
        match watch(
            &mut connection,
            &activity,
            self.timeouts,
            closing,
            |hyper| hyper.graceful_shutdown(),
        )
        .await
        {
            End::Closed(result) => result.map_err(Into::into),
            End::Waited(wait) => wait.into_result(),
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
