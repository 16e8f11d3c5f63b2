//! Tracks what an HTTP/2 connection waits for, with one lazy timer per connection.
//!
//! The I/O and the service only set flags here. After each turn the [`Watchdog`] derives from them
//! what the connection waits for. It reads the clock only when that has changed, and touches its
//! timer only when the new deadline is earlier than the armed one.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::StatusCode;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::http::http2::FrameTracker;
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
    /// Notes the head of the response.
    pub(super) fn respond(&self, status: StatusCode) {
        self.activity.respond(status);
    }

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
    /// The deadline for the first request, whatever comes before it.
    first_head: Instant,
    deadline: Option<Instant>,
    /// The incomplete header block or frame's head, and its deadline. Apart from `wait`: other
    /// progress does not extend it.
    header_block: Option<(u32, Instant)>,
    /// The end of the connection's time, until it is reported.
    expires: Option<Instant>,
    timer: Pin<Box<Sleep>>,
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
            first_head,
            deadline: Some(first_head),
            header_block: None,
            expires: Some(expires),
            timer: Box::pin(sleep_until(first_head)),
        }
    }

    /// Updates the deadlines and the timer.
    fn update(&mut self) {
        let block = self.activity.header_block.get();
        if block != self.header_block.map(|(block, _)| block) {
            self.header_block = block.map(|block| (block, self.head_deadline()));
        }
        self.update_wait();
        if let Some((_, deadline)) = self.earliest()
            && deadline < self.timer.deadline()
        {
            self.timer.as_mut().reset(deadline);
        }
    }

    fn update_wait(&mut self) {
        let wait = self.activity.wait();
        let closing = self.activity.closing.get();
        if wait == self.wait && closing == self.closing {
            return;
        }
        (self.wait, self.closing) = (wait, closing);
        self.deadline = self.deadline_of(wait);
    }

    /// The deadline for a header block or a frame's head that begins now.
    fn head_deadline(&self) -> Instant {
        let deadline = Instant::now() + self.timeouts.head;
        if self.activity.begun.get() == 0 {
            deadline.min(self.first_head)
        } else {
            deadline
        }
    }

    /// The deadline of a wait that begins now.
    fn deadline_of(&self, wait: Wait) -> Option<Instant> {
        let limit = match wait {
            Wait::Preface | Wait::FirstRequest | Wait::NextRequest { .. } if self.closing => {
                DRAIN_GRACE
            }
            Wait::Preface | Wait::FirstRequest => return Some(self.first_head),
            Wait::NextRequest { .. } => self.timeouts.idle,
            Wait::Reader { .. } => self.timeouts.body,
            Wait::Service => return None,
        };
        Some(Instant::now() + limit)
    }

    /// The next deadline, and the wait that it ends.
    fn earliest(&self) -> Option<(Overdue, Instant)> {
        let wait = self.deadline.map(|at| (Overdue::Wait(self.wait), at));
        let block = self.header_block.map(|(_, at)| (Overdue::HeaderBlock, at));
        // `min_by_key` returns the first of equals: the incomplete head.
        let age = self.expires.map(|at| (Overdue::Age, at));
        let all = block.into_iter().chain(wait).chain(age);
        all.min_by_key(|(_, at)| *at)
    }
}

impl Future for Watchdog {
    type Output = Overdue;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Overdue> {
        self.update();
        loop {
            ready!(self.timer.as_mut().poll(cx));
            let now = Instant::now();
            let next = match self.earliest() {
                Some((late, deadline)) if deadline <= now => {
                    if late == Overdue::Age {
                        self.expires = None;
                    }
                    return Poll::Ready(late);
                }
                Some((_, deadline)) => deadline,
                None => now + self.timeouts.longest(),
            };
            self.timer.as_mut().reset(next);
        }
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
