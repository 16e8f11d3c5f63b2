//! Taking over from the old process: its buckets, its clients, and then the snapshot's file.

use std::fs::File;
use std::io::{self, BufReader, ErrorKind, Seek};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use tokio::task::spawn_blocking;

use super::{Process, open};
use crate::admin::traffic_history::History;
use crate::app::StartupError;
use crate::app::service_manager;
use crate::app::snapshot_thread::restore;
use crate::app::upgrade::Predecessor;
use crate::clock::Clock;
use crate::config::SnapshotSpec;
use crate::net::listener::passed::ListenerName;
use crate::proxy::Gateway;
use crate::store::KnownUnits;
use crate::store::snapshot::{ReadError, Reader};

/// The rest of the work before this process takes over from another.
pub(super) struct Takeover {
    pub(super) predecessor: Predecessor,
    /// The listeners whose sockets it has.
    pub(super) taken: Vec<ListenerName>,
    /// The file that it is going to save buckets in.
    pub(super) snapshot: Option<SnapshotSpec>,
}

impl Process {
    /// Restores the buckets of another process, once Redis is connected or does not answer in time.
    pub(super) async fn take_over(
        &mut self,
        takeover: Takeover,
    ) -> Result<(Predecessor, Option<SnapshotSpec>), StartupError> {
        let (gateway, clock) = (Arc::clone(&self.gateway), Arc::clone(&self.clock));
        let ruleset = gateway.ruleset();
        let reloads = self.reloader.history.clone();
        let history = self.history.clone();
        self.redis_connections.ready(&ruleset).await;
        let restored = spawn_blocking(move || {
            let predecessor = takeover.predecessor;
            let (files, settings) = predecessor.ask_for_buckets(takeover.taken)?;
            restore_all(files, &gateway, &history, &clock)?;
            settings.apply(&ruleset, |hash| reloads.is_running(hash));
            Ok(predecessor)
        });
        let restored = restored.await.map_err(Into::into).flatten();
        let what = "can't take over from the old process";
        let predecessor = restored.map_err(StartupError::system(what))?;
        Ok((predecessor, takeover.snapshot))
    }

    /// Accepts clients, and then owns the snapshot's file. Nothing may cut this off: clients are served.
    pub(super) async fn replace(
        &mut self,
        predecessor: Predecessor,
        snapshot: Option<SnapshotSpec>,
    ) {
        open(&self.is_open, &self.readiness, &self.server.addresses());
        self.predecessor = spawn_blocking(|| predecessor.take_over()).await.ok();
        self.snapshots.follow(snapshot);
        // Only now has systemd heard of this process.
        service_manager::ready().await;
    }
}

/// Restores the buckets and the history of the old process, which are in these files.
fn restore_all(
    files: Vec<OwnedFd>,
    gateway: &Gateway,
    history: &History,
    clock: &Clock,
) -> io::Result<()> {
    let ruleset = &gateway.ruleset();
    let wrong = |refusal: ReadError| io::Error::other(format!("its buckets: {refusal}"));
    let mut files = files.into_iter().map(File::from);
    let mut file = files.next().ok_or(ErrorKind::InvalidData)?;
    file.rewind()?;
    let reader = Reader::new(file, clock.now()).map_err(wrong)?;
    clock.continue_from(reader.saved_at);
    restore(reader, "the old process", ruleset, clock.now()).map_err(wrong)?;
    // Version 0.2.0 has no further files, nor synchronised buckets in the first.
    if let Some(mut known) = files.next() {
        known.rewind()?;
        let known: KnownUnits = serde_json::from_reader(BufReader::new(known))?;
        let trackers = ruleset.buckets().filter_map(|(_, one)| one.tracker());
        trackers.for_each(|tracker| tracker.know(&known, clock.now()));
    }
    if let Some(mut steps) = files.next() {
        steps.rewind()?;
        if let Err(error) = history.begin_with(BufReader::new(steps), gateway, clock.now()) {
            tracing::warn!("the history of the old process can't be read: {error}");
        }
    }
    Ok(())
}
