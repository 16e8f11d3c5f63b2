//! How a server ends: it stops accepting, lets connections finish until a deadline, then drops them.

use std::cell::Cell;
use std::future::poll_fn;
use std::pin::pin;
use std::task::{Poll, ready};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::coop::unconstrained;
use tokio::time::{Instant, sleep};

/// How long a quiet connection is kept when draining, for a request that is already on its way.
pub(super) const DRAIN_GRACE: Duration = Duration::from_millis(500);

/// Where a server is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Serving,
    Draining { until: Instant },
    Ended,
}

/// Ends a server; clones end the same one.
#[derive(Clone, Debug)]
pub struct Shutdown {
    stage: watch::Sender<Stage>,
}

impl Shutdown {
    pub(super) fn new() -> Self {
        Self {
            stage: watch::Sender::new(Stage::Serving),
        }
    }

    /// Stops accepting, and lets connections finish within `deadline`: what is already accepted is
    /// served, responses say `Connection: close`, HTTP/2 connections get GOAWAY. Returns at once.
    /// Does nothing if draining has begun.
    pub fn drain(&self, deadline: Duration) {
        let until = Instant::now() + deadline;
        self.stage.send_if_modified(|stage| {
            let serving = *stage == Stage::Serving;
            if serving {
                *stage = Stage::Draining { until };
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

/// A worker's view of its server's life.
#[derive(Debug)]
pub(super) struct ShutdownWatcher {
    stage: watch::Receiver<Stage>,
}

impl ShutdownWatcher {
    /// Waits until the server drains; returns when connections have to be finished.
    pub(super) async fn draining(&mut self) -> Instant {
        match self
            .stage
            .wait_for(|stage| *stage != Stage::Serving)
            .await
            .as_deref()
        {
            Ok(Stage::Draining { until }) => *until,
            _ => Instant::now(),
        }
    }

    /// Waits until connections are not even waited for.
    pub(super) async fn ended(&mut self) {
        // An error means that nobody is left who could end it: the same.
        let _ = self.stage.wait_for(|stage| *stage == Stage::Ended).await;
    }
}

/// One worker's connections and acceptors: tells them to close, and knows when all have.
#[derive(Debug)]
pub(super) struct DrainController(watch::Sender<bool>);

impl DrainController {
    pub(super) fn new() -> (Self, DrainWatcher) {
        let (sender, receiver) = watch::channel(false);
        (Self(sender), DrainWatcher(receiver))
    }

    /// Tells every holder of a [`Closing`] to finish.
    pub(super) fn close(&self) {
        self.0.send_replace(true);
    }

    /// Waits until every [`Closing`] is dropped.
    pub(super) async fn closed(&self) {
        self.0.closed().await;
    }
}

/// Held by everything that a worker waits for when it drains. Local to a worker: no line of memory is
/// shared between cores when a connection looks at it.
#[derive(Clone, Debug)]
pub(super) struct DrainWatcher(watch::Receiver<bool>);

impl DrainWatcher {
    /// Whether the worker drains, which one that has waited for it no longer tells. Takes no lock: it is asked at each request.
    pub(super) fn has_started(&self) -> bool {
        self.0.has_changed().unwrap_or(true)
    }

    /// Waits until the worker drains.
    pub(super) async fn started(&mut self) {
        // A worker that is gone closes, too.
        let _ = self.0.wait_for(|closing| *closing).await;
    }

    /// Waits until the worker drains, and a request that was on its way has had time to arrive.
    pub(super) async fn past_grace(&mut self) {
        self.started().await;
        sleep(DRAIN_GRACE).await;
    }
}

/// Runs `serving` to its end; sets `draining` meanwhile when the worker drains.
pub(super) async fn until_drained<T>(
    serving: impl Future<Output = T>,
    closing: DrainWatcher,
    draining: &Cell<bool>,
) -> T {
    let mut waiting = closing.clone();
    // Unconstrained: it is asked once, and must have noted whom to wake then.
    let (mut serving, mut started) = (pin!(serving), pin!(unconstrained(waiting.started())));
    let mut is_awaited = false;
    poll_fn(|cx| {
        loop {
            if let Poll::Ready(end) = serving.as_mut().poll(cx) {
                return Poll::Ready(end);
            }
            // Asked again only when there is an answer: the task that is woken stays the same.
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
