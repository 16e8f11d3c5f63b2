//! The life of the process: start, serve, drain, end.
//!
//! The main thread serves nobody. It waits for signals and changed files, and does what has to be
//! done once a second.

mod drain;
mod start;
mod takeover;
mod upgrade;

use std::future::ready;
use std::io;
use std::sync::Arc;

use tokio::runtime::Runtime;
use tokio::sync::watch;

pub use self::start::Origin;
use self::takeover::Takeover;
use self::upgrade::AfterUpgrade;
use super::StartupError;
use super::periodic::{run_periodic_work, tick_upstreams};
use super::process_series::ProcessSeries;
use super::redis_connections::RedisConnections;
use super::reload::{Prepared, Reloader};
use super::service_manager;
use super::signals::{EndSignal, SignalCommand, Signals};
use super::snapshot_thread::SnapshotThread;
use super::sync_thread::SyncThread;
use super::upgrade::{Channel, Program, Successor};
use super::watch::FileWatcher;
use crate::admin::readiness::{Phase, Readiness};
use crate::admin::status_problem::StatusProblem;
use crate::admin::traffic_history::History;
use crate::clock::Clock;
use crate::net::socket::StreamAddress;
use crate::proxy::Gateway;
use crate::server::Server;
use crate::telemetry::metrics::{ClockMetrics, RecentCounts};

/// The parts of the running process.
pub(super) struct Process {
    clock: Arc<Clock>,
    gateway: Arc<Gateway>,
    server: Server,
    admin: Server,
    readiness: Readiness,
    reloader: Reloader,
    snapshots: SnapshotThread,
    synchronising: SyncThread,
    redis_connections: RedisConnections,
    /// True once workers accept clients.
    is_open: watch::Sender<bool>,
    clock_metrics: ClockMetrics,
    recent: RecentCounts,
    history: History,
    program: io::Result<Program>,
    /// The process to take over from, before this one serves.
    takeover: Option<Takeover>,
    /// The process that this one has taken over from.
    predecessor: Option<Channel>,
    /// The process that has taken over from this one.
    successor: Option<Successor>,
    upgrade_problem: StatusProblem,
    /// Series that are shown as long as this lives.
    _series: ProcessSeries,
}

impl Process {
    /// Accepts clients once Redis is connected, or does not answer in time, and says so.
    fn open(&self) -> impl Future<Output = ()> + use<> {
        let redis_connections = self.redis_connections.clone();
        let ruleset = self.gateway.ruleset();
        let (is_open, readiness) = (self.is_open.clone(), self.readiness.clone());
        let addresses = self.server.addresses();
        async move {
            redis_connections.ready(&ruleset).await;
            open(&is_open, &readiness, &addresses);
            service_manager::ready().await;
        }
    }

    /// Serves until the process is told to end, and drains.
    ///
    /// # Errors
    /// When it cannot take over from another process; then nothing has been served.
    pub(super) fn serve(
        mut self,
        runtime: &Runtime,
        mut signals: Signals,
        watch: FileWatcher,
    ) -> Result<(), StartupError> {
        runtime.spawn(tick_upstreams(Arc::clone(&self.gateway)));
        let mut opening = None;
        if let Some(takeover) = self.takeover.take() {
            let taken_over = runtime.block_on(async {
                tokio::select! {
                    taken_over = self.take_over(takeover) => Some(taken_over),
                    _ = signals.end() => None,
                }
            });
            match taken_over {
                Some(taken_over) => {
                    let (predecessor, snapshot) = taken_over?;
                    runtime.block_on(self.replace(predecessor, snapshot));
                }
                None => {
                    tracing::info!("stopped before it served");
                    return Ok(());
                }
            }
        } else {
            opening = Some(runtime.spawn(self.open()));
        }
        let ended_by = runtime.block_on(self.watch(&mut signals, watch));
        opening.inspect(|opening| opening.abort());
        self.end(runtime, signals, ended_by);
        Ok(())
    }

    /// Reloads and does the chores until the process is told to end. Returns how it was told.
    async fn watch(&mut self, signals: &mut Signals, mut watch: FileWatcher) -> EndSignal {
        watch.set_files(self.reloader.files());
        tokio::spawn(run_periodic_work(
            Arc::clone(&self.clock),
            Arc::clone(&self.gateway),
            self.clock_metrics.clone(),
            self.recent.clone(),
        ));
        let mut has_to_upgrade = false;
        loop {
            let command = tokio::select! {
                biased;
                () = ready(()), if has_to_upgrade => SignalCommand::Upgrade,
                command = signals.next() => command,
                () = watch.changed() => SignalCommand::Reload,
            };
            match command {
                SignalCommand::End(signal) => return signal,
                SignalCommand::Reload => {}
                SignalCommand::Reopen => {
                    reopen(&self.gateway);
                    continue;
                }
                SignalCommand::Upgrade => match self.upgrade(signals, &mut watch).await {
                    AfterUpgrade::End(signal) => return signal,
                    AfterUpgrade::Serve { reloads, upgrades } => {
                        has_to_upgrade = upgrades;
                        if !reloads {
                            continue;
                        }
                    }
                },
            }
            watch.look();
            let running = self.gateway.ruleset();
            let preparing = self.reloader.prepare(running, &self.server, &self.admin);
            let prepared = tokio::select! {
                prepared = preparing => prepared,
                signal = signals.end() => return signal,
            };
            self.reload(prepared, &mut watch).await;
        }
    }

    async fn reload(&mut self, prepared: Result<Prepared, StartupError>, watch: &mut FileWatcher) {
        let finishing = self.reloader.finish(
            prepared,
            &self.gateway,
            &self.snapshots,
            &mut self.server,
            &mut self.admin,
        );
        finishing.await;
        self.synchronising.reloaded();
        watch.set_files(self.reloader.files());
    }
}

/// Lets the workers accept clients.
fn open(is_open: &watch::Sender<bool>, readiness: &Readiness, addresses: &[StreamAddress]) {
    // First: a probe that waits must not be told otherwise.
    readiness.set(Phase::Ready);
    is_open.send_replace(true);
    for address in addresses {
        tracing::info!(%address, "listening");
    }
}

/// Has the access log's file opened anew.
fn reopen(gateway: &Gateway) {
    if let Some(log) = &gateway.ruleset().access_log {
        log.reopen();
    }
}
