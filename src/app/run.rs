//! The life of the process: start, serve, drain, end.
//!
//! The main thread serves nobody. It waits for signals and changed files, and does what has to be
//! done once a second.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use super::access_logs;
use super::config_log;
use super::connections::Connections;
use super::descriptors;
use super::playground;
use super::reload::{Prepared, Refusal, Reloader};
use super::signals::{SignalCommand, Signals};
use super::snapshot_thread::{PreviousSnapshot, SnapshotThread};
use super::span_exporter::SpanExport;
use super::sync_thread::SyncThread;
use super::watch::FileWatcher;
use crate::admin::{
    self, AdminContext,
    health::{Phase, Readiness},
    status::ProcessFacts,
};
use crate::clock::Clock;
use crate::config::{Report, Source, compile};
use crate::limiter::Secret;
use crate::proxy::ruleset::build::{BuildContext, PreparedRuleset};
use crate::proxy::{Gateway, gateway};
use crate::server::{Server, StartError};
use crate::telemetry::logging::ProcessLog;
use crate::telemetry::metrics::{self, RequestMetrics};
use crate::telemetry::panics;
use crate::telemetry::process;
use crate::telemetry::registry::{Gauge, Observer, Registry};
use crate::upstream::TICK;

/// How long the last lines of the access log may take to be written.
const LAST_LINES: Duration = Duration::from_secs(2);

/// How long the last spans may take to be exported.
const LAST_SPANS: Duration = Duration::from_secs(3);

/// How long tasks that nobody waits for may go on at the end.
const LAST_TASKS: Duration = Duration::from_secs(1);
/// How long the workers may take to end after the last connection.
const LAST_WORKERS: Duration = Duration::from_secs(10);

/// Why the process does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartupError {
    /// The configuration is not sound.
    #[error("{0}")]
    Config(Box<Report>),
    /// An address or a thread cannot be had.
    #[error(transparent)]
    Start(#[from] StartError),
    /// A file or another thing of the system's cannot be had.
    #[error("{what}: {source}")]
    System {
        /// The action that failed.
        what: String,
        /// The error of the system.
        source: io::Error,
    },
}

impl From<Report> for StartupError {
    fn from(report: Report) -> Self {
        StartupError::Config(Box::new(report))
    }
}

impl StartupError {
    pub(super) fn system(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        |source| StartupError::System { what, source }
    }
}

/// Serves what `source` says until the process is told to end, and shows how many lines `log` has lost.
///
/// # Errors
/// When it cannot start; then nothing has been served.
pub fn run(source: Source, log: &ProcessLog) -> Result<(), StartupError> {
    // Before the file is read: what changes from now on is noticed.
    let watch = FileWatcher::new(source.file().into_iter().map(Into::into).collect());
    panics::install_hook();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(StartupError::system("the main runtime"))?;
    let mut signals = runtime
        .block_on(async { Signals::new() })
        .map_err(StartupError::system("signals"))?;
    let log = log.clone();
    let started = runtime.block_on(async {
        let start = spawn_blocking(move || Process::start(source, &log));
        tokio::select! {
            started = start => Some(started),
            () = signals.end() => None,
        }
    });
    let ended = match started {
        Some(Ok(started)) => started.map(|process| process.serve(&runtime, signals, watch)),
        Some(Err(panicked)) => Err(StartupError::system("the start")(panicked.into())),
        None => {
            tracing::info!("told to end before it served");
            Ok(())
        }
    };
    // A file that cannot be read in time keeps nobody waiting.
    runtime.shutdown_timeout(LAST_TASKS);
    ended
}

/// The parts of the running process.
struct Process {
    clock: Arc<Clock>,
    gateway: Arc<Gateway>,
    server: Server,
    admin: Server,
    readiness: Readiness,
    reloader: Reloader,
    keeper: SnapshotThread,
    synchronising: SyncThread,
    connections: Connections,
    /// True once workers accept clients.
    is_open: watch::Sender<bool>,
    /// Series that are shown as long as this lives.
    _series: (Observer, Gauge, Observer, Vec<Observer>),
}

impl Process {
    fn start(source: Source, log: &ProcessLog) -> Result<Self, StartupError> {
        let registry = Registry::default();
        let clock = Arc::new(Clock::system());
        let started_at = clock.now();
        let loaded = source.load()?;
        let compiled = compile(&loaded)?;
        config_log::log_warnings(loaded, started_at);
        let kept = PreviousSnapshot::find(compiled.snapshot.as_ref(), clock.now());
        let surroundings = BuildContext {
            workers: compiled.server.workers.get(),
            registry: registry.clone(),
            clock: Arc::clone(&clock),
            secret: kept
                .as_ref()
                .map_or_else(Secret::random, PreviousSnapshot::secret),
        };
        let access_log = access_logs::provide(compiled.access_log.as_ref(), &surroundings, None)?;
        let export = SpanExport::provide(compiled.export.clone(), &registry, None)?;
        let spans = export.as_ref().map(SpanExport::queue);
        let connections = Connections::new(surroundings.workers);
        let mut reloader = Reloader::new(
            source,
            &compiled,
            surroundings.clone(),
            export,
            connections.clone(),
        );
        let built = PreparedRuleset::new(compiled.rules, &surroundings, None)
            .with_access_log(access_log)
            .with_spans(spans);
        let snapshot = built.migrate_buckets(clock.now());
        if let Some(kept) = kept {
            kept.restore(&snapshot, clock.now());
        }
        reloader.follow(&snapshot);
        connections.begin(&snapshot);
        let gateway = Gateway::new(
            snapshot,
            Arc::clone(&clock),
            Arc::new(RequestMetrics::new(&registry)),
        );
        let gateway = Arc::new(gateway.with_activity(surroundings.workers));
        let key_form = compiled.admin.keys;
        gateway.activity().set_key_form(key_form, started_at);
        let keeper = SnapshotThread::start(
            compiled.snapshot,
            Arc::clone(&gateway),
            Arc::clone(&clock),
            &registry,
        )?;
        let synchronising = SyncThread::start(
            surroundings.workers,
            Arc::clone(&gateway),
            Arc::clone(&clock),
            &connections,
        )?;
        let readiness = Readiness::default();
        let admin = start_admin(
            compiled.admin.address,
            AdminContext {
                registry: registry.clone(),
                readiness: readiness.clone(),
                gateway: Arc::clone(&gateway),
                clock: Arc::clone(&clock),
                access: reloader.access().clone(),
                reloads: reloader.history().clone(),
                facts: ProcessFacts {
                    version: env!("CARGO_PKG_VERSION"),
                    revision: REVISION,
                    workers: surroundings.workers,
                    started_at,
                },
                playground: playground::API,
            },
        )?;
        let clients = Arc::clone(&gateway);
        let last = Arc::clone(&gateway);
        let mut spec = compiled.server;
        spec.client.max_connections = descriptors::provide(spec.client.max_connections);
        let is_open = watch::Sender::new(false);
        let server = Server::start_with(
            spec,
            &registry,
            move |connection| gateway::service(&clients, connection),
            worker_startup(&connections, &is_open),
            move |worker| Arc::clone(&last).flush_stores(worker),
        )?;
        let pressure = server.pressure();
        readiness.watch(server.pressure());
        let share = move || pressure.open() as f64 / pressure.max() as f64;
        Ok(Process {
            _series: (
                metrics::connection_pressure(&registry, share),
                metrics::build_info(&registry, env!("CARGO_PKG_VERSION"), REVISION),
                metrics::log_dropped(&registry, log),
                process::register(&registry),
            ),
            clock,
            gateway,
            server,
            admin,
            readiness,
            reloader,
            keeper,
            synchronising,
            connections,
            is_open,
        })
    }

    /// Accepts clients once Redis is connected, or does not answer in time.
    fn open(&self) -> impl Future<Output = ()> + use<> {
        let connections = self.connections.clone();
        let snapshot = self.gateway.ruleset();
        let (is_open, readiness) = (self.is_open.clone(), self.readiness.clone());
        let addresses = self.server.addresses().to_vec();
        async move {
            connections.ready(&snapshot).await;
            is_open.send_replace(true);
            for address in addresses {
                tracing::info!(%address, "listening");
            }
            readiness.set(Phase::Ready);
        }
    }

    fn serve(mut self, runtime: &Runtime, mut signals: Signals, watch: FileWatcher) {
        let opening = runtime.spawn(self.open());
        runtime.block_on(self.watch(&mut signals, watch));
        opening.abort();
        // Clients that wait already are served as any others.
        self.is_open.send_replace(true);
        let shutdown = self.reloader.shutdown();
        self.readiness.set(Phase::Draining);
        tracing::info!(delay = ?shutdown.delay, deadline = ?shutdown.deadline, "draining");
        let server = self.server.shutdown();
        let drained = async {
            sleep(shutdown.delay).await;
            server.drain(shutdown.deadline);
            // Joining blocks, and this thread has to hear a second signal.
            let joined = spawn_blocking(move || self.server.join());
            if timeout(shutdown.deadline + LAST_WORKERS, joined)
                .await
                .is_err()
            {
                tracing::error!("the workers do not end, and are not waited for");
            }
        };
        runtime.block_on(async {
            tokio::select! {
                () = drained => {}
                () = signals.end() => {
                    tracing::warn!("ended by a second signal");
                    server.abort();
                }
            }
        });
        drop(self.admin);
        // Nobody is charged any more.
        self.synchronising.close();
        self.keeper.close();
        self.reloader.access_logs().close(LAST_LINES);
        if let Some(spans) = &self.gateway.ruleset().spans {
            spans.close(LAST_SPANS);
        }
    }

    /// Reloads and does the chores until the process is told to end.
    async fn watch(&mut self, signals: &mut Signals, mut watch: FileWatcher) {
        watch.set_files(self.reloader.files());
        tokio::spawn(tick_upstreams(Arc::clone(&self.gateway)));
        tokio::spawn(run_periodic_work(
            Arc::clone(&self.clock),
            Arc::clone(&self.gateway),
        ));
        loop {
            tokio::select! {
                command = signals.next() => match command {
                    SignalCommand::End => return,
                    SignalCommand::Reload => {}
                    SignalCommand::Reopen => {
                        self.reopen();
                        continue;
                    }
                },
                () = watch.changed() => {}
            }
            watch.look();
            let prepared = tokio::select! {
                prepared = self.reloader.prepare(self.gateway.ruleset()) => prepared,
                () = signals.end() => return,
            };
            self.reload(prepared, &mut watch).await;
        }
    }

    async fn reload(&mut self, prepared: Result<Prepared, Refusal>, watch: &mut FileWatcher) {
        let finished = self.reloader.finish(prepared, &self.gateway, &self.keeper);
        finished.await;
        self.synchronising.reloaded();
        watch.set_files(self.reloader.files());
    }

    /// Has the access log's file opened anew.
    fn reopen(&self) {
        if let Some(log) = &self.gateway.ruleset().access_log {
            log.reopen();
        }
    }
}

/// The startup of each worker, before it accepts clients.
fn worker_startup(
    connections: &Connections,
    is_open: &watch::Sender<bool>,
) -> impl Fn(usize) -> Pin<Box<dyn Future<Output = ()>>> + Clone + Send + use<> {
    let (connections, is_open) = (connections.clone(), is_open.clone());
    move |worker| {
        let connected = connections.keep(worker);
        let mut is_open = is_open.subscribe();
        Box::pin(async move {
            tokio::spawn(connected);
            // An error means that nobody is left who could open.
            let _ = is_open.wait_for(|is_open| *is_open).await;
        })
    }
}

/// The commit that this was built from, where the build said so.
const REVISION: &str = match option_env!("SLUICEGATE_REVISION") {
    Some(revision) => revision,
    None => "unknown",
};

/// Does the periodic work once a second. A task of its own: a tick would cut off a wait for changed
/// files.
async fn run_periodic_work(clock: Arc<Clock>, gateway: Arc<Gateway>) {
    let mut second = interval(Duration::from_secs(1));
    second.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        second.tick().await;
        clock.resync();
        let ruleset = gateway.ruleset();
        for upstream in &ruleset.upstreams {
            upstream.sweep();
        }
        ruleset.sweep(clock.now());
        gateway.activity().collect(clock.now());
        drop(ruleset);
        let unused = gateway.take_unused();
        if !unused.is_empty() {
            spawn_blocking(move || drop(unused));
        }
    }
}

/// Finds hosts of upstreams that fail, several times a second.
async fn tick_upstreams(gateway: Arc<Gateway>) {
    let mut tick = interval(TICK);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        for upstream in &gateway.ruleset().upstreams {
            upstream.tick();
        }
    }
}

fn start_admin(address: SocketAddr, context: AdminContext) -> Result<Server, StartError> {
    let server = admin::start(address, context)?;
    for address in server.addresses() {
        tracing::info!(%address, "admin listening");
    }
    Ok(server)
}
