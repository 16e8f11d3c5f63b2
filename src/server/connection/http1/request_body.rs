//! The body of a request: forwarded to the service frame by frame, or discarded if the service does
//! not read it.

use std::io;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http_body::Frame;

use super::{Http1Connection, Wait};
use crate::http::body::{Demand, PolledFrame, ReceiveError};
use crate::http::http1::Decoded;
use crate::http::service::ResponseSource;
use crate::server::connection::Io;

/// The most bytes of a body to discard to keep the connection; beyond, a new one is cheaper.
pub(super) const MOST_DISCARDED: u64 = 256 * 1024;
/// The longest time for that once the response is sent.
pub(super) const DISCARDING: Duration = Duration::from_secs(2);

impl<T, B> Http1Connection<'_, T, B>
where
    T: Io,
    B: ResponseSource,
{
    /// Returns true if an unread body may be discarded. A client that waits for `100 Continue` may
    /// send its body or not: the end of such a request is not certain.
    pub(super) fn may_discard(&self) -> bool {
        !self.expects_continue
            && self.decoder.remaining().unwrap_or_default() <= MOST_DISCARDED
            && self
                .body_sender
                .as_ref()
                .is_none_or(|sender| !sender.has_receiver())
    }

    fn poll_discard(&mut self, cx: &mut Context<'_>) {
        while let Some(left) = self.discard_budget {
            let Poll::Ready(frame) = self.poll_body_frame(cx) else {
                return;
            };
            let frame = frame.and_then(Result::ok).map(Frame::into_data);
            let length = frame.and_then(Result::ok).map(|data| data.len() as u64);
            self.discard_budget = match (length, self.decoder.has_ended()) {
                (Some(length), false) => left.checked_sub(length),
                _ => None,
            };
        }
    }

    /// Sends the service the next frame of the body if it asks for one. Returns true if it did.
    pub(super) fn poll_send_body(&mut self, cx: &mut Context<'_>) -> bool {
        if self.discard_budget.is_some() {
            self.poll_discard(cx);
            return false;
        }
        let demand = self.body_sender.as_mut().map(|sender| sender.demand(cx));
        match demand {
            None | Some(Demand::NotYet) => return false,
            Some(Demand::Never) => {
                self.body_sender = None;
                return false;
            }
            Some(Demand::Now) => {}
        }
        let Poll::Ready(frame) = self.poll_body_frame(cx) else {
            return false;
        };
        let is_last = !matches!(frame, Some(Ok(_))) || self.decoder.has_ended();
        if let Some(sender) = &mut self.body_sender {
            sender.send(frame, cx);
        }
        if is_last {
            self.body_sender = None;
        }
        true
    }

    /// Reads the next frame of the body.
    fn poll_body_frame(&mut self, cx: &mut Context<'_>) -> PolledFrame<ReceiveError> {
        loop {
            match self.decoder.decode(&mut self.read_buffer.bytes) {
                Ok(Decoded::Frame(frame)) => return Poll::Ready(Some(Ok(frame))),
                Ok(Decoded::End) => return Poll::Ready(None),
                Ok(Decoded::More) => {}
                Err(invalid) => return self.fail_body(invalid),
            }
            // A client that has begun to send needs no `100 Continue` (RFC 9110 section 10.1.1).
            if std::mem::take(&mut self.expects_continue) && self.read_buffer.is_empty() {
                self.writer
                    .interim(|buffer| buffer.extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n"));
            }
            let read = match self.written_at_eof {
                Some(_) => Ok(0),
                None => ready!(self.read_buffer.poll_read(&mut self.io, cx)),
            };
            match read {
                Ok(0) => {
                    self.written_at_eof.get_or_insert(self.writer.written());
                    if self.decoder.ends_with_connection() {
                        return Poll::Ready(None);
                    }
                    let end = io::Error::from(io::ErrorKind::UnexpectedEof);
                    return self.fail_body(end);
                }
                Ok(_) => {}
                Err(error) => return self.fail_body(error),
            }
        }
    }

    /// Ends the body with an error. Its end is not certain: nothing behind it is read.
    fn fail_body(&mut self, error: impl Into<ReceiveError>) -> PolledFrame<ReceiveError> {
        self.keep_alive = false;
        Poll::Ready(Some(Err(error.into())))
    }

    /// Waits for the end of a request that has its response, while the body is read or discarded.
    pub(super) fn poll_request_end(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.body_sender.is_some() || self.discard_budget.is_some() {
            self.wait_for(match self.discard_budget {
                Some(_) => Wait::Discarded,
                None => Wait::Rest,
            });
            ready!(self.idle_timer.poll_expired(cx));
            (self.body_sender, self.discard_budget) = (None, None);
        }
        self.keep_alive &= self.decoder.has_ended();
        Poll::Ready(())
    }
}
