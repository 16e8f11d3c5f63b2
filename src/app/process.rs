//! The life of the process: start, serve, drain, end.
//!
//! The main thread serves nobody. It waits for signals and changed files, and does what has to be
//! done once a second.

mod drain;
mod takeover;
mod upgrade;

use std::io;
use std::pin::Pin;
use std::sync::Arc;

use tokio::runtime::Runtime;
use tokio::sync::watch;

use self::takeover::Takeover;
use self::upgrade::AfterUpgrade;
use super::StartupError;
use super::access_logs;
use super::config_log::WarningLog;
use super::file_shares;
use super::periodic::{run_periodic_work, tick_upstreams};
use super::playground;
use super::process_series::{self, ProcessSeries};
use super::redis_connections::RedisConnections;
use super::reload::{Prepared, Reloader, Running};
use super::service_manager;
use super::signals::{EndSignal, SignalCommand, Signals};
use super::snapshot_owner::Owner;
use super::snapshot_thread::{PreviousSnapshot, SnapshotThread};
use super::span_exporter::SpanExport;
use super::sync_thread::SyncThread;
use super::upgrade::{Channel, Predecessor, Program, Successor};
use super::watch::FileWatcher;
use crate::admin;
use crate::admin::listener::{BoundAdmin, bind};
use crate::admin::readiness::{Phase, Readiness};
use crate::admin::state::{AdminContext, ProcessFacts};
use crate::admin::status_problem::StatusProblem;
use crate::clock::Clock;
use crate::config::{Compiled, Source, compile};
use crate::limiter::Secret;
use crate::net::listener::passed::PassedSockets;
use crate::net::socket::StreamAddress;
use crate::proxy::ruleset::build::{BuildContext, PreparedRuleset};
use crate::proxy::{Gateway, Ruleset, gateway};
use crate::server::{BoundListeners, Server, ServerSpec, StartError};
use crate::store::StoreSpec;
use crate::telemetry::logging::ProcessLog;
use crate::telemetry::metrics::{ClockMetrics, RecentCounts, RequestMetrics};
use crate::telemetry::registry::Registry;

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

/// The origin of this process.
pub struct Origin {
    /// Its program, unless the system hides it.
    pub(super) program: io::Result<Program>,
    /// Sockets that it was given.
    pub(super) passed: PassedSockets,
    /// The process that it takes over from, if there is one.
    pub(super) predecessor: Option<Predecessor>,
}

impl Process {
    /// Starts all parts; the workers accept no clients before [`Process::serve`].
    ///
    /// # Errors
    /// When a part cannot start; then nothing has been served.
    pub(super) fn start(
        source: Source,
        log: &ProcessLog,
        origin: Origin,
    ) -> Result<Self, StartupError> {
        let Origin {
            program,
            mut passed,
            predecessor,
        } = origin;
        let registry = Registry::default();
        let clock = Arc::new(Clock::system());
        let started_at = clock.now();
        let loaded = source.load()?;
        let Compiled {
            rules,
            access_log,
            export,
            process: mut spec,
        } = compile(&loaded)?;
        let warning_log = WarningLog::default();
        warning_log.log(loaded, started_at);
        let files = file_shares::raise_and_divide(&spec.server);
        let mut served = spec.server.clone();
        served.client.max_connections = files.clients;
        // Before the snapshot is touched: where another process listens, this one does not start.
        let tls = spec.admin.tls.clone();
        let admin = bind(spec.admin.address, tls, files.admin, &registry, &mut passed)?;
        let listeners = BoundListeners::bind(&served, &registry, &mut passed)?;
        for address in passed.addresses() {
            tracing::warn!(%address, "closing a socket that no listener in the configuration uses");
        }
        let taken = passed.into_taken();
        // A process that is taken over from has the file, and passes on its buckets later.
        let snapshot = spec.snapshot.take_if(|_| predecessor.is_some());
        let owner = Owner::at_start(spec.snapshot.as_ref());
        let previous = PreviousSnapshot::find(spec.snapshot.as_ref(), &owner, clock.now());
        if let Some(previous) = &previous {
            clock.continue_from(previous.saved_at());
        }
        if let Some(predecessor) = &predecessor {
            clock.continue_from(predecessor.now());
        }
        let secret = predecessor.as_ref().map(Predecessor::secret);
        let context = BuildContext {
            workers: spec.server.workers.get(),
            registry: registry.clone(),
            clock: Arc::clone(&clock),
            secret: secret.unwrap_or_else(|| key_secret(previous.as_ref(), rules.store.as_ref())),
        };
        let access_log = access_logs::provide(access_log.as_ref(), &context, None)?;
        let export = SpanExport::provide(export, &registry, None)?;
        let spans = export.as_ref().map(SpanExport::queue);
        let redis_connections = RedisConnections::new(context.workers);
        let mut reloader = Reloader::new(
            source,
            &spec,
            context.clone(),
            export,
            redis_connections.clone(),
            predecessor.as_ref().and_then(Predecessor::made_token),
        );
        let prepared = PreparedRuleset::new(rules, &context, None)
            .with_access_log(access_log)
            .with_spans(spans);
        let ruleset = first_ruleset(prepared, previous, &clock);
        reloader.warning_log = warning_log;
        reloader.access_logs.note(&ruleset);
        redis_connections.begin(&ruleset);
        let gateway = new_gateway(ruleset, &context);
        files.limit_upstreams(&gateway);
        gateway.activity().set_key_form(spec.admin.keys, started_at);
        let snapshot_problem = StatusProblem::default();
        let upgrade_problem = StatusProblem::default();
        let snapshots = SnapshotThread::start(
            spec.snapshot,
            owner,
            snapshot_problem.clone(),
            Arc::clone(&gateway),
            Arc::clone(&clock),
            &registry,
        )?;
        let synchronising = SyncThread::start(
            context.workers,
            Arc::clone(&gateway),
            Arc::clone(&clock),
            &redis_connections,
        )?;
        let readiness = Readiness::default();
        let is_open = watch::Sender::new(false);
        let recent = RecentCounts::new(&registry);
        let admin_context = AdminContext {
            registry: registry.clone(),
            readiness: readiness.clone(),
            gateway: Arc::clone(&gateway),
            clock: Arc::clone(&clock),
            access: reloader.access.clone(),
            hosts: reloader.hosts.clone(),
            reloads: reloader.history.clone(),
            facts: ProcessFacts {
                version: process_series::VERSION,
                revision: process_series::REVISION,
                workers: context.workers,
                started_at,
            },
            recent: recent.clone(),
            snapshot_problem,
            upgrade_problem: upgrade_problem.clone(),
            restart_problem: reloader.restart_problem.clone(),
            playground: playground::api(),
        };
        // Until it takes over, clients of the admin API are another process's.
        let admin_opens = match predecessor {
            Some(_) => is_open.subscribe(),
            None => watch::Sender::new(true).subscribe(),
        };
        let admin = start_admin(admin, admin_context, admin_opens)?;
        let startup = worker_startup(&redis_connections, &is_open);
        let server = start_server(served, listeners, &gateway, startup)?;
        readiness.watch(server.pressure());
        Ok(Process {
            _series: process_series::register(&registry, &server, &gateway, log),
            clock_metrics: ClockMetrics::new(&registry),
            clock,
            gateway,
            server,
            admin,
            readiness,
            reloader,
            snapshots,
            synchronising,
            redis_connections,
            is_open,
            recent,
            program,
            takeover: predecessor.map(|predecessor| Takeover {
                predecessor,
                taken,
                snapshot,
            }),
            predecessor: None,
            successor: None,
            upgrade_problem,
        })
    }

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
        loop {
            tokio::select! {
                command = signals.next() => match command {
                    SignalCommand::End(signal) => return signal,
                    SignalCommand::Reload => {}
                    SignalCommand::Reopen => {
                        reopen(&self.gateway);
                        continue;
                    }
                    SignalCommand::Upgrade => match self.upgrade(signals).await {
                        AfterUpgrade::End(signal) => return signal,
                        AfterUpgrade::Serve { has_to_reload: true } => {}
                        AfterUpgrade::Serve { has_to_reload: false } => continue,
                    },
                },
                () = watch.changed() => {}
            }
            watch.look();
            let servers = (&self.server, &self.admin);
            let prepared = tokio::select! {
                prepared = self.reloader.prepare(self.gateway.ruleset(), servers) => prepared,
                signal = signals.end() => return signal,
            };
            self.reload(prepared, &mut watch).await;
        }
    }

    async fn reload(&mut self, prepared: Result<Prepared, StartupError>, watch: &mut FileWatcher) {
        let running = Running {
            gateway: &self.gateway,
            snapshot_thread: &self.snapshots,
            server: &mut self.server,
            admin: &mut self.admin,
        };
        self.reloader.finish(prepared, running).await;
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

/// The secret of fingerprints: that of the saved buckets, or else the one that machines share.
fn key_secret(previous: Option<&PreviousSnapshot>, store: Option<&StoreSpec>) -> Secret {
    let saved = previous.map(PreviousSnapshot::secret);
    let shared = || store.and_then(|store| store.key_secret);
    saved.or_else(shared).unwrap_or_else(Secret::random)
}

/// Builds the first ruleset, with the buckets that the process before has saved.
fn first_ruleset(
    prepared: PreparedRuleset,
    previous: Option<PreviousSnapshot>,
    clock: &Clock,
) -> Arc<Ruleset> {
    let ruleset = prepared.migrate_buckets(clock.now());
    if let Some(previous) = previous {
        previous.restore(&ruleset, clock.now());
    }
    ruleset
}

fn new_gateway(ruleset: Arc<Ruleset>, context: &BuildContext) -> Arc<Gateway> {
    let metrics = Arc::new(RequestMetrics::new(&context.registry));
    let gateway = Gateway::new(ruleset, Arc::clone(&context.clock), metrics);
    Arc::new(gateway.with_activity(context.workers))
}

/// Starts the workers; each accepts clients after its `startup`.
fn start_server(
    spec: ServerSpec,
    listeners: BoundListeners,
    gateway: &Arc<Gateway>,
    startup: impl Fn(usize) -> Pin<Box<dyn Future<Output = ()>>> + Clone + Send + 'static,
) -> Result<Server, StartError> {
    let (clients, last) = (Arc::clone(gateway), Arc::clone(gateway));
    Server::start_with(
        spec,
        listeners,
        move |connection| gateway::service(&clients, connection),
        startup,
        move |worker| Arc::clone(&last).flush_stores(worker),
    )
}

/// The startup of each worker, before it accepts clients.
fn worker_startup(
    connections: &RedisConnections,
    is_open: &watch::Sender<bool>,
) -> impl Fn(usize) -> Pin<Box<dyn Future<Output = ()>>> + Clone + Send + use<> {
    let (connections, is_open) = (connections.clone(), is_open.clone());
    move |worker| {
        let connected = connections.keep(worker);
        let mut is_open = is_open.subscribe();
        Box::pin(async move {
            tokio::spawn(connected);
            // The sender is gone only if the process ends.
            let _ = is_open.wait_for(|is_open| *is_open).await;
        })
    }
}

fn start_admin(
    bound: BoundAdmin,
    context: AdminContext,
    is_open: watch::Receiver<bool>,
) -> Result<Server, StartError> {
    let server = admin::start(bound, context, is_open)?;
    for address in server.addresses() {
        tracing::info!(%address, "admin listening");
    }
    Ok(server)
}
