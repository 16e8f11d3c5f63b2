//! HTTP/1.1 with an endpoint: a connection has one request at a time, whose task drives it.

mod connection;
mod pooled;
mod request;
mod response;

use std::future::poll_fn;
use std::io;

use bytes::BytesMut;
use http::StatusCode;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy, sink};
use tokio::time::{Instant, timeout_at};

pub(in crate::upstream) use pooled::PooledConnection;
use pooled::is_informational;

use crate::http::http1::ReadBuffer;
use crate::upstream::attempt::{Attempt, OutboundRequest};
use crate::upstream::connector::Stream;
use crate::upstream::error::UpstreamErrorKind;
use crate::upstream::host::InFlight;
use crate::upstream::session::body::{Exchange, UpstreamBody};

/// A connection in use by one request, to be returned to its pool once the response was read to
/// the end. Dropping it closes the connection: no other request may read the rest of that response.
#[derive(Debug)]
pub(in crate::upstream) struct Http1Session {
    pub connection: Box<PooledConnection>,
    pub host: InFlight,
    pub worker: usize,
}

impl Http1Session {
    /// Sends a request, and waits for the head of the response.
    pub(in crate::upstream) async fn send(mut self, outbound: &mut OutboundRequest<'_>) -> Attempt {
        let timeouts = &outbound.spec.timeouts;
        let connection = &mut *self.connection;
        connection.http.begin(outbound.request);
        connection.idle_timer.reset_to(timeouts.response);
        let polled = poll_fn(|cx| connection.poll_response(cx, outbound));
        match polled.await {
            Some(Ok(response)) => {
                let is_tunnel = response.status() == StatusCode::SWITCHING_PROTOCOLS;
                let exchange = Exchange::Http1(self);
                let body = UpstreamBody::new(exchange, is_tunnel, response.headers(), timeouts);
                Attempt::from(Ok(response.map(|()| body)))
            }
            None => {
                let late = UpstreamErrorKind::ResponseTimeout(timeouts.response);
                Attempt::failed(late, self.host)
            }
            Some(Err(kind)) => {
                let unsent = connection.http.writer.take_unsent();
                let is_unprocessed = unsent.is_some();
                if let Some(body) = unsent.or_else(|| connection.http.take_tunnel()) {
                    *outbound.request.body_mut() = body;
                }
                Attempt {
                    is_unprocessed,
                    ..Attempt::failed(kind, self.host)
                }
            }
        }
    }

    /// Returns the connection to the pool if it may carry another request. Must be called after the
    /// end of the response.
    pub(super) fn release(mut self) {
        if self.connection.http.is_reusable() {
            self.connection.http.release();
            self.host.pool.check_in(self.worker, self.connection);
        }
    }
}

/// The most bytes of an answer that are read.
const MAX_ANSWER: u64 = 64 * 1024;

/// Sends `request`, which has no body and closes the connection. Returns the status of the final
/// response. Reads the rest of it for at most half of the time left, so that the host sees an
/// orderly end.
///
/// # Errors
/// When the connection fails, or the response is not valid or has a head of 64 KiB.
pub(in crate::upstream) async fn http1_status(
    mut stream: Stream,
    request: &[u8],
    deadline: Instant,
) -> Result<StatusCode, UpstreamErrorKind> {
    let written = stream.write_all(request).await;
    written.map_err(UpstreamErrorKind::Closed)?;
    let mut answer = stream.take(MAX_ANSWER);
    let mut buffer = ReadBuffer::new(BytesMut::new());
    loop {
        while let Some(head) = response::head(&mut buffer).map_err(UpstreamErrorKind::Invalid)? {
            let status = head.status();
            if !is_informational(status) {
                let left = deadline.saturating_duration_since(Instant::now());
                let mut sink = sink();
                let rest = timeout_at(deadline - left / 2, copy(&mut answer, &mut sink));
                // A body that breaks off says nothing of the status.
                rest.await.ok();
                return Ok(status);
            }
        }
        let read = poll_fn(|cx| buffer.poll_read(&mut answer, cx)).await;
        if read.map_err(UpstreamErrorKind::Closed)? == 0 {
            let end = io::Error::from(io::ErrorKind::UnexpectedEof);
            return Err(UpstreamErrorKind::Closed(end));
        }
    }
}
