//! The body of a request, which goes to whoever reads it as it comes.

use std::io;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::Frame;

use super::{Connection, Wait};
use crate::http_ext::body::{FedError, Wanted};
use crate::http_ext::http1::Decoded;
use crate::server::connection::Io;
use crate::server::service::BoxError;

impl<T, B> Connection<'_, T, B>
where
    T: Io,
    B: http_body::Body<Data = Bytes, Error: Into<BoxError>> + Unpin,
{
    /// Feeds whoever reads the body the next part of it, once that is there; whether it did.
    pub(super) fn poll_feed(&mut self, cx: &mut Context<'_>) -> bool {
        let wanted = self.feeder.as_mut().map(|feeder| feeder.wanted(cx));
        match wanted {
            None | Some(Wanted::NotYet) => return false,
            Some(Wanted::Never) => {
                self.feeder = None;
                return false;
            }
            Some(Wanted::Now) => {}
        }
        let Poll::Ready(part) = self.poll_part(cx) else {
            return false;
        };
        let is_last = !matches!(part, Some(Ok(_))) || self.decoder.has_ended();
        if let Some(feeder) = &mut self.feeder {
            feeder.feed(part, cx);
        }
        if is_last {
            self.feeder = None;
        }
        true
    }

    /// The next part of the body.
    fn poll_part(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, FedError>>> {
        loop {
            match self.decoder.decode(&mut self.received.bytes) {
                Ok(Decoded::Frame(frame)) => return Poll::Ready(Some(Ok(frame))),
                Ok(Decoded::End) => return Poll::Ready(None),
                Ok(Decoded::More) => {}
                Err(invalid) => return Poll::Ready(Some(Err(invalid.into()))),
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
                    return Poll::Ready(Some(Err(end.into())));
                }
                Ok(_) => {}
                Err(error) => return Poll::Ready(Some(Err(error.into()))),
            }
        }
    }

    /// Waits for the end of a request that has its answer already, as long as somebody reads it.
    pub(super) fn poll_rest(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.feeder.is_some() {
            self.wait_for(Wait::Rest);
            ready!(self.patience.poll_exhausted(cx));
            self.feeder = None;
        }
        self.keep_alive &= self.decoder.has_ended();
        Poll::Ready(())
    }
}
