//! Exchanges the running ruleset for a new one, or leaves all as it is.
//!
//! Everything that can fail is done first, aside, and off the runtimes that serve: new addresses are
//! bound, too. Then the buckets are handed over, the ruleset is swapped, and listeners change: none
//! of it can fail.

use std::sync::Arc;

use super::StartupError;
use super::access_logs::{self, Writers};
use super::config_log::{self, MAX_LINES, WarningLog};
use super::file_shares::{self, FileShares};
use super::redis_connections::RedisConnections;
use super::snapshot_thread::SnapshotThread;
use super::span_exporter::SpanExport;
use crate::admin::access::{Access, MadeToken};
use crate::admin::hosts::AllowedHosts;
use crate::admin::listener;
use crate::admin::reload_history::{ConfigInfo, ReloadHistory, RunningConfig};
use crate::admin::status_problem::StatusProblem;
use crate::clock::Timestamp;
use crate::config::{Loaded, ProcessSpec, ShutdownTimes, Source, compile};
use crate::files::VersionedFile;
use crate::proxy::ruleset::build::{BuildContext, PreparedRuleset};
use crate::proxy::ruleset::reload_diff::{BucketChange, compare};
use crate::proxy::{Gateway, Ruleset};
use crate::server::{CurrentRules, Server, ServerChange};
use crate::telemetry::metrics::ConfigMetrics;

/// The state of a reload, and the state that it keeps for the next.
#[derive(Debug)]
pub(super) struct Reloader {
    source: Source,
    context: BuildContext,
    client_rules: CurrentRules,
    /// The tokens of the admin API's callers.
    pub(super) access: Access,
    /// The hosts of the admin listener.
    pub(super) hosts: AllowedHosts,
    /// The running configuration, and the last reloads.
    pub(super) history: ReloadHistory,
    /// How long shutting down may take.
    pub(super) shutdown: ShutdownTimes,
    files: Vec<VersionedFile>,
    /// The files of the configuration that failed last, until one takes effect.
    files_of_failed: Vec<VersionedFile>,
    warning_log: WarningLog,
    /// The access logs that are being written.
    pub(super) access_logs: Writers,
    /// The export of spans, if there is one.
    export: Option<SpanExport>,
    redis_connections: RedisConnections,
    /// The changes that wait for a restart, if there are any.
    pub(super) restart_problem: StatusProblem,
    metrics: ConfigMetrics,
}

impl Reloader {
    /// Remembers what was started with.
    pub(super) fn new(
        source: Source,
        spec: &ProcessSpec,
        context: BuildContext,
        export: Option<SpanExport>,
        redis_connections: RedisConnections,
        warning_log: WarningLog,
        made_token: Option<MadeToken>,
    ) -> Self {
        let now = context.clock.now();
        let metrics = ConfigMetrics::new(&context.registry, &spec.info.hash, seconds(now));
        metrics.certificates(periods(&spec.info));
        Reloader {
            metrics,
            client_rules: spec.server.client_rules.clone(),
            access: Access::new(spec.admin.access.clone(), made_token),
            hosts: AllowedHosts::of_listener(spec.admin.address.ip(), spec.admin.hosts.clone()),
            history: ReloadHistory::new(RunningConfig {
                info: spec.info.clone(),
                loaded_at: now,
            }),
            shutdown: spec.shutdown,
            files: spec.files.clone(),
            files_of_failed: Vec::new(),
            warning_log,
            access_logs: Writers::default(),
            export,
            redis_connections,
            restart_problem: StatusProblem::default(),
            source,
            context,
        }
    }

    /// The files whose change is a reason to reload, in the versions that were read.
    pub(super) fn files(&self) -> Vec<VersionedFile> {
        self.source
            .file()
            .into_iter()
            .map(|path| VersionedFile::new(path.into()))
            .chain(self.files.iter().chain(&self.files_of_failed).cloned())
            .collect()
    }

    /// Reads the configuration again, and connects to its store. Changes nothing that serves, so it may be dropped.
    ///
    /// # Errors
    /// The problems of the configuration.
    pub(super) async fn prepare(
        &self,
        running: Arc<Ruleset>,
        server: &Server,
        admin: &Server,
    ) -> Result<Prepared, StartupError> {
        let (source, context) = (self.source.clone(), self.context.clone());
        let (export, before) = (self.export.clone(), Arc::clone(&running));
        let files = self.files.clone();
        let built =
            off_the_runtime(move || build(&source, &files, &context, export.as_ref(), &before));
        let (ruleset, config) = built.await??;
        let spec = &config.spec;
        let files = file_shares::raise_and_divide(&spec.server, &self.warning_log);
        let mut client = spec.server.client;
        client.max_connections = files.clients;
        let server = server.plan(&spec.server.listeners, client)?;
        let listener = listener::listener(spec.admin.address, spec.admin.tls.clone());
        let admin = admin.plan(&[listener], admin.client())?;
        self.redis_connections
            .connect(&ruleset.ruleset, &running)
            .await;
        Ok(Prepared {
            ruleset,
            config,
            files,
            server,
            admin,
        })
    }

    /// Runs what was prepared. A bad configuration changes nothing, and is reported.
    pub(super) async fn finish(
        &mut self,
        prepared: Result<Prepared, StartupError>,
        gateway: &Gateway,
        snapshots: &SnapshotThread,
        server: &mut Server,
        admin: &mut Server,
    ) {
        let prepared = match prepared {
            Ok(prepared) => prepared,
            Err(why) => return self.failed(why).await,
        };
        let (ruleset, clock) = (prepared.ruleset, Arc::clone(&self.context.clock));
        let migrated = off_the_runtime(move || ruleset.migrate_buckets(clock.now()));
        let ruleset = match migrated.await {
            Ok(ruleset) => ruleset,
            Err(panicked) => return self.failed(panicked).await,
        };
        let config = prepared.config;
        self.swap(ruleset, &config.spec, gateway);
        prepared.files.limit_upstreams(gateway);
        let deadline = config.spec.shutdown.deadline.get();
        server.adopt(prepared.server, deadline).await;
        admin.adopt(prepared.admin, deadline).await;
        self.apply(config, gateway, snapshots);
    }

    /// Decides the next requests by the new ruleset, before listeners change.
    fn swap(&mut self, ruleset: Arc<Ruleset>, spec: &ProcessSpec, gateway: &Gateway) {
        self.access_logs.note(&ruleset);
        if self.history.is_running(&spec.info.hash) {
            // Another file has changed, such as a certificate.
            ruleset.keep_modes(&gateway.ruleset());
        }
        gateway.swap(ruleset);
        self.client_rules
            .store(spec.server.client_rules.load_full());
    }

    async fn failed(&mut self, why: StartupError) {
        if let StartupError::Config(report) = &why {
            self.files_of_failed.clone_from(&report.files);
        }
        let now = self.context.clock.now();
        // Whatever the file holds, showing it must not end the process.
        let why = Arc::new(why);
        let shown = Arc::clone(&why);
        let report = off_the_runtime(move || shown.to_string()).await;
        let report = report.unwrap_or_else(|panicked| panicked.to_string());
        // Before the log: who reads there that it failed also finds the reason.
        self.history.failed(now, &report);
        config_log::log_failure(&why);
        // Last, so that anyone who sees the count also finds the log line and the history.
        self.metrics.failed();
    }

    fn apply(&mut self, config: ProcessConfig, gateway: &Gateway, snapshots: &SnapshotThread) {
        let (spec, loaded, buckets) = (config.spec, config.loaded, config.buckets);
        self.report_pending_restart(&spec);
        snapshots.follow(spec.snapshot);
        self.access.reload(spec.admin.access);
        self.hosts.reload(spec.admin.address.ip(), spec.admin.hosts);
        let now = self.context.clock.now();
        gateway.activity.set_key_form(spec.admin.keys, now);
        self.export = config.export;
        self.export.iter().for_each(SpanExport::enforce);
        self.shutdown = spec.shutdown;
        self.files = spec.files;
        self.files_of_failed = Vec::new();
        let hash = spec.info.hash.clone();
        self.metrics.certificates(periods(&spec.info));
        tracing::info!(hash, "the configuration is reloaded");
        let running = RunningConfig {
            info: spec.info,
            loaded_at: now,
        };
        let mut warnings = loaded.warnings.sentences();
        let (lists, emptied) = self.history.changed_lists(&running);
        for warning in emptied.iter().take(MAX_LINES) {
            tracing::warn!("{warning}");
        }
        warnings.extend(emptied);
        config_log::log_changes(&buckets);
        self.history.succeeded(running, buckets, lists, warnings);
        self.warning_log.log(loaded, now);
        // Last, so that anyone who sees the count also finds the log line and the history.
        self.metrics.reloaded(&hash, seconds(now));
    }

    /// Reports a change that needs a restart: in the log, and in `/v1/status`.
    fn report_pending_restart(&self, new: &ProcessSpec) {
        self.restart_problem.clear();
        if self.context.workers != new.server.workers.get() {
            let change = "changes of workers take effect at a restart";
            tracing::warn!("{change}");
            self.restart_problem
                .set(format!("restart pending: {change}"));
        }
    }
}

/// A configuration that can no longer fail: new addresses are bound, and the ruleset is ready to
/// take over the buckets.
pub(super) struct Prepared {
    ruleset: PreparedRuleset,
    config: ProcessConfig,
    files: FileShares,
    server: ServerChange,
    admin: ServerChange,
}

/// The compiled configuration outside the ruleset.
struct ProcessConfig {
    spec: ProcessSpec,
    export: Option<SpanExport>,
    loaded: Loaded,
    /// The outcome for the buckets of the running ruleset.
    buckets: Vec<BucketChange>,
}

async fn off_the_runtime<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, StartupError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|panicked| StartupError::system("the reload")(panicked.into()))
}

/// Compiles the configuration, and prepares the ruleset that takes over from `running`, which was
/// compiled from `files`.
fn build(
    source: &Source,
    files: &[VersionedFile],
    context: &BuildContext,
    export: Option<&SpanExport>,
    running: &Ruleset,
) -> Result<(PreparedRuleset, ProcessConfig), StartupError> {
    let loaded = source.load()?.without_vanished(files)?;
    let compiled = compile(&loaded)?;
    let access_log = access_logs::provide(compiled.access_log.as_ref(), context, Some(running))?;
    let export = SpanExport::provide(compiled.export, &context.registry, export)?;
    let ruleset = PreparedRuleset::new(compiled.rules, context, Some(running))
        .with_logs(access_log, export.as_ref().map(SpanExport::queue));
    let config = ProcessConfig {
        spec: compiled.process,
        export,
        loaded,
        buckets: compare((running, &*running.kept()), (&ruleset.ruleset, &[][..])),
    };
    Ok((ruleset, config))
}

/// When its certificates begin and end to be valid, by file.
fn periods(info: &ConfigInfo) -> impl Iterator<Item = (String, [u64; 2])> {
    let certificates = info.certificates.iter();
    certificates.map(|one| {
        let period = [one.validity.not_before, one.validity.not_after];
        (one.path.display().to_string(), period)
    })
}

fn seconds(instant: Timestamp) -> i64 {
    (instant.as_micros() / 1_000_000) as i64
}
