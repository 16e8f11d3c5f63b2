//! Finds clients that are gone: pings on a silent connection (RFC 9113 section 6.7).

use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use h2::{Ping, PingPong};

use crate::net::idle_timer::IdleTimer;

/// The least silence before a ping. It may last twice as long.
const PING_EVERY: Duration = Duration::from_secs(30);

/// The longest wait for any byte after it.
const PING_TIMEOUT: Duration = Duration::from_secs(20);

/// The pings of a connection, with a timer that no read touches.
#[derive(Debug)]
pub(super) struct PingTimer {
    pings: PingPong,
    timer: IdleTimer,
    /// The reads up to the timer's start.
    reads: u32,
    is_pinged: bool,
}

impl PingTimer {
    pub(super) fn new(pings: PingPong) -> Self {
        PingTimer {
            pings,
            timer: IdleTimer::new(PING_EVERY),
            reads: 0,
            is_pinged: false,
        }
    }

    /// Becomes ready when a client has not answered in time. `reads` counts what came from it.
    pub(super) fn poll_gone(&mut self, reads: u32, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            ready!(self.timer.poll_expired(cx));
            let is_silent = std::mem::replace(&mut self.reads, reads) == reads;
            if is_silent && self.is_pinged {
                return Poll::Ready(());
            }
            // Takes the answer to the last ping, without which there can't be another.
            let _ = self
                .pings
                .poll_pong(&mut Context::from_waker(Waker::noop()));
            self.is_pinged = is_silent && self.pings.send_ping(Ping::opaque()).is_ok();
            self.timer.reset_to(if self.is_pinged {
                PING_TIMEOUT
            } else {
                PING_EVERY
            });
        }
    }
}
