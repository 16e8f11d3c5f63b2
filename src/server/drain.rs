//! Shutdown of a server: it stops accepting, lets connections finish until a deadline, then drops
//! them.

use std::cell::Cell;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use std::time::Duration;

use tokio::task::coop::unconstrained;
use tokio::time::{Instant, sleep};

use crate::net::drain::{DrainController, DrainStage, DrainWatcher};

/// How long a draining server keeps a quiet connection for a request that is already on its way.
pub(super) const DRAIN_GRACE: Duration = Duration::from_millis(500);

/// Shuts a server down; clones share it.
#[derive(Clone, Debug)]
pub struct ShutdownHandle {
    stage: DrainController,
    /// A worker's view of it.
    pub(super) watcher: ShutdownWatcher,
}

/// A worker's view of the end of its server.
#[derive(Clone, Debug)]
pub(super) struct ShutdownWatcher {
    pub(super) stage: DrainWatcher,
    /// The deadline for its connections, once it drains.
    until: Arc<OnceLock<Instant>>,
}

impl ShutdownHandle {
    pub(super) fn new() -> Self {
        let (controller, stage) = DrainController::new();
        let until = Arc::default();
        Self {
            stage: controller,
            watcher: ShutdownWatcher { stage, until },
        }
    }

    /// Stops accepting, and lets connections finish within `deadline`. Accepted requests are
    /// served, responses say `Connection: close`, and HTTP/2 connections get GOAWAY. Returns at
    /// once. The deadline stays if draining has begun.
    pub fn drain(&self, deadline: Duration) {
        self.drain_holding_ports(deadline);
        self.free_ports();
    }

    /// As [`drain`](Self::drain), but keeps the listening sockets open, so that no other process gets
    /// the ports, and new clients in the kernel's queue, until [`free_ports`](Self::free_ports) or
    /// the deadline.
    pub fn drain_holding_ports(&self, deadline: Duration) {
        let until = &self.watcher.until;
        until.get_or_init(|| Instant::now() + deadline);
        self.stage.begin(DrainStage::Finish);
    }

    /// Serves the clients in the kernel's queue, and closes the listening sockets of a server that
    /// drains. Returns at once.
    pub fn free_ports(&self) {
        if self.watcher.until.get().is_some() {
            self.stage.begin(DrainStage::Close);
        }
    }

    /// Drops all connections as they are. Returns at once.
    pub fn abort(&self) {
        self.stage.begin(DrainStage::Cut);
    }
}

impl ShutdownWatcher {
    /// Waits until the server drains. Returns the deadline for its connections.
    pub(super) async fn draining(&mut self) -> Instant {
        self.stage.reached(DrainStage::Finish).await;
        self.until.get().copied().unwrap_or_else(Instant::now)
    }
}

/// Waits until the connections are to finish, and then [`DRAIN_GRACE`] for a request that was on its
/// way.
pub(super) async fn past_grace(mut closing: DrainWatcher) {
    closing.reached(DrainStage::Finish).await;
    sleep(DRAIN_GRACE).await;
}

/// Runs `serving` to its end, and sets `draining` when the connections are to finish. Returns `None`
/// when they are cut off. `serving` is polled at each stage: a request that waits is answered then. By
/// reference: a future keeps room for each place that an argument passes
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
