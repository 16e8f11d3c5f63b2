//! The body of a request, which goes to its reader as it comes. The rest of one that nobody reads is thrown away, where
//! that is worth a connection.

use std::io;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::Frame;

use super::{Http1Connection, Wait};
use crate::http::body::{Demand, ReceiveError};
use crate::http::http1::Decoded;
use crate::server::connection::Io;
use crate::server::service::BoxError;

/// The most bytes of a body that are thrown away for the sake of the connection; beyond, a new one is cheaper.
const MOST_DISCARDED: u64 = 256 * 1024;
/// How long that may take once the response is sent.
pub(super) const DISCARDING: Duration = Duration::from_secs(2);

impl<T, B> Http1Connection<'_, T, B>
where
    T: Io,
    B: http_body::Body<Data = Bytes, Error: Into<BoxError>> + Unpin,
{
    /// Whether the rest of a body that nobody reads is to be thrown away. A client that waits for `100 Continue` may
    /// send it or not: nothing behind its head is certain.
    pub(super) fn may_discard(&self) -> bool {
        !self.expects_continue
            && self.decoder.remaining().unwrap_or_default() <= MOST_DISCARDED
            && self.feeder.as_ref().is_none_or(|feeder| !feeder.is_read())
    }

    /// Throws the rest of a body away once nobody reads it.
    pub(super) fn discard(&mut self) {
        self.discards = Some(MOST_DISCARDED);
    }

    fn poll_discard(&mut self, cx: &mut Context<'_>) {
        while let Some(left) = self.discards {
            let Poll::Ready(part) = self.poll_part(cx) else {
                return;
            };
            let frame = part.and_then(Result::ok).map(Frame::into_data);
            let length = frame.and_then(Result::ok).map(|data| data.len() as u64);
            self.discards = match (length, self.decoder.has_ended()) {
                (Some(length), false) => left.checked_sub(length),
                _ => None,
            };
        }
    }

    /// Feeds whoever reads the body the next part of it, once that is there; whether it did.
    pub(super) fn poll_feed(&mut self, cx: &mut Context<'_>) -> bool {
        if self.discards.is_some() {
            self.poll_discard(cx);
            return false;
        }
        let wanted = self.feeder.as_mut().map(|feeder| feeder.demand(cx));
        match wanted {
            None | Some(Demand::NotYet) => return false,
            Some(Demand::Never) => {
                self.feeder = None;
                return false;
            }
            Some(Demand::Now) => {}
        }
        let Poll::Ready(part) = self.poll_part(cx) else {
            return false;
        };
        let is_last = !matches!(part, Some(Ok(_))) || self.decoder.has_ended();
        if let Some(feeder) = &mut self.feeder {
            feeder.send(part, cx);
        }
        if is_last {
            self.feeder = None;
        }
        true
    }

    /// The next part of the body.
    fn poll_part(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ReceiveError>>> {
        loop {
            match self.decoder.decode(&mut self.received.bytes) {
                Ok(Decoded::Frame(frame)) => return Poll::Ready(Some(Ok(frame))),
                Ok(Decoded::End) => return Poll::Ready(None),
                Ok(Decoded::More) => {}
                Err(invalid) => return self.broken_off(invalid),
            }
            // A client that has begun to send needs not be told (RFC 9110 section 10.1.1).
            if std::mem::take(&mut self.expects_continue) && self.received.is_empty() {
                self.outgoing
                    .interim(|buffer| buffer.extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n"));
            }
            let read = match self.ended {
                Some(_) => Ok(0),
                None => ready!(self.received.poll_read(&mut self.io, cx)),
            };
            match read {
                Ok(0) => {
                    self.ended.get_or_insert(self.outgoing.written());
                    if self.decoder.ends_with_connection() {
                        return Poll::Ready(None);
                    }
                    let end = io::Error::from(io::ErrorKind::UnexpectedEof);
                    return self.broken_off(end);
                }
                Ok(_) => {}
                Err(error) => return self.broken_off(error),
            }
        }
    }

    /// The error that ends a body. Where it ends is not certain: nothing behind it is read.
    fn broken_off(
        &mut self,
        error: impl Into<ReceiveError>,
    ) -> Poll<Option<Result<Frame<Bytes>, ReceiveError>>> {
        self.keep_alive = false;
        Poll::Ready(Some(Err(error.into())))
    }

    /// Waits for the end of a request that has its answer already, as long as it is read or thrown away.
    pub(super) fn poll_rest(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.feeder.is_some() || self.discards.is_some() {
            self.wait_for(match self.discards {
                Some(_) => Wait::Discarded,
                None => Wait::Rest,
            });
            ready!(self.idle_timer.poll_expired(cx));
            (self.feeder, self.discards) = (None, None);
        }
        self.keep_alive &= self.decoder.has_ended();
        Poll::Ready(())
    }
}
