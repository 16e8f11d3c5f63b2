//! What an HTTP/2 connection is waiting for, and how long it may: one lazy timer per connection.
//!
//! The I/O and the service only set flags here. After each turn the [`Watchdog`] derives from them whom
//! the connection waits for; only when that has changed does it read the clock, and only when the new
//! deadline is earlier than the armed one does it touch its timer.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use tokio::time::{Instant, Sleep, sleep_until};

use super::header_blocks::HeaderBlocks;
use crate::server::Timeouts;
use crate::server::drain::DRAIN_GRACE;

/// Flags of one connection.
#[derive(Debug, Default)]
pub(super) struct Activity {
    /// Requests handed to the service whose response body is not at its end.
    in_flight: Cell<u32>,
    /// Response bodies that have given a frame and were not asked again: the client is slow.
    owed: Cell<u32>,
    /// Requests ever begun.
    begun: Cell<u32>,
    /// Frames that response bodies ever gave.
    frames: Cell<u32>,
    /// Writes that took something.
    writes: Cell<u32>,
    /// Whether the client's preface was received.
    received: Cell<bool>,
    /// The number of the header block, or of the frame's head, that has begun and has not ended.
    header_block: Cell<Option<u32>>,
    /// Whether the last write found the socket full.
    blocked: Cell<bool>,
    /// Whether the server is draining.
    closing: Cell<bool>,
}

impl Activity {
    /// Notes how far the client has come.
    pub(super) fn received(&self, blocks: &HeaderBlocks) {
        self.received.set(blocks.has_preface());
        self.header_block.set(blocks.open());
    }

    /// Notes a write.
    pub(super) fn wrote(&self, result: &Poll<std::io::Result<usize>>) {
        self.flushed(result);
        if matches!(result, Poll::Ready(Ok(1..))) {
            add(&self.writes, 1);
        }
    }

    /// Notes a write, a flush or a shutdown.
    pub(super) fn flushed<T>(&self, result: &Poll<T>) {
        self.blocked.set(result.is_pending());
    }

    /// Notes a request, until the guard is dropped.
    pub(super) fn begin(self: &Rc<Self>) -> Exchange {
        add(&self.in_flight, 1);
        add(&self.begun, 1);
        Exchange {
            activity: self.clone(),
            owed: false,
        }
    }

    /// Notes that the server drains.
    pub(super) fn close(&self) {
        self.closing.set(true);
    }

    fn wait(&self) -> Wait {
        let (in_flight, begun) = (self.in_flight.get(), self.begun.get());
        if self.blocked.get() {
            Wait::Reader {
                writes: self.writes.get(),
            }
        } else if in_flight > 0 && self.owed.get() == in_flight {
            // Writes say nothing here: pings go out meanwhile.
            Wait::Window {
                frames: self.frames.get(),
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

fn add(counter: &Cell<u32>, more: u32) {
    counter.set(counter.get().wrapping_add(more));
}

/// Why a connection has waited too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Overdue {
    /// For what the connection waits for.
    Wait(Wait),
    /// For the end of a header block or of a frame's head, whatever else goes on.
    HeaderBlock,
}

/// Whom a connection waits for. The numbers change with progress, which starts the time anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    /// For the preface of a client that has just connected.
    Preface,
    /// For the first request of a client whose preface is there.
    FirstRequest,
    /// For a client that has its answers.
    NextRequest { begun: u32 },
    /// For a client to read what it asked for.
    Reader { writes: u32 },
    /// For a client to open a window for what it asked for (RFC 9113 section 5.2).
    Window { frames: u32 },
    /// For an answer: not bounded here.
    Service,
}

/// One request, from its head to the end of its response's body.
#[derive(Debug)]
pub(super) struct Exchange {
    activity: Rc<Activity>,
    owed: bool,
}

impl Exchange {
    /// Notes that the body gave a frame, and now waits for the client to take it.
    pub(super) fn gave_frame(&mut self) {
        if !self.owed {
            self.owed = true;
            add(&self.activity.owed, 1);
            add(&self.activity.frames, 1);
        }
    }

    /// Notes that the body is asked for more.
    pub(super) fn polled(&mut self) {
        if self.owed {
            self.owed = false;
            add(&self.activity.owed, u32::MAX);
        }
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.polled();
        add(&self.activity.in_flight, u32::MAX);
    }
}

/// Ready when a connection has waited for its client too long, with what it waited for. May be asked again: for an
/// idle connection that is closing since.
///
/// Has to be polled after each turn of the connection, in the same task.
#[derive(Debug)]
pub(super) struct Watchdog {
    activity: Rc<Activity>,
    timeouts: Timeouts,
    wait: Wait,
    closing: bool,
    /// When the first request has to be there, whatever comes before it.
    first_head: Instant,
    deadline: Option<Instant>,
    /// The header block or the frame's head that is waited for, and until when. Apart from `wait`: what goes on beside it starts no new time.
    header_block: Option<(u32, Instant)>,
    timer: Pin<Box<Sleep>>,
}

impl Watchdog {
    /// A watchdog for a connection whose first request has to be there at `first_head`.
    pub(super) fn new(activity: Rc<Activity>, timeouts: Timeouts, first_head: Instant) -> Self {
        Self {
            activity,
            timeouts,
            wait: Wait::Preface,
            closing: false,
            first_head,
            deadline: Some(first_head),
            header_block: None,
            timer: Box::pin(sleep_until(first_head)),
        }
    }

    /// Follows what the connection waits for now.
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

    /// When a header block or a frame's head that begins now has to be whole.
    fn head_deadline(&self) -> Instant {
        let deadline = Instant::now() + self.timeouts.head;
        if self.activity.begun.get() == 0 {
            deadline.min(self.first_head)
        } else {
            deadline
        }
    }

    /// When a wait that begins now has been too long.
    fn deadline_of(&self, wait: Wait) -> Option<Instant> {
        let limit = match wait {
            Wait::Preface | Wait::FirstRequest | Wait::NextRequest { .. } if self.closing => {
                DRAIN_GRACE
            }
            Wait::Preface | Wait::FirstRequest => return Some(self.first_head),
            Wait::NextRequest { .. } => self.timeouts.idle,
            Wait::Reader { .. } | Wait::Window { .. } => self.timeouts.body,
            Wait::Service => return None,
        };
        Some(Instant::now() + limit)
    }

    /// What is too late first, and when.
    fn earliest(&self) -> Option<(Overdue, Instant)> {
        let wait = self.deadline.map(|at| (Overdue::Wait(self.wait), at));
        let block = self.header_block.map(|(_, at)| (Overdue::HeaderBlock, at));
        // The first of equals: a head that has begun is what is missing.
        block.into_iter().chain(wait).min_by_key(|(_, at)| *at)
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
                Some((late, deadline)) if deadline <= now => return Poll::Ready(late),
                Some((_, deadline)) => deadline,
                None => now + self.timeouts.longest(),
            };
            self.timer.as_mut().reset(next);
        }
    }
}
