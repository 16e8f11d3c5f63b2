//! HTTP/1: how hyper runs it, and how a connection ends so that the client sees its last answer.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use hyper::server::conn::http1::Builder;
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    time::timeout,
};

use super::{BUFFER, End, FIRST_READ, Io, Protocol, watch};
use crate::{
    server::{
        ClientSpec, HttpService,
        activity::{Activity, Wait},
        drain::Closing,
        exchange::Exchanges,
        service::BoxError,
        tracked::{Held, Tracked},
    },
    telemetry::metrics::BadRequest,
};

/// How long, and how many bytes, a closed connection is still read, so that a client that is sending a
/// body sees the answer instead of a reset (RFC 9112 section 9.6).
pub(super) const LINGER: Duration = Duration::from_secs(2);
const LINGER_BYTES: u64 = 1024 * 1024;

/// The answer to HTTP/2 where only HTTP/1 is spoken: the one head that hyper closes a connection over
/// without a word.
const BAD_REQUEST: &[u8] =
    b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";

/// The answer to a head that did not arrive in time.
const REQUEST_TIMEOUT: &[u8] =
    b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";

pub(super) fn builder(client: &ClientSpec) -> Builder {
    let mut builder = Builder::new();
    builder
        .header_read_timeout(None)
        .max_header_size(client.max_head)
        .max_buf_size(client.max_head.max(BUFFER));
    builder
}

impl Protocol {
    pub(super) async fn http1<T, S>(
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
        let activity = Arc::new(Activity::http1());
        let io = TokioIo::new(Tracked::new(io, first, activity.clone(), held));
        let service = Exchanges::new(service, activity.clone());
        let mut connection = self.http1.serve_connection(io, service).with_upgrades();
        let end = watch(&mut connection, &activity, self.timeouts, closing, |_| ()).await;
        // After an upgrade the socket is the service's.
        let Some(parts) = connection.into_parts() else {
            return Ok(());
        };
        let mut io = parts.io.into_inner();
        match end {
            End::Closed(result) => {
                if let Some(reason) = result.as_ref().err().and_then(bad_request) {
                    io.held().bad_request(reason);
                }
                if matches!(&result, Err(error) if error.is_parse_version_h2()) {
                    answer(&mut io, BAD_REQUEST).await?;
                }
                let answered = result
                    .as_ref()
                    .map_or_else(hyper::Error::is_parse, |()| true);
                let unread = activity.may_have_unread_body() || !parts.read_buf.is_empty();
                if answered && (result.is_err() || unread) {
                    linger(&mut io).await;
                }
                result.map_err(Into::into)
            }
            End::Waited(Wait::Head { .. }) => {
                io.held().bad_request(BadRequest::Timeout);
                answer(&mut io, REQUEST_TIMEOUT).await?;
                Err("the head did not arrive in time".into())
            }
            End::Waited(wait) => wait.into_result(),
        }
    }
}

/// Why a request never reached the service, if that is why the connection ended.
fn bad_request(error: &hyper::Error) -> Option<BadRequest> {
    match error {
        error if error.is_parse_too_large() => Some(BadRequest::HeadTooLarge),
        error if error.is_parse() => Some(BadRequest::Malformed),
        _ => None,
    }
}

/// Sends the connection's last answer.
async fn answer(io: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> Result<(), BoxError> {
    let answer = async {
        io.write_all(bytes).await?;
        io.shutdown().await
    };
    Ok(timeout(LINGER, answer).await??)
}

/// Reads and discards what a client still sends after the answer, within bounds.
async fn linger(io: &mut (impl AsyncRead + Unpin)) {
    let mut rest = io.take(LINGER_BYTES);
    let discard = async {
        let mut buf = vec![0; FIRST_READ];
        while rest.read(&mut buf).await.is_ok_and(|n| n > 0) {}
    };
    // However it ends, the connection is closed next.
    let _ = timeout(LINGER, discard).await;
}
