//! The start of the process. All that can fail comes before anything is served.

use std::io;
use std::sync::Arc;

use tokio::sync::watch;
use tokio::time::Instant;

use super::Process;
use super::takeover::Takeover;
use crate::admin;
use crate::admin::readiness::Readiness;
use crate::admin::state::{AdminContext, ProcessFacts};
use crate::admin::status_problem::StatusProblem;
use crate::admin::traffic_history::History;
use crate::app::StartupError;
use crate::app::access_logs;
use crate::app::config_log::WarningLog;
use crate::app::file_shares::{self, FileShares};
use crate::app::playground;
use crate::app::process_series;
use crate::app::redis_connections::RedisConnections;
use crate::app::reload::Reloader;
use crate::app::snapshot_owner::Owner;
use crate::app::snapshot_thread::{PreviousSnapshot, SnapshotThread};
use crate::app::span_exporter::SpanExport;
use crate::app::sync_thread::SyncThread;
use crate::app::upgrade::{Predecessor, Program};
use crate::clock::{Clock, Timestamp};
use crate::config::{ProcessSpec, SnapshotSpec, Source, compile};
use crate::files::FileVersion;
use crate::limiter::Secret;
use crate::net::listener::passed::{ListenerName, PassedSockets};
use crate::proxy::ruleset::build::{BuildContext, PreparedRuleset};
use crate::proxy::{Gateway, Ruleset, gateway};
use crate::server::{BoundListeners, Server, StartError, WorkerHook};
use crate::store::StoreSpec;
use crate::telemetry::logging::ProcessLog;
use crate::telemetry::metrics::{ClockMetrics, RecentCounts, RequestMetrics};
use crate::telemetry::registry::Registry;

/// The origin of this process.
pub struct Origin {
    /// Its program, unless the system hides it.
    pub(in crate::app) program: io::Result<Program>,
    /// Sockets that it was given.
    pub(in crate::app) passed: PassedSockets,
    /// The process that it takes over from, if there is one.
    pub(in crate::app) predecessor: Option<Predecessor>,
}

impl Process {
    /// Starts all parts; the workers accept no clients before [`Process::serve`].
    ///
    /// # Errors
    /// When a part cannot start; then nothing has been served.
    pub(in crate::app) fn start(
        source: Source,
        log: &ProcessLog,
        origin: Origin,
    ) -> Result<Self, StartupError> {
        let predecessor = origin.predecessor;
        let registry = Registry::default();
        let clock = Arc::new(Clock::system());
        let started_at = clock.now();
        let loaded = source.load()?;
        let compiled = compile(&loaded)?;
        let mut spec = compiled.process;
        let warning_log = WarningLog::default();
        warning_log.log(loaded, started_at);
        let files = file_shares::raise_and_divide(&spec.server, &warning_log);
        // Before the snapshot is touched: where another process listens, this one does not start.
        let sockets = Sockets::bind(&spec, files, &registry, origin.passed)?;
        let saved = SavedBuckets::find(&mut spec, predecessor.as_ref(), &clock);
        let context = BuildContext {
            workers: spec.server.workers.get(),
            registry: registry.clone(),
            clock: Arc::clone(&clock),
            secret: saved.secret(predecessor.as_ref(), compiled.rules.store.as_ref()),
        };
        let access_log = access_logs::provide(compiled.access_log.as_ref(), &context, None)?;
        let export = SpanExport::provide(compiled.export, &registry, None)?;
        let prepared = PreparedRuleset::new(compiled.rules, &context, None)
            .with_logs(access_log, export.as_ref().map(SpanExport::queue));
        let redis_connections = RedisConnections::new(context.workers);
        let mut reloader = Reloader::new(
            source,
            &spec,
            context.clone(),
            export,
            redis_connections.clone(),
            warning_log,
            predecessor.as_ref().and_then(Predecessor::made_token),
        );
        let (ruleset, saved_version) = first_ruleset(prepared, saved.previous, &clock);
        reloader.access_logs.note(&ruleset);
        redis_connections.begin(&ruleset);
        let metrics = Arc::new(RequestMetrics::new(&registry));
        let gateway = Gateway::new(ruleset, Arc::clone(&clock), metrics, context.workers);
        let gateway = Arc::new(gateway);
        files.limit_upstreams(&gateway);
        gateway.activity.set_key_form(spec.admin.keys, started_at);
        let admin_context = admin_context(&context, &gateway, &reloader, started_at);
        let readiness = admin_context.readiness.clone();
        let recent = admin_context.recent.clone();
        let history = admin_context.history.clone();
        let upgrade_problem = admin_context.upgrade_problem.clone();
        let snapshots =
            SnapshotThread::start(spec.snapshot, saved.owner, saved_version, &admin_context)?;
        let synchronising = SyncThread::start(&admin_context, &redis_connections)?;
        let is_open = watch::Sender::new(false);
        // Until it takes over, clients of the admin API are another process's.
        let admin_opens = match predecessor {
            Some(_) => is_open.subscribe(),
            None => watch::Sender::new(true).subscribe(),
        };
        let admin = admin::start(sockets.admin, admin_context, admin_opens)?;
        for address in admin.addresses() {
            tracing::info!(%address, "admin listening");
        }
        let startup = worker_startup(&redis_connections, &is_open);
        let server = start_server(sockets.listeners, &gateway, startup)?;
        readiness.watch(server.bounds());
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
            history,
            program: origin.program,
            takeover: predecessor.map(|predecessor| Takeover {
                predecessor,
                taken: sockets.taken,
                snapshot: saved.left_to_predecessor,
            }),
            predecessor: None,
            successor: None,
            upgrade_problem,
        })
    }
}

/// The sockets of all listeners.
struct Sockets {
    admin: BoundListeners,
    listeners: BoundListeners,
    /// The listeners whose sockets this process was given.
    taken: Vec<ListenerName>,
}

impl Sockets {
    /// Takes sockets from `passed`, and binds the others.
    fn bind(
        spec: &ProcessSpec,
        files: FileShares,
        registry: &Registry,
        mut passed: PassedSockets,
    ) -> Result<Self, StartupError> {
        let mut server = spec.server.clone();
        // As many connections as there are files for.
        server.client.max_connections = files.clients;
        let (address, tls) = (spec.admin.address, spec.admin.tls.clone());
        let admin = admin::listener::bind(address, tls, files.admin, registry, &mut passed)?;
        let listeners = BoundListeners::bind(server, registry, &mut passed)?;
        for address in passed.addresses() {
            tracing::warn!(%address, "closing a socket that no listener in the configuration uses");
        }
        Ok(Self {
            admin,
            listeners,
            taken: passed.into_taken(),
        })
    }
}

/// The buckets that another process has saved.
struct SavedBuckets {
    owner: Owner,
    previous: Option<PreviousSnapshot>,
    /// The file that a predecessor has, and leaves to this process when that takes over.
    left_to_predecessor: Option<SnapshotSpec>,
}

impl SavedBuckets {
    /// Finds the snapshot, unless there is a predecessor: that passes on its buckets later. The clock
    /// continues from what is found.
    fn find(spec: &mut ProcessSpec, predecessor: Option<&Predecessor>, clock: &Clock) -> Self {
        let left_to_predecessor = spec.snapshot.take_if(|_| predecessor.is_some());
        let owner = Owner::at_start(spec.snapshot.as_ref());
        let snapshot = spec.snapshot.as_ref();
        let previous = snapshot.and_then(|spec| PreviousSnapshot::find(spec, clock.now()));
        if let Some(previous) = &previous {
            clock.continue_from(previous.saved_at());
        }
        if let Some(predecessor) = predecessor {
            clock.continue_from(predecessor.now());
        }
        Self {
            owner,
            previous,
            left_to_predecessor,
        }
    }

    /// The secret of fingerprints: that of the buckets, or else the one that machines share.
    fn secret(&self, predecessor: Option<&Predecessor>, store: Option<&StoreSpec>) -> Secret {
        predecessor
            .map(Predecessor::secret)
            .or_else(|| self.previous.as_ref().map(PreviousSnapshot::secret))
            .or_else(|| store.and_then(|store| store.key_secret))
            .unwrap_or_else(Secret::random)
    }
}

/// Builds the first ruleset, with the buckets that the process before has saved. Returns the version of
/// their file, if all were read.
fn first_ruleset(
    prepared: PreparedRuleset,
    previous: Option<PreviousSnapshot>,
    clock: &Clock,
) -> (Arc<Ruleset>, Option<FileVersion>) {
    let ruleset = prepared.migrate_buckets(clock.now());
    let version = previous.and_then(|previous| {
        let version = previous.version();
        version.filter(|_| previous.restore(&ruleset, clock.now()))
    });
    (ruleset, version)
}

/// The parts that the admin API sees, some of which it shares with the process.
fn admin_context(
    context: &BuildContext,
    gateway: &Arc<Gateway>,
    reloader: &Reloader,
    started_at: Timestamp,
) -> AdminContext {
    AdminContext {
        registry: context.registry.clone(),
        readiness: Readiness::default(),
        gateway: Arc::clone(gateway),
        clock: Arc::clone(&context.clock),
        access: reloader.access.clone(),
        hosts: reloader.hosts.clone(),
        reloads: reloader.history.clone(),
        facts: ProcessFacts {
            version: process_series::VERSION,
            revision: process_series::REVISION,
            workers: context.workers,
            started_at,
            started: Instant::now(),
        },
        recent: RecentCounts::new(&context.registry, admin::recent_events()),
        history: History::default(),
        snapshot_problem: StatusProblem::default(),
        unread_problem: StatusProblem::default(),
        upgrade_problem: StatusProblem::default(),
        restart_problem: reloader.restart_problem.clone(),
        playground: playground::api(),
    }
}

/// Starts the workers; each accepts clients after its `startup`.
fn start_server(
    listeners: BoundListeners,
    gateway: &Arc<Gateway>,
    startup: WorkerHook,
) -> Result<Server, StartError> {
    let (clients, last) = (Arc::clone(gateway), Arc::clone(gateway));
    Server::start_with(
        listeners,
        move |connection| gateway::service(&clients, connection),
        startup,
        Arc::new(move |worker| Box::pin(Arc::clone(&last).flush_stores(worker))),
    )
}

/// The startup of each worker, before it accepts clients.
fn worker_startup(connections: &RedisConnections, is_open: &watch::Sender<bool>) -> WorkerHook {
    let (connections, is_open) = (connections.clone(), is_open.clone());
    Arc::new(move |worker| {
        let connected = connections.keep(worker);
        let mut is_open = is_open.subscribe();
        Box::pin(async move {
            tokio::spawn(connected);
            // The sender is gone only if the process ends.
            let _ = is_open.wait_for(|is_open| *is_open).await;
        })
    })
}
