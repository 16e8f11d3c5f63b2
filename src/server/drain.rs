//! Shutdown of a server: it stops accepting, lets connections finish until a deadline, then drops
//! them.

use std::cell::Cell;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Poll, ready};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::coop::unconstrained;
use tokio::time::{Instant, sleep};

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

/// What connections and acceptors of one worker are to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Drain {
    Serve,
    /// Finish; acceptors keep their sockets.
    Finish,
    /// Finish, and close the sockets.
    Close,
}

/// Tells one worker's connections and acceptors to close, and waits for all of them.
#[derive(Debug)]
pub(super) struct DrainController(watch::Sender<Drain>);

impl DrainController {
    pub(super) fn new() -> (Self, DrainWatcher) {
        let (sender, receiver) = watch::channel(Drain::Serve);
        (Self(sender), DrainWatcher(receiver))
    }

    /// Tells every holder of a [`DrainWatcher`] to finish, and acceptors to keep their sockets.
    pub(super) fn finish(&self) {
        self.0.send_replace(Drain::Finish);
    }

    /// Tells every holder of a [`DrainWatcher`] to finish, and acceptors to close their sockets.
    pub(super) fn close(&self) {
        self.0.send_replace(Drain::Close);
    }

    /// Waits until every [`DrainWatcher`] is dropped.
    pub(super) async fn closed(&self) {
        self.0.closed().await;
    }
}

/// Held by all tasks that a worker waits for when it drains. It is local to a worker: connections
/// that read it share no cache line between cores.
#[derive(Clone, Debug)]
pub(super) struct DrainWatcher(watch::Receiver<Drain>);

impl DrainWatcher {
    /// Returns true if the worker drains; false again on a watcher that has waited for it. Takes no
    /// lock, since it is called for each request.
    fn has_started(&self) -> bool {
        self.0.has_changed().unwrap_or(true)
    }

    /// Waits until the worker drains.
    pub(super) async fn started(&mut self) {
        // A worker that is gone drains, too.
        let _ = self.0.wait_for(|drain| *drain != Drain::Serve).await;
    }

    /// Waits until the listening socket is to be closed.
    pub(super) async fn socket_unwanted(&mut self) {
        let _ = self.0.wait_for(|drain| *drain == Drain::Close).await;
    }

    /// Waits until the worker drains, and then [`DRAIN_GRACE`] for a request that was on its way.
    pub(super) async fn past_grace(&mut self) {
        self.started().await;
        sleep(DRAIN_GRACE).await;
    }
}

/// Runs `serving` to its end, and sets `draining` when the worker drains. By reference: a future
/// keeps room for each place that an argument passes through.
pub(super) async fn until_drained<T>(
    mut serving: Pin<&mut impl Future<Output = T>>,
    closing: &DrainWatcher,
    draining: &Cell<bool>,
) -> T {
    let mut waiting = closing.clone();
    // Unconstrained: it is polled once, and must have registered the waker then.
    let mut started = pin!(unconstrained(waiting.started()));
    let mut is_awaited = false;
    poll_fn(|cx| {
        loop {
            if let Poll::Ready(end) = serving.as_mut().poll(cx) {
                return Poll::Ready(end);
            }
            // Polled again only when it is ready: the registered task stays the same.
            if draining.get() || (is_awaited && !closing.has_started()) {
                return Poll::Pending;
            }
            is_awaited = true;
            ready!(started.as_mut().poll(cx));
            draining.set(true);
        }
    })
    .await
}
