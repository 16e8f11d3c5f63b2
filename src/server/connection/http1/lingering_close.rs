//! Lingering close: a client that still sends sees the last response instead of a reset.

use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use http::StatusCode;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use super::{Http1Connection, response};
use crate::http::http1::{InvalidMessage, SendError};
use crate::http::service::{BoxError, ResponseSource};
use crate::server::CurrentRules;
use crate::server::connection::Io;
use crate::server::connection_guard::Evicted;
use crate::telemetry::metrics::BadRequest;

/// How long, and how many bytes, a closed connection is still read. A client that is sending a body
/// then sees the response, not a reset (RFC 9112 section 9.6).
pub(crate) const LINGER: Duration = Duration::from_secs(2);
const LINGER_BYTES: u64 = 1024 * 1024;

/// Reasons why a connection ends before both sides are done.
#[derive(Debug)]
pub(super) enum CloseReason {
    /// The bytes are no request; the connection sends the error response itself.
    Refused(StatusCode, String),
    /// The connection gives way to a new one.
    Evicted,
    Broken(BoxError),
}

impl<T, B> Http1Connection<'_, T, B>
where
    T: Io,
    B: ResponseSource,
{
    /// Closes the connection so that the client sees its last response.
    pub(super) async fn end(
        &mut self,
        end: Result<(), CloseReason>,
        rules: &CurrentRules,
    ) -> Result<(), BoxError> {
        match end {
            Ok(()) => {
                let is_read = self.decoder.has_ended() && self.is_silent();
                self.close(b"", !is_read).await;
                Ok(())
            }
            Err(CloseReason::Refused(status, reason)) => {
                self.guard.bad_request(match status {
                    StatusCode::REQUEST_TIMEOUT => BadRequest::Timeout,
                    StatusCode::URI_TOO_LONG | StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE => {
                        BadRequest::HeadTooLarge
                    }
                    _ => BadRequest::Malformed,
                });
                let answer = response::refusal(status, &reason, &rules.load().refusal_fields);
                self.close(&answer, true).await;
                Err(reason.into())
            }
            Err(CloseReason::Evicted) => {
                self.close(b"", false).await;
                Err(Evicted.into())
            }
            Err(CloseReason::Broken(error)) => Err(error),
        }
    }

    /// Returns true if the client has sent nothing beyond the last request.
    fn is_silent(&mut self) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        let read = self.read_buffer.poll_read(&mut self.io, &mut context);
        !matches!(read, Poll::Ready(Ok(1..))) && self.read_buffer.is_empty()
    }

    /// Sends `rest`, and ends this side. If it `lingers`, then reads and discards what the client
    /// still sends. Errors are ignored: the connection is closed next.
    pub(super) async fn close(&mut self, rest: &[u8], lingers: bool) {
        let guard = self.guard;
        let closing = async {
            self.io.write_all(rest).await?;
            self.io.shutdown().await?;
            if lingers {
                let mut rest = (&mut self.io).take(LINGER_BYTES);
                tokio::io::copy(&mut rest, &mut tokio::io::sink()).await?;
            }
            Ok::<_, io::Error>(())
        };
        tokio::select! {
            biased;
            _ = timeout(LINGER, closing) => {}
            () = poll_fn(|cx| guard.poll_cut(cx)) => {}
        }
    }
}

impl CloseReason {
    pub(super) fn broken(error: impl Into<BoxError>) -> Self {
        Self::Broken(error.into())
    }
}

impl From<InvalidMessage> for CloseReason {
    fn from(invalid: InvalidMessage) -> Self {
        let status = match invalid {
            InvalidMessage::TooLarge(_)
            | InvalidMessage::Syntax(httparse::Error::TooManyHeaders) => {
                StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE
            }
            InvalidMessage::Syntax(_) | InvalidMessage::Meaning(_) => StatusCode::BAD_REQUEST,
        };
        Self::Refused(status, invalid.to_string())
    }
}

impl<E: Into<BoxError>> From<SendError<E>> for CloseReason {
    fn from(sending: SendError<E>) -> Self {
        match sending {
            SendError::Io(error) => Self::broken(error),
            SendError::Body(error) => Self::broken(error),
            SendError::TooLong => Self::broken("the response is longer than was announced"),
            SendError::TooShort => Self::broken("the response is shorter than was announced"),
        }
    }
}
