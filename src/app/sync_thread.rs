//! Synchronises buckets with those of other machines, on a thread of its own: no worker is kept from its requests, what runs
//! survives reloads, and the last charges are told when no more are made.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::timeout;

use super::StartupError;
use super::redis_connections::RedisConnections;
use super::startup_error::runtime;
use crate::admin::state::AdminContext;
use crate::clock::Clock;
use crate::proxy::Gateway;

/// How long telling for the last time may take.
const LAST_ROUND_TIMEOUT: Duration = Duration::from_secs(3);

/// The thread that synchronises.
#[derive(Debug)]
pub(super) struct SyncThread {
    reloads: UnboundedSender<()>,
    ended: Receiver<()>,
}

impl SyncThread {
    /// Starts synchronising what the gateway runs, as one more worker.
    ///
    /// # Errors
    /// When there can be no thread.
    pub(super) fn start(
        process: &AdminContext,
        connections: &RedisConnections,
    ) -> Result<Self, StartupError> {
        let (gateway, clock) = (Arc::clone(&process.gateway), Arc::clone(&process.clock));
        let worker = process.facts.workers;
        let (reloads, reloaded) = unbounded_channel();
        let (ending, ended) = channel();
        let connected = connections.keep(worker);
        let runtime = runtime("a runtime for synchronising")?;
        thread::Builder::new()
            .name("sync".to_owned())
            .spawn(move || {
                runtime.spawn(connected);
                runtime.block_on(synchronise(worker, &gateway, &clock, reloaded));
                drop(ending);
            })
            .map_err(StartupError::system("a thread for synchronising"))?;
        Ok(Self { reloads, ended })
    }

    /// Synchronises what runs by now.
    pub(super) fn reloaded(&self) {
        // A thread that has died has said why.
        let _ = self.reloads.send(());
    }

    /// Tells for the last time, and waits for it: nobody is charged any more.
    pub(super) fn close(self) {
        drop(self.reloads);
        if self.ended.recv_timeout(LAST_ROUND_TIMEOUT) == Err(RecvTimeoutError::Timeout) {
            tracing::warn!(
                "telling other machines of the last charges takes too long, and is not waited for"
            );
        }
    }
}

async fn synchronise(
    worker: usize,
    gateway: &Gateway,
    clock: &Arc<Clock>,
    mut reloaded: UnboundedReceiver<()>,
) {
    loop {
        let ruleset = gateway.ruleset();
        let patience = ruleset.startup_timeout;
        let store = ruleset.store.clone();
        drop(ruleset);
        let rounds = async {
            if let Some(store) = store.redis() {
                store.converse(worker, clock, patience).await;
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            reload = reloaded.recv() => if reload.is_none() { break },
            () = rounds => {}
        }
    }
    if let Some(store) = gateway.ruleset().store.redis() {
        // Whoever waits for this has a deadline, too.
        let _ = timeout(LAST_ROUND_TIMEOUT, store.last_rounds(worker, clock)).await;
    }
}
