//! The drain of connections, from the first word to their end.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

/// How long before the deadline the requests that still wait are answered.
const LAST_ANSWERS: Duration = Duration::from_millis(300);

/// The stages of a drain, each after those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum DrainStage {
    Serve,
    /// Finish; acceptors keep their sockets.
    Finish,
    /// Finish; acceptors serve the clients in the kernel's queue, and close their sockets.
    Close,
    /// Requests that wait are answered at once.
    Answer,
    /// Connections end as they are.
    Cut,
    /// For acceptors alone, and the last, so that it stays: they close their sockets, and leave the
    /// clients in the kernel's queue to another process that has the same sockets.
    Leave,
}

/// Tells the connections or acceptors of one worker to close, and waits for all of them. Clones are
/// one.
#[derive(Clone, Debug)]
pub(crate) struct DrainController(watch::Sender<DrainStage>);

impl DrainController {
    pub(crate) fn new() -> (Self, DrainWatcher) {
        let (sender, receiver) = watch::channel(DrainStage::Serve);
        (Self(sender), DrainWatcher(receiver))
    }

    /// Begins this stage, unless a later one has begun.
    pub(crate) fn begin(&self, stage: DrainStage) {
        self.0.send_if_modified(|current| {
            let is_later = *current < stage;
            if is_later {
                *current = stage;
            }
            is_later
        });
    }

    /// Has waiting requests answered just before `deadline`, and cuts off what is left then. Returns
    /// true if something was.
    pub(crate) async fn end_by(&self, deadline: Instant) -> bool {
        let left = deadline.saturating_duration_since(Instant::now());
        let answers = deadline - LAST_ANSWERS.min(left / 4);
        for (stage, instant) in [(DrainStage::Answer, answers), (DrainStage::Cut, deadline)] {
            tokio::select! {
                () = self.closed() => return false,
                () = sleep_until(instant) => self.begin(stage),
            }
        }
        true
    }

    /// Waits until every [`DrainWatcher`] is dropped.
    pub(crate) async fn closed(&self) {
        self.0.closed().await;
    }

    /// Returns true once every [`DrainWatcher`] is dropped.
    pub(crate) fn is_closed(&self) -> bool {
        self.0.is_closed()
    }
}

/// Held by all tasks that a worker waits for when they drain. It is local to a worker: connections
/// that read it share no cache line between cores.
#[derive(Clone, Debug)]
pub struct DrainWatcher(watch::Receiver<DrainStage>);

impl DrainWatcher {
    /// Returns true if the drain has begun; false again on a watcher that has waited for it. Takes
    /// no lock, since it is called for each request.
    pub(crate) fn has_started(&self) -> bool {
        self.0.has_changed().unwrap_or(true)
    }

    /// Returns true once this stage has begun, or its controller is gone, on a watcher that has not
    /// waited. Takes a lock only while it drains.
    pub(crate) fn has_reached(&self, stage: DrainStage) -> bool {
        self.0.has_changed().is_err() || self.has_started() && *self.0.borrow() >= stage
    }

    /// The present stage.
    pub(crate) fn stage(&self) -> DrainStage {
        *self.0.borrow()
    }

    /// Waits until this stage begins. Without its controller everything is over.
    pub(crate) async fn reached(&mut self, stage: DrainStage) {
        let _ = self.0.wait_for(|current| *current >= stage).await;
    }
}

/// The watcher of a connection that nothing drains, as in tests.
impl Default for DrainWatcher {
    fn default() -> Self {
        DrainController::new().1
    }
}
