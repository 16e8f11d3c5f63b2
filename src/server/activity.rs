//! What a connection is waiting for, and how long it may: one lazy timer per connection.
//!
//! The I/O and the service only set flags here. After each turn the [`Watchdog`] derives from them whom
//! the connection waits for; only when that has changed does it read the clock, and only when the new
//! deadline is earlier than the armed one does it touch its timer. hyper's own head time-out is not
//! used: it runs from the end of the previous response, so that it could not tell a slow head from a
//! quiet keep-alive connection.

use std::{
    future::Future,
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering::Relaxed},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::time::{Instant, Sleep, sleep_until};

use super::Timeouts;

/// How long a client that has ended its side is given an answer that has not begun. It may have
/// half-closed or be gone: only writing to it would tell.
const HALF_CLOSE_GRACE: Duration = Duration::from_secs(1);

/// How long a quiet connection is kept when draining, for a request that is already on its way.
pub(super) const DRAIN_GRACE: Duration = Duration::from_millis(500);

/// Flags of one connection. All are set and read on the connection's own thread, one after another:
/// they are atomic only because an upgraded connection has to be `Send`.
#[derive(Debug, Default)]
pub(super) struct Activity {
    /// Whether this is HTTP/2, where bytes that arrive say nothing about requests.
    multiplexed: bool,
    /// Requests handed to the service whose response body is not at its end.
    in_flight: AtomicU32,
    /// Response bodies that have given a frame and were not asked again: the client is slow.
    owed: AtomicU32,
    /// Requests ever begun.
    begun: AtomicU32,
    /// Frames that response bodies ever gave.
    frames: AtomicU32,
    /// Writes that took something.
    writes: AtomicU32,
    /// What `writes` was when the client ended its side.
    writes_at_end: AtomicU32,
    /// Whether anything was ever received.
    received: AtomicBool,
    /// Whether bytes of a head arrived since the last request.
    mid_head: AtomicBool,
    /// Whether the last write found the socket full.
    blocked: AtomicBool,
    /// Whether the client ended its side while it waits for an answer.
    half_closed: AtomicBool,
    /// Whether the last request came with a body.
    had_body: AtomicBool,
    /// Whether the server is draining.
    closing: AtomicBool,
}

impl Activity {
    pub(super) fn http1() -> Self {
        Self::default()
    }

    pub(super) fn http2() -> Self {
        Self {
            multiplexed: true,
            ..Self::default()
        }
    }

    /// Notes that bytes arrived.
    pub(super) fn received(&self) {
        self.received.store(true, Relaxed);
        if self.in_flight.load(Relaxed) == 0 {
            self.mid_head.store(true, Relaxed);
        }
    }

    /// Notes the end of what the client sends; returns whether hyper should not hear of it yet,
    /// because it would take a client that has only half-closed for one that is gone.
    pub(super) fn ended(&self) -> bool {
        let hide = !self.multiplexed && self.in_flight.load(Relaxed) > 0;
        self.half_closed.store(hide, Relaxed);
        self.writes_at_end.store(self.writes.load(Relaxed), Relaxed);
        hide
    }

    /// Notes a write.
    pub(super) fn wrote(&self, result: &Poll<io::Result<usize>>) {
        self.flushed(result);
        if matches!(result, Poll::Ready(Ok(1..))) {
            self.writes.fetch_add(1, Relaxed);
        }
    }

    /// Notes a write, a flush or a shutdown.
    pub(super) fn flushed<T>(&self, result: &Poll<T>) {
        self.blocked.store(result.is_pending(), Relaxed);
    }

    /// Notes a request, until the guard is dropped.
    pub(super) fn begin(self: &Arc<Self>, has_body: bool) -> Exchange {
        self.in_flight.fetch_add(1, Relaxed);
        self.begun.fetch_add(1, Relaxed);
        self.mid_head.store(false, Relaxed);
        self.had_body.store(has_body, Relaxed);
        Exchange {
            activity: self.clone(),
            owed: false,
        }
    }

    /// Notes that the server drains.
    pub(super) fn close(&self) {
        self.closing.store(true, Relaxed);
    }

    /// Returns whether the next response has to say that it is the last.
    pub(super) fn is_last(&self) -> bool {
        !self.multiplexed && self.closing.load(Relaxed)
    }

    /// Returns whether the client may still be sending the last request's body.
    pub(super) fn may_have_unread_body(&self) -> bool {
        self.had_body.load(Relaxed)
    }

    fn wait(&self) -> Wait {
        let in_flight = self.in_flight.load(Relaxed);
        let begun = self.begun.load(Relaxed);
        let writes = self.writes.load(Relaxed);
        if self.blocked.load(Relaxed) {
            Wait::Reader { writes }
        } else if in_flight > 0 && self.owed.load(Relaxed) == in_flight {
            // Writes say nothing here: pings go out meanwhile.
            Wait::Window {
                frames: self.frames.load(Relaxed),
            }
        } else if in_flight > 0 {
            // A write that was taken since proves nothing yet, but the next one, or a reset, will tell.
            let untold = writes == self.writes_at_end.load(Relaxed);
            match self.half_closed.load(Relaxed) && untold {
                true => Wait::Gone,
                false => Wait::Service,
            }
        } else if self.half_closed.load(Relaxed) {
            Wait::Nothing
        } else if !self.received.load(Relaxed) {
            Wait::FirstByte
        } else if self.mid_head.load(Relaxed) && !self.multiplexed {
            Wait::Head { begun }
        } else {
            Wait::NextRequest { begun }
        }
    }

    fn limit(&self, wait: Wait, timeouts: &Timeouts) -> Option<Duration> {
        let closing = self.closing.load(Relaxed);
        match wait {
            Wait::FirstByte | Wait::NextRequest { .. } if closing => Some(DRAIN_GRACE),
            Wait::FirstByte | Wait::Head { .. } => Some(timeouts.head),
            Wait::NextRequest { .. } => Some(timeouts.idle),
            Wait::Reader { .. } | Wait::Window { .. } => Some(timeouts.body),
            Wait::Gone => Some(HALF_CLOSE_GRACE),
            Wait::Nothing => Some(Duration::ZERO),
            Wait::Service => None,
        }
    }
}

/// Whom a connection waits for. The numbers change with progress, which starts the time anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    /// For a client that has just connected.
    FirstByte,
    /// For the rest of a head.
    Head { begun: u32 },
    /// For a client that has its answer.
    NextRequest { begun: u32 },
    /// For a client to read what it asked for.
    Reader { writes: u32 },
    /// For a client to open a window for what it asked for (RFC 9113 section 5.2).
    Window { frames: u32 },
    /// For an answer, with a client that may be gone.
    Gone,
    /// For an answer: not bounded here.
    Service,
    /// The client ended its side and has all its answers.
    Nothing,
}

/// One request, from its head to the end of its response's body.
#[derive(Debug)]
pub(super) struct Exchange {
    activity: Arc<Activity>,
    owed: bool,
}

impl Exchange {
    /// Returns whether the response has to say that it is the last on this connection.
    pub(super) fn is_last(&self) -> bool {
        self.activity.is_last()
    }

    /// Notes that the body gave a frame, and now waits for the client to take it.
    pub(super) fn gave_frame(&mut self) {
        if !self.owed {
            self.owed = true;
            self.activity.owed.fetch_add(1, Relaxed);
            self.activity.frames.fetch_add(1, Relaxed);
        }
    }

    /// Notes that the body is asked for more.
    pub(super) fn asked(&mut self) {
        if self.owed {
            self.owed = false;
            self.activity.owed.fetch_sub(1, Relaxed);
        }
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.asked();
        self.activity.in_flight.fetch_sub(1, Relaxed);
    }
}

/// Ends when a connection has waited for its client too long, with what it waited for.
///
/// Has to be polled after each turn of the connection, in the same task.
#[derive(Debug)]
pub(super) struct Watchdog {
    activity: Arc<Activity>,
    timeouts: Timeouts,
    wait: Wait,
    closing: bool,
    deadline: Option<Instant>,
    timer: Pin<Box<Sleep>>,
}

impl Watchdog {
    pub(super) fn new(activity: Arc<Activity>, timeouts: Timeouts) -> Self {
        let deadline = Instant::now() + timeouts.head;
        Self {
            activity,
            timeouts,
            wait: Wait::FirstByte,
            closing: false,
            deadline: Some(deadline),
            timer: Box::pin(sleep_until(deadline)),
        }
    }

    /// Follows what the connection waits for now.
    fn update(&mut self) {
        let wait = self.activity.wait();
        let closing = self.activity.closing.load(Relaxed);
        if wait == self.wait && closing == self.closing {
            return;
        }
        (self.wait, self.closing) = (wait, closing);
        let limit = self.activity.limit(wait, &self.timeouts);
        self.deadline = limit.map(|limit| Instant::now() + limit);
        if let Some(deadline) = self.deadline
            && deadline < self.timer.deadline()
        {
            self.timer.as_mut().reset(deadline);
        }
    }
}

impl Future for Watchdog {
    type Output = Wait;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Wait> {
        self.update();
        loop {
            ready!(self.timer.as_mut().poll(cx));
            let now = Instant::now();
            let next = match self.deadline {
                Some(deadline) if deadline <= now => return Poll::Ready(self.wait),
                Some(deadline) => deadline,
                None => now + self.timeouts.longest(),
            };
            self.timer.as_mut().reset(next);
        }
    }
}
