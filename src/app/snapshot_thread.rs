//! Keeps the buckets and bans in a file: restores them at the start, and saves them every so often, before the ports are
//! free for a successor, and at the end, on a thread of its own. Whatever goes wrong with the file costs the file, and is
//! logged; the proxy continues to serve.

use std::collections::HashMap;
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;
use std::{io, thread};

use tokio::sync::oneshot;
use tokio::time::timeout;

use super::StartupError;
use super::snapshot_owner::Owner;
use crate::admin::state::AdminContext;
use crate::admin::status_problem::StatusProblem;
use crate::clock::{Clock, Timestamp};
use crate::config::SnapshotSpec;
use crate::files::{self, FileVersion};
use crate::limiter::Secret;
use crate::proxy::{Gateway, Ruleset};
use crate::store::snapshot::{self, ReadError, Reader};
use crate::telemetry::metrics::SnapshotMetrics;
use crate::telemetry::registry::Registry;

/// How long the last snapshot may take to be written.
const LAST_SAVE_TIMEOUT: Duration = Duration::from_secs(10);

/// How soon a file that another process owns is tried again.
const RETRY_LOCK: Duration = Duration::from_secs(1);

/// Buckets of a process before this one.
#[derive(Debug)]
pub(super) struct PreviousSnapshot {
    spec: SnapshotSpec,
    reader: Reader<File>,
    version: Option<FileVersion>,
}

impl PreviousSnapshot {
    /// Finds the snapshot that `spec` asks for, if it is there and good.
    pub(super) fn find(spec: &SnapshotSpec, now: Timestamp) -> Option<Self> {
        let (path, version) = (&spec.path, FileVersion::of(&spec.path));
        let opened = snapshot::open(path, now);
        let opened = opened.inspect_err(|refusal| warn_of_unread(spec, refusal));
        opened.ok().flatten().map(|reader| Self {
            spec: spec.clone(),
            reader,
            version,
        })
    }

    /// The version of its file.
    pub(super) fn version(&self) -> Option<FileVersion> {
        self.version.clone()
    }

    /// The instant up to which the process before has counted.
    pub(super) fn saved_at(&self) -> Timestamp {
        self.reader.saved_at
    }

    /// The secret that fingerprints of keys are made with.
    pub(super) fn secret(&self) -> Secret {
        self.reader.secret
    }

    /// Reads the buckets into the tables of `running`. Returns false if they are not all read.
    pub(super) fn restore(self, running: &Ruleset, now: Timestamp) -> bool {
        let name = self.spec.path.display().to_string();
        let restored = restore(self.reader, &name, running, now);
        restored
            .inspect_err(|refusal| warn_of_unread(&self.spec, refusal))
            .is_ok()
    }
}

/// Reads the buckets that `reader` has into the tables of `running`. `name` is for the log.
///
/// # Errors
/// Why the rest is not read.
pub(super) fn restore(
    reader: Reader<File>,
    name: &str,
    running: &Ruleset,
    now: Timestamp,
) -> Result<(), ReadError> {
    let tables = running.buckets().map(|(key, buckets)| {
        let table = &*buckets.table;
        ((table.policy(), key), table)
    });
    let tables: HashMap<_, _> = tables.collect();
    let keys = running.keys();
    let keys: HashMap<_, _> = keys.map(|of| ((of.policy, of.key), of)).collect();
    let find_table = |policy: &str, key: &str| tables.get(&(policy, key)).copied();
    let find_keys = |policy: &str, key: &str| keys.get(&(policy, key)).copied();
    let restored = reader.restore(find_table, find_keys, now)?;
    tracing::info!(
        from = name,
        buckets = restored.buckets,
        bans = restored.bans,
        dropped = restored.dropped,
        "buckets and bans are restored"
    );
    Ok(())
}

fn warn_of_unread(spec: &SnapshotSpec, refusal: &ReadError) {
    let path = spec.path.display();
    tracing::warn!(%path, error = %refusal, "the snapshot of buckets cannot be read: all buckets start full");
}

/// The thread that saves.
#[derive(Debug)]
pub(super) struct SnapshotThread {
    orders: Sender<Order>,
    ended: Receiver<()>,
}

/// An order to the thread.
#[derive(Debug)]
enum Order {
    /// Save like this from now on.
    Follow(Option<SnapshotSpec>),
    /// Save, leave the file to another process, and report it.
    HandOver(oneshot::Sender<()>),
    /// Save no more, leave the file to another process, and report it.
    Leave(oneshot::Sender<()>),
}

impl SnapshotThread {
    /// Starts saving the buckets of what the gateway runs, at once and then as often as `spec` says.
    ///
    /// # Errors
    /// When there can be no thread.
    pub(super) fn start(
        spec: Option<SnapshotSpec>,
        owner: Owner,
        known: Option<FileVersion>,
        process: &AdminContext,
    ) -> Result<Self, StartupError> {
        let (orders, received) = channel();
        let (ending, ended) = channel();
        let mut saver = SnapshotWriter {
            due: process.clock.now(),
            metrics: spec
                .as_ref()
                .map(|_| SnapshotMetrics::new(&process.registry)),
            registry: process.registry.clone(),
            spec,
            owner,
            known,
            has_saved: false,
            aside: None,
            problem: process.snapshot_problem.clone(),
            unread_problem: process.unread_problem.clone(),
            gateway: Arc::clone(&process.gateway),
            clock: Arc::clone(&process.clock),
        };
        thread::Builder::new()
            .name("snapshot".to_owned())
            .spawn(move || {
                saver.run(&received);
                drop(ending);
            })
            .map_err(StartupError::system("a thread for snapshots"))?;
        Ok(Self { orders, ended })
    }

    /// Saves as `spec` says from now on.
    pub(super) fn follow(&self, spec: Option<SnapshotSpec>) {
        // A thread that has died has said why.
        let _ = self.orders.send(Order::Follow(spec));
    }

    /// Saves, and leaves the file to a successor, which may start as soon as the ports are free. Waits for it.
    pub(super) async fn hand_over(&self) {
        self.order(Order::HandOver).await;
    }

    /// Saves no more, and leaves the file to a process that has the buckets. Waits for it.
    pub(super) async fn leave(&self) {
        self.order(Order::Leave).await;
    }

    async fn order(&self, order: impl FnOnce(oneshot::Sender<()>) -> Order) {
        let (done, is_done) = oneshot::channel();
        let _ = self.orders.send(order(done));
        if timeout(LAST_SAVE_TIMEOUT, is_done).await.is_err() {
            tracing::warn!("{TOO_SLOW}");
        }
    }

    /// Saves for the last time, and waits for it.
    pub(super) fn close(self) {
        drop(self.orders);
        if self.ended.recv_timeout(LAST_SAVE_TIMEOUT) == Err(RecvTimeoutError::Timeout) {
            tracing::warn!("{TOO_SLOW}");
        }
    }
}

const TOO_SLOW: &str = "the last snapshot of buckets takes too long, and is not waited for";

/// The state of the thread.
struct SnapshotWriter {
    spec: Option<SnapshotSpec>,
    owner: Owner,
    /// The version of the file that was read.
    known: Option<FileVersion>,
    /// The file is this process's, or was left to it.
    has_saved: bool,
    /// A file that was not read, and set aside.
    aside: Option<PathBuf>,
    problem: StatusProblem,
    unread_problem: StatusProblem,
    gateway: Arc<Gateway>,
    clock: Arc<Clock>,
    registry: Registry,
    /// Series that are there as long as there are to be snapshots.
    metrics: Option<SnapshotMetrics>,
    due: Timestamp,
}

impl SnapshotWriter {
    /// Saves whenever it is due, and once more when nobody can give orders any longer.
    fn run(&mut self, orders: &Receiver<Order>) {
        loop {
            match self.next(orders) {
                Ok(Order::Follow(spec)) => self.follow(spec),
                Ok(Order::HandOver(done)) => {
                    self.save();
                    self.owner.hand_over(self.spec.as_ref());
                    // Somebody who waits no longer goes on.
                    let _ = done.send(());
                }
                Ok(Order::Leave(done)) => {
                    self.follow(None);
                    let _ = done.send(());
                }
                Err(RecvTimeoutError::Timeout) => self.save(),
                Err(RecvTimeoutError::Disconnected) => return self.save(),
            }
        }
    }

    fn next(&self, orders: &Receiver<Order>) -> Result<Order, RecvTimeoutError> {
        let is_due = self.spec.is_some() && !self.owner.is_handed_over();
        if is_due {
            orders.recv_timeout(self.due.since(self.clock.now()))
        } else {
            orders.recv().map_err(|_| RecvTimeoutError::Disconnected)
        }
    }

    fn follow(&mut self, spec: Option<SnapshotSpec>) {
        if spec == self.spec {
            return;
        }
        if spec.is_none() || self.metrics.is_none() {
            self.metrics = spec.as_ref().map(|_| SnapshotMetrics::new(&self.registry));
        }
        let path = |spec: &Option<SnapshotSpec>| spec.as_ref().map(|spec| spec.path.clone());
        if path(&spec) != path(&self.spec) {
            self.owner = Owner::of(spec.as_ref());
            let good = spec.as_ref().filter(|spec| {
                let opened = snapshot::open(&spec.path, self.clock.now());
                opened.is_ok()
            });
            self.known = good.and_then(|spec| FileVersion::of(&spec.path));
            (self.has_saved, self.aside) = (false, None);
            self.unread_problem.clear();
        }
        self.due = self.clock.now();
        self.problem.clear();
        self.spec = spec;
    }

    /// Saves, if no other process owns the file.
    fn save(&mut self) {
        let (Some(spec), Some(metrics)) = (&self.spec, &self.metrics) else {
            return;
        };
        // What another process has saved for itself is replaced.
        self.has_saved |= self.owner.is_other();
        if !self.owner.may_save(spec, &self.problem) {
            self.due = self.clock.now().saturating_add(spec.every.min(RETRY_LOCK));
            return;
        }
        let (running, now) = (self.gateway.ruleset(), self.clock.now());
        let kept = self.keep_unread(spec).map(|aside| self.aside = aside);
        metrics.set_unread(self.unread_problem.is_set());
        let saved = kept.and_then(|()| {
            let (tables, keys) = (running.tables(), running.keys());
            let write = |file| snapshot::write(file, &running.secret, now, tables, keys);
            files::replace(&spec.path, write)
        });
        match &saved {
            Ok(()) => {
                self.has_saved = true;
                metrics.saved(now.as_micros());
                self.problem.clear();
            }
            Err(error) => {
                metrics.failed.increment();
                self.warn_once(spec, error);
            }
        }
        self.due = self.clock.now().saturating_add(spec.every);
    }

    /// Sets a file aside that was not read, so that the first snapshot does not replace it. Reports it
    /// as long as it is there, and returns its new path.
    ///
    /// # Errors
    /// It stays where it is.
    fn keep_unread(&self, spec: &SnapshotSpec) -> io::Result<Option<PathBuf>> {
        let path = spec.path.display();
        let there = FileVersion::of(&spec.path).filter(|_| !self.has_saved);
        if there.is_none() || there == self.known {
            let aside = self.aside.clone().filter(|aside| aside.exists());
            if aside.is_none() {
                self.unread_problem.clear();
            }
            return Ok(aside);
        }
        let unread = format!("the file {path} could not be read as a snapshot of buckets");
        self.unread_problem.set(unread.clone());
        let aside = snapshot::set_aside(&spec.path)?;
        let to = aside.display();
        tracing::warn!(%path, aside = %to, "what could not be read as a snapshot of buckets is set aside");
        self.unread_problem
            .set(format!("{unread}, and is set aside as {to}: remove it"));
        Ok(Some(aside))
    }

    fn warn_once(&self, spec: &SnapshotSpec, error: &io::Error) {
        let path = spec.path.display();
        if self
            .problem
            .set(format!("buckets cannot be saved in {path}: {error}"))
        {
            tracing::warn!(
                %path,
                %error,
                again = ?spec.every,
                "buckets cannot be saved; the snapshot before is what it was"
            );
        }
    }
}
