//! A connection of HTTP/1.1 with its time-out, which its host's pool keeps while it is idle.

use std::cell::Cell;
use std::mem;
use std::task::{Context, Poll};
use std::time::Duration;

use super::connection::{UpstreamConnection, is_informational};
use crate::http::informational::InformationalQueue;
use crate::http::message::Response;
use crate::net::dial::Dscp;
use crate::net::idle_timer::IdleTimer;
use crate::upstream::UpstreamErrorKind;
use crate::upstream::connector::{OpenConnection, Stream};
use crate::upstream::pool::ConnectionLease;

/// A connection with its time-out.
#[derive(Debug)]
pub(in crate::upstream) struct PooledConnection {
    pub http: UpstreamConnection<Stream>,
    pub idle_timer: IdleTimer,
    /// The bytes written at the last poll.
    written: u64,
    /// The code point of its packets.
    pub dscp: Option<Dscp>,
    /// Its further use.
    pub lease: ConnectionLease,
    _open: OpenConnection,
}

impl PooledConnection {
    pub(in crate::upstream) fn new(
        stream: Stream,
        dscp: Option<Dscp>,
        lease: ConnectionLease,
        open: OpenConnection,
    ) -> Self {
        PooledConnection {
            http: UpstreamConnection::new(stream),
            idle_timer: IdleTimer::new(Duration::ZERO),
            written: 0,
            dscp,
            lease,
            _open: open,
        }
    }

    /// Sends the rest of the request, and reads the head of the response. `None` after the time-out.
    /// Notes in `is_owed` if it waits for the client.
    pub(super) fn poll_response(
        &mut self,
        cx: &mut Context<'_>,
        informational: Option<&InformationalQueue>,
        is_owed: &Cell<bool>,
    ) -> Poll<Option<Result<Response<()>, UpstreamErrorKind>>> {
        loop {
            match self.http.poll_response(cx) {
                Poll::Ready(Ok(response)) if is_informational(response.status()) => {
                    informational.inspect(|queue| queue.send(response));
                }
                Poll::Ready(response) => return Poll::Ready(Some(response)),
                Poll::Pending => break,
            }
        }
        // The time-out starts at the end of the request, or when the upstream takes no more of it.
        // The client's own time-outs bound the rest.
        let waits_for_client = self.http.waits_for_client();
        if self.has_written() || waits_for_client {
            self.idle_timer.reset();
        }
        is_owed.set(waits_for_client);
        if waits_for_client {
            Poll::Pending
        } else {
            self.idle_timer.poll_expired(cx).map(|()| None)
        }
    }

    /// Returns true if bytes were written since the last call.
    pub(in crate::upstream) fn has_written(&mut self) -> bool {
        let written = self.http.writer.written();
        mem::replace(&mut self.written, written) != written
    }
}
