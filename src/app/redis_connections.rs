//! Connections to the Redis store of a ruleset: made by every worker before requests are decided by it.

use std::ops::Range;
use std::sync::Arc;

use tokio::sync::watch;
use tokio::time::timeout;

use crate::proxy::Ruleset;
use crate::store::redis::Store;
use crate::store::redis::client::State;

/// The connections of the workers. Clones are one.
#[derive(Clone, Debug)]
pub(super) struct RedisConnections {
    wanted: watch::Sender<Option<ConnectTarget>>,
    workers: usize,
}

/// A store, and the workers that connect to it.
#[derive(Clone, Debug)]
struct ConnectTarget {
    store: Arc<Store>,
    workers: Range<usize>,
}

impl RedisConnections {
    /// Nothing to connect to, for so many workers; the thread that synchronises counts as one more.
    pub(super) fn new(workers: usize) -> Self {
        Self {
            wanted: watch::Sender::default(),
            workers,
        }
    }

    /// Connects a worker to every store that is wanted, until the process ends; to be spawned on the worker's runtime.
    pub(super) fn keep(&self, worker: usize) -> impl Future<Output = ()> + use<> {
        let mut wanted = self.wanted.subscribe();
        async move {
            loop {
                if let Some(wanted) = &*wanted.borrow_and_update()
                    && wanted.workers.contains(&worker)
                {
                    wanted.store.start(worker);
                }
                if wanted.changed().await.is_err() {
                    return;
                }
            }
        }
    }

    /// Has the workers connect to the store of this ruleset, which is going to run.
    pub(super) fn begin(&self, ruleset: &Ruleset) {
        ruleset.load_scripts();
        self.wanted.send_replace(self.wanted(ruleset));
    }

    /// Has the workers connect to the store of this ruleset, which is going to take the place of `running`, and waits until
    /// they have, or for its startup timeout. A store that runs already is not waited for while it is down.
    pub(super) async fn connect(&self, ruleset: &Ruleset, running: &Ruleset) {
        self.begin(ruleset);
        let Some(ConnectTarget { store, workers }) = self.wanted(ruleset) else {
            return;
        };
        let running = running.store.redis();
        let is_running = running.is_some_and(|running| Arc::ptr_eq(running, &store));
        if is_running && matches!(store.client().state(), State::Down { .. }) {
            return;
        }
        wait(ruleset, &store, store.client().connected(workers)).await;
    }

    /// Waits until the store of a ruleset that runs is connected and has been heard, or for its startup timeout.
    pub(super) async fn ready(&self, ruleset: &Ruleset) {
        let Some(ConnectTarget { store, workers }) = self.wanted(ruleset) else {
            return;
        };
        let ready = async {
            store.client().connected(workers).await;
            // Also without synchronised buckets, machines share what operators do to keys.
            store.first_round().await;
        };
        wait(ruleset, &store, ready).await;
    }

    /// The thread that synchronises connects to every store, workers only to one that requests ask.
    fn wanted(&self, ruleset: &Ruleset) -> Option<ConnectTarget> {
        let store = Arc::clone(ruleset.store.redis()?);
        let first = match (ruleset.has_redis_policies, ruleset.is_synchronised()) {
            (true, _) => 0,
            (false, true) => self.workers,
            (false, false) => return None,
        };
        let workers = first..self.workers + 1;
        Some(ConnectTarget { store, workers })
    }
}

async fn wait(ruleset: &Ruleset, store: &Store, ready: impl Future<Output = ()>) {
    let startup_timeout = ruleset.startup_timeout;
    if timeout(startup_timeout, ready).await.is_ok() {
        return;
    }
    match store.client().state() {
        // Why it is down was logged when that was found.
        State::Down { .. } => {
            tracing::info!(?startup_timeout, "{NOT_CONNECTED}");
        }
        state @ (State::Starting | State::Up) => {
            tracing::warn!(?startup_timeout, %state, "{NOT_CONNECTED}");
        }
    }
}

const NOT_CONNECTED: &str = "Redis is not connected in time: on_store_error decides until it is";
