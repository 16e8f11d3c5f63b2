//! Tracks what an HTTP/2 connection waits for.
//!
//! The I/O and the service only set flags here. After each turn the [`Watchdog`] derives from them
//! what the connection waits for. It reads the clock only when that has changed.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::StatusCode;
use tokio::time::Instant;

use crate::http::http2::FrameTracker;
use crate::net::idle_timer::IdleTimer;
use crate::server::drain::DRAIN_GRACE;
use crate::server::spec::Timeouts;

/// A request that its client cancels in less time counts towards a flood.
const EARLY: Duration = Duration::from_secs(1);

/// The most requests that a client cancels so early, unless they are less than half of all. Envoy has
/// the same rule with 250, to which a server's connection must not come near.
const EARLY_CANCELS: u32 = 100;
/// The same for a proxy, whose connections carry many clients: one of them must not end the others'
/// requests.
const EARLY_CANCELS_OF_PROXIES: u32 = 10_000;

/// Flags of one connection.
#[derive(Debug, Default)]
pub(super) struct Activity {
    /// Requests of the service whose response body has not ended.
    pub(super) in_flight: Cell<u32>,
    /// Requests since the connection began.
    pub(super) begun: Cell<u32>,
    /// Requests that the client cancelled early.
    cancelled: Cell<u32>,
    /// Reads from the client. Wraps around.
    pub(super) reads: Cell<u32>,
    /// Writes that took at least a byte.
    writes: Cell<u32>,
    /// Writes that found the socket full. Wraps around.
    fills: Cell<u32>,
    /// Streams whose bodies have waited for the client, and how often each got a wider window since.
    windows: RefCell<Vec<(u32, u32)>>,
    /// The status of the last response, until it is taken.
    pub(super) status: Cell<Option<StatusCode>>,
    /// A response was no 429.
    pub(super) was_served: Cell<bool>,
    /// The client's preface was received.
    received: Cell<bool>,
    /// The number of the header block, or of the frame's head, that is incomplete.
    header_block: Cell<Option<u32>>,
    /// The last write found the socket full.
    blocked: Cell<bool>,
    /// The client floods the connection with frames.
    pub(super) flooded: Cell<bool>,
    /// The server drains.
    pub(super) closing: Cell<bool>,
    /// The connection may carry many clients, as that of a trusted proxy.
    pub(super) is_of_proxy: Cell<bool>,
}

impl Activity {
    /// Notes the progress of the client's frames.
    pub(super) fn received(&self, frames: &FrameTracker) {
        add(&self.reads, 1);
        self.received.set(frames.has_preface());
        self.header_block.set(frames.open());
    }

    fn cancelled_early(&self) {
        add(&self.cancelled, 1);
        let cancelled = self.cancelled.get();
        let most = if self.is_of_proxy.get() {
            EARLY_CANCELS_OF_PROXIES
        } else {
            EARLY_CANCELS
        };
        if cancelled >= most && cancelled >= self.begun.get() / 2 {
            self.flooded.set(true);
        }
    }

    /// Notes a write.
    pub(super) fn wrote(&self, result: &Poll<std::io::Result<usize>>) {
        self.flushed(result.is_pending());
        if matches!(result, Poll::Ready(Ok(1..))) {
            add(&self.writes, 1);
        }
    }

    /// Notes a write, a flush or a shutdown, which waits for the client or not.
    pub(super) fn flushed(&self, is_pending: bool) {
        if is_pending && !self.blocked.get() {
            add(&self.fills, 1);
        }
        self.blocked.set(is_pending);
    }

    /// Notes that the client has widened the window of a stream.
    pub(super) fn widened(&self, stream: u32) {
        let mut windows = self.windows.borrow_mut();
        if let Some((_, widened)) = windows.iter_mut().find(|(number, _)| *number == stream) {
            *widened = widened.wrapping_add(1);
        }
    }

    /// Counts the wider windows of a stream from now on.
    pub(super) fn watch(&self, stream: u32) {
        self.windows.borrow_mut().push((stream, 0));
    }

    /// Forgets a stream.
    pub(super) fn unwatch(&self, stream: u32) {
        self.windows
            .borrow_mut()
            .retain(|(number, _)| *number != stream);
    }

    /// The progress of a watched stream, whose body has yielded this number of frames.
    pub(super) fn progress(&self, stream: u32, frames: u32) -> StreamProgress {
        let windows = self.windows.borrow();
        let widened = windows.iter().find(|(number, _)| *number == stream);
        StreamProgress {
            frames,
            widened: widened.map_or(0, |(_, widened)| *widened),
            fills: self.fills.get(),
        }
    }

    /// Notes a request, until the guard is dropped.
    pub(super) fn begin(self: &Rc<Self>) -> ExchangeGuard {
        add(&self.in_flight, 1);
        add(&self.begun, 1);
        ExchangeGuard {
            activity: self.clone(),
            begun: Instant::now(),
            has_ended: false,
        }
    }

    /// Notes a response.
    pub(super) fn respond(&self, status: StatusCode) {
        self.status.set(Some(status));
        if status != StatusCode::TOO_MANY_REQUESTS {
            self.was_served.set(true);
        }
    }

    fn wait(&self) -> Wait {
        let (in_flight, begun) = (self.in_flight.get(), self.begun.get());
        if self.blocked.get() {
            Wait::Reader {
                writes: self.writes.get(),
            }
        } else if in_flight > 0 {
            Wait::Service
        } else if begun > 0 {
            Wait::NextRequest { begun }
        } else if self.received.get() {
            Wait::FirstRequest
        } else {
            Wait::Preface
        }
    }
}

/// The signs that a client takes a response: further frames of the body, a wider window, or a socket
/// that was full of this response or others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StreamProgress {
    frames: u32,
    widened: u32,
    fills: u32,
}

fn add(counter: &Cell<u32>, more: u32) {
    counter.set(counter.get().wrapping_add(more));
}

/// The wait that took too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Overdue {
    /// The current wait of the connection.
    Wait(Wait),
    /// The whole connection: it ends after the requests in flight.
    Age,
    /// An incomplete header block or frame's head, whatever else goes on.
    HeaderBlock,
}

/// The event that a connection waits for. The numbers change with progress, which restarts the
/// timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    /// The preface of a client that has just connected.
    Preface,
    /// The first request after the preface.
    FirstRequest,
    /// The next request of a client that has its responses.
    NextRequest { begun: u32 },
    /// The client, to read its responses.
    Reader { writes: u32 },
    /// The service, or the client to open the flow-control window of a response (RFC 9113 section
    /// 5.2); not bounded here.
    Service,
}

/// One request, from its head to the end of its response's body.
#[derive(Debug)]
pub(super) struct ExchangeGuard {
    pub(super) activity: Rc<Activity>,
    begun: Instant,
    has_ended: bool,
}

impl ExchangeGuard {
    /// Notes the end of the response: what follows is not cancelled.
    pub(super) fn finish(&mut self) {
        self.has_ended = true;
    }
}

impl Drop for ExchangeGuard {
    fn drop(&mut self) {
        add(&self.activity.in_flight, u32::MAX);
        if !self.has_ended && self.begun.elapsed() < EARLY {
            self.activity.cancelled_early();
        }
    }
}

/// Becomes ready when a connection has waited for its client too long. May be polled again
/// afterwards, for an idle connection that now drains.
///
/// Has to be polled after each turn of the connection, in the same task.
#[derive(Debug)]
pub(super) struct Watchdog {
    activity: Rc<Activity>,
    timeouts: Timeouts,
    wait: Wait,
    closing: bool,
    wait_timer: IdleTimer,
    /// The deadline for the first request, whatever comes before it.
    first_head: Instant,
    /// The incomplete header block or frame's head.
    header_block: Option<u32>,
    /// Apart from that of `wait`: other progress does not extend it.
    block_timer: IdleTimer,
    /// The end of the connection's time, until it is reported.
    age_timer: Option<IdleTimer>,
}

impl Watchdog {
    /// A watchdog for a connection whose first request is due at `first_head`, and which ends after
    /// `expires`.
    pub(super) fn new(
        activity: Rc<Activity>,
        timeouts: Timeouts,
        first_head: Instant,
        expires: Instant,
    ) -> Self {
        Self {
            activity,
            timeouts,
            wait: Wait::Preface,
            closing: false,
            wait_timer: IdleTimer::until(first_head, timeouts.head),
            first_head,
            header_block: None,
            block_timer: IdleTimer::new(timeouts.head),
            age_timer: Some(IdleTimer::until(expires, Duration::ZERO)),
        }
    }

    /// Becomes ready when a header block or a frame's head has been incomplete for too long.
    fn poll_header_block(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let block = self.activity.header_block.get();
        if block != self.header_block {
            self.header_block = block;
            self.block_timer.reset();
            if self.activity.begun.get() == 0 {
                let deadline = Instant::now() + self.timeouts.head;
                self.block_timer.reset_until(deadline.min(self.first_head));
            }
        }
        if block.is_none() {
            return Poll::Pending;
        }
        self.block_timer.poll_expired(cx)
    }

    /// Becomes ready when the current wait has been too long.
    fn poll_wait(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let (wait, closing) = (self.activity.wait(), self.activity.closing.get());
        if (wait, closing) != (self.wait, self.closing) {
            (self.wait, self.closing) = (wait, closing);
            match wait {
                Wait::Preface | Wait::FirstRequest | Wait::NextRequest { .. } if closing => {
                    self.wait_timer.reset_to(DRAIN_GRACE);
                }
                Wait::Preface | Wait::FirstRequest => self.wait_timer.reset_until(self.first_head),
                Wait::NextRequest { .. } => self.wait_timer.reset_to(self.timeouts.idle),
                Wait::Reader { .. } => self.wait_timer.reset_to(self.timeouts.body),
                Wait::Service => {}
            }
        }
        if wait == Wait::Service {
            return Poll::Pending;
        }
        self.wait_timer.poll_expired(cx)
    }
}

impl Future for Watchdog {
    type Output = Overdue;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Overdue> {
        if self.poll_header_block(cx).is_ready() {
            return Poll::Ready(Overdue::HeaderBlock);
        }
        if self.poll_wait(cx).is_ready() {
            return Poll::Ready(Overdue::Wait(self.wait));
        }
        let Some(age) = &mut self.age_timer else {
            return Poll::Pending;
        };
        ready!(age.poll_expired(cx));
        self.age_timer = None;
        Poll::Ready(Overdue::Age)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of requests, all cancelled, after which the connection ends.
    fn most_cancelled(is_of_proxy: bool) -> u32 {
        let activity = Activity::default();
        activity.is_of_proxy.set(is_of_proxy);
        let cancels = |_: &u32| {
            add(&activity.begun, 1);
            activity.cancelled_early();
            activity.flooded.get()
        };
        (1..1_000_000).find(cancels).expect("it ends")
    }

    #[test]
    fn one_client_of_a_proxy_does_not_end_its_connection() {
        assert_eq!(most_cancelled(false), EARLY_CANCELS);
        assert_eq!(most_cancelled(true), EARLY_CANCELS_OF_PROXIES);
    }
}
