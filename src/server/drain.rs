//! Shutdown of a server: it stops accepting, lets connections finish until a deadline, then drops
//! them.

use std::cell::Cell;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::coop::unconstrained;
use tokio::time::{Instant, sleep};

use crate::net::drain::{DrainStage, DrainWatcher};

/// How long a draining server keeps a quiet connection for a request that is already on its way.
pub(super) const DRAIN_GRACE: Duration = Duration::from_millis(500);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Serving,
    Draining { until: Instant, ports: Ports },
    Ended,
}

/// The listening sockets of a server that drains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ports {
    /// Open, so that no other process gets the ports. New clients wait in the kernel's queue.
    Held,
    Free,
}

/// Shuts a server down; clones share it.
#[derive(Clone, Debug)]
pub struct ShutdownHandle {
    stage: watch::Sender<Stage>,
}

impl ShutdownHandle {
    pub(super) fn new() -> Self {
        Self {
            stage: watch::Sender::new(Stage::Serving),
        }
    }

    /// Stops accepting, and lets connections finish within `deadline`. Accepted requests are
    /// served, responses say `Connection: close`, and HTTP/2 connections get GOAWAY. Returns at
    /// once. Does nothing if draining has begun.
    pub fn drain(&self, deadline: Duration) {
        self.begin(deadline, Ports::Free);
    }

    /// As [`drain`](Self::drain), but keeps the listening sockets open, and new clients in the
    /// kernel's queue, until [`free_ports`](Self::free_ports) or the deadline.
    pub fn drain_holding_ports(&self, deadline: Duration) {
        self.begin(deadline, Ports::Held);
    }

    /// Serves the clients in the kernel's queue, and closes the listening sockets of a server that
    /// drains. Returns at once.
    pub fn free_ports(&self) {
        self.stage.send_if_modified(|stage| match stage {
            Stage::Draining { ports, .. } => std::mem::replace(ports, Ports::Free) == Ports::Held,
            Stage::Serving | Stage::Ended => false,
        });
    }

    fn begin(&self, deadline: Duration, ports: Ports) {
        let until = Instant::now() + deadline;
        self.stage.send_if_modified(|stage| {
            let serving = *stage == Stage::Serving;
            if serving {
                *stage = Stage::Draining { until, ports };
            }
            serving
        });
    }

    /// Drops all connections as they are. Returns at once.
    pub fn abort(&self) {
        self.stage.send_replace(Stage::Ended);
    }

    pub(super) fn watch(&self) -> ShutdownWatcher {
        ShutdownWatcher {
            stage: self.stage.subscribe(),
        }
    }
}

/// A worker's view of its server's [`Stage`].
#[derive(Clone, Debug)]
pub(super) struct ShutdownWatcher {
    stage: watch::Receiver<Stage>,
}

impl ShutdownWatcher {
    /// Waits until the server drains. Returns the deadline for its connections.
    pub(super) async fn draining(&mut self) -> Instant {
        match self
            .stage
            .wait_for(|stage| *stage != Stage::Serving)
            .await
            .as_deref()
        {
            Ok(Stage::Draining { until, .. }) => *until,
            _ => Instant::now(),
        }
    }

    /// Waits until the server's ports are to be free.
    pub(super) async fn ports_freed(&mut self) {
        let is_free = |stage: &Stage| match stage {
            Stage::Draining { ports, .. } => *ports == Ports::Free,
            Stage::Serving => false,
            Stage::Ended => true,
        };
        // An error means that the server is gone.
        let _ = self.stage.wait_for(is_free).await;
    }

    /// Waits until the server no longer waits for connections.
    pub(super) async fn ended(&mut self) {
        // An error means that the server is gone, which ends it, too.
        let _ = self.stage.wait_for(|stage| *stage == Stage::Ended).await;
    }
}

/// Waits until the connections are to finish, and then [`DRAIN_GRACE`] for a request that was on its
/// way.
pub(super) async fn past_grace(mut closing: DrainWatcher) {
    closing.reached(DrainStage::Finish).await;
    sleep(DRAIN_GRACE).await;
}

/// Runs `serving` to its end, and sets `draining` when the connections are to finish. Returns `None`
/// when they are cut off. By reference: a future keeps room for each place that an argument passes
/// through.
pub(super) async fn until_drained<T>(
    mut serving: Pin<&mut impl Future<Output = T>>,
    closing: &DrainWatcher,
    draining: &Cell<bool>,
) -> Option<T> {
    let mut waiting = closing.clone();
    // Unconstrained: before the drain it is polled once, and must have registered the waker then.
    let mut drained = pin!(unconstrained(async {
        waiting.reached(DrainStage::Finish).await;
        draining.set(true);
        waiting.reached(DrainStage::Cut).await;
    }));
    let mut is_awaited = false;
    poll_fn(|cx| {
        loop {
            if let Poll::Ready(end) = serving.as_mut().poll(cx) {
                return Poll::Ready(Some(end));
            }
            let was_draining = draining.get();
            // Polled again only when it is ready: the registered task stays the same.
            if is_awaited && !was_draining && !closing.has_started() {
                return Poll::Pending;
            }
            is_awaited = true;
            if drained.as_mut().poll(cx).is_ready() {
                return Poll::Ready(None);
            }
            if was_draining == draining.get() {
                return Poll::Pending;
            }
        }
    })
    .await
}
