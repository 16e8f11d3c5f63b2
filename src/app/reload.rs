//! Exchanges the running ruleset for a new one, or leaves all as it is.
//!
//! Everything that can fail is done first, aside, and off the runtimes that serve: new addresses are
//! bound, too. Then the buckets are handed over, the snapshot is swapped, and listeners change: none
//! of it can fail.

use std::sync::Arc;

use super::StartupError;
use super::access_logs::{self, Writers};
use super::config_log;
use super::connections::Connections;
use super::descriptors::{self, FileShares};
use super::snapshot_thread::SnapshotThread;
use super::span_exporter::SpanExport;
use crate::admin::access::Access;
use crate::admin::hosts::AllowedHosts;
use crate::admin::reload_history::{ReloadHistory, RunningConfig};
use crate::admin::status_problem::StatusProblem;
use crate::admin::{AdminSpec, listener};
use crate::clock::Timestamp;
use crate::config::{Compiled, ConfigText, Loaded, ShutdownTimes, SnapshotSpec, Source, compile};
use crate::files::VersionedFile;
use crate::proxy::ruleset::build::{BuildContext, PreparedRuleset};
use crate::proxy::ruleset::reload_diff::{BucketChange, compare};
use crate::proxy::{Gateway, Ruleset};
use crate::server::tls::CertificateEnd;
use crate::server::{ClientRules, Server, ServerChange, ServerSpec};
use crate::telemetry::metrics::ConfigMetrics;

/// The state of a reload, and the state that it keeps for the next.
#[derive(Debug)]
pub(super) struct Reloader {
    source: Source,
    surroundings: BuildContext,
    client_rules: ClientRules,
    access: Access,
    hosts: AllowedHosts,
    /// The running configuration, and the last reloads.
    pub(super) history: ReloadHistory,
    shutdown: ShutdownTimes,
    files: Vec<VersionedFile>,
    /// The access logs that are being written.
    pub(super) access_logs: Writers,
    /// The export of spans, if there is one.
    export: Option<SpanExport>,
    connections: Connections,
    /// The changes that wait for a restart, if there are any.
    pub(super) restart_problem: StatusProblem,
    metrics: ConfigMetrics,
}

impl Reloader {
    /// Remembers what was started with.
    pub(super) fn new(
        source: Source,
        compiled: &Compiled,
        surroundings: BuildContext,
        export: Option<SpanExport>,
        connections: Connections,
    ) -> Self {
        let now = surroundings.clock.now();
        let running = running_config(&compiled.text, &compiled.certificates, now);
        let metrics = ConfigMetrics::new(&surroundings.registry, &running.hash, seconds(now));
        metrics.certificates(ends(&running));
        Reloader {
            metrics,
            client_rules: compiled.server.client_rules.clone(),
            access: Access::new(compiled.admin.access.clone()),
            hosts: AllowedHosts::of_listener(
                compiled.admin.address.ip(),
                compiled.admin.hosts.clone(),
            ),
            history: ReloadHistory::new(running),
            shutdown: compiled.shutdown,
            files: compiled.files.clone(),
            access_logs: Writers::default(),
            export,
            connections,
            restart_problem: StatusProblem::default(),
            source,
            surroundings,
        }
    }

    /// The files whose change is a reason to reload, in the versions that were read.
    pub(super) fn files(&self) -> Vec<VersionedFile> {
        self.source
            .file()
            .into_iter()
            .map(|path| VersionedFile::new(path.into()))
            .chain(self.files.clone())
            .collect()
    }

    /// The tokens of the admin API's callers, which reloads replace.
    pub(super) fn access(&self) -> &Access {
        &self.access
    }

    /// The hosts of the admin listener, which reloads replace.
    pub(super) fn hosts(&self) -> &AllowedHosts {
        &self.hosts
    }

    /// Takes note of what of a snapshot that now runs will have to be ended.
    pub(super) fn follow(&mut self, snapshot: &Ruleset) {
        self.access_logs.note(snapshot);
    }

    /// How the process is to end.
    pub(super) fn shutdown(&self) -> ShutdownTimes {
        self.shutdown
    }

    /// Reads the configuration again, and connects to its store. Changes nothing that serves, so it may be dropped.
    ///
    /// # Errors
    /// The problems of the configuration.
    pub(super) async fn prepare(
        &self,
        running: Arc<Ruleset>,
        (server, admin): (&Server, &Server),
    ) -> Result<Prepared, StartupError> {
        let build = build(
            self.source.clone(),
            self.surroundings.clone(),
            self.export.clone(),
            Arc::clone(&running),
        );
        let Built { ruleset, rest } = off_the_runtime(build).await??;
        let files = descriptors::provide(&rest.server);
        let mut client = rest.server.client;
        client.max_connections = files.clients;
        let server = server.plan(&rest.server.listeners, client)?;
        let listener = listener::listener(rest.admin.address, rest.admin.tls.clone());
        let admin = admin.plan(&[listener], admin.client())?;
        self.connections.connect(ruleset.ruleset(), &running).await;
        Ok(Prepared {
            ruleset,
            rest,
            files,
            server,
            admin,
        })
    }

    /// Runs what was prepared. A bad configuration changes nothing, and is reported.
    pub(super) async fn finish(
        &mut self,
        prepared: Result<Prepared, StartupError>,
        running: Running<'_>,
    ) {
        let prepared = match prepared {
            Ok(prepared) => prepared,
            Err(why) => return self.failed(&why),
        };
        let Prepared {
            ruleset,
            rest,
            files,
            server,
            admin,
        } = prepared;
        let clock = Arc::clone(&self.surroundings.clock);
        let snapshot = match off_the_runtime(move || ruleset.migrate_buckets(clock.now())).await {
            Ok(snapshot) => snapshot,
            Err(panicked) => return self.failed(&panicked),
        };
        self.swap(snapshot, &rest, running.gateway);
        files.limit_upstreams(running.gateway);
        let deadline = rest.shutdown.deadline.get();
        running.server.adopt(server, deadline).await;
        running.admin.adopt(admin, deadline).await;
        self.apply(rest, running.gateway, running.keeper);
    }

    /// Decides the next requests by the new ruleset, before listeners change.
    fn swap(&mut self, snapshot: Arc<Ruleset>, rest: &Rest, gateway: &Gateway) {
        self.follow(&snapshot);
        if self.history.is_running(&rest.text.hash) {
            // Another file has changed, such as a certificate.
            snapshot.keep_modes(&gateway.ruleset());
        }
        gateway.swap(snapshot);
        self.client_rules.adopt(&rest.server.client_rules);
    }

    fn failed(&self, why: &StartupError) {
        let now = self.surroundings.clock.now();
        self.history.failed(now, &why.to_string());
        config_log::log_failure(why);
        // Last: whoever sees the count finds the rest.
        self.metrics.failed();
    }

    fn apply(&mut self, compiled: Rest, gateway: &Gateway, keeper: &SnapshotThread) {
        self.warn_of_restart(&compiled);
        keeper.follow(compiled.snapshot);
        self.access.reload(compiled.admin.access);
        let admin = compiled.admin.address.ip();
        self.hosts.reload(admin, compiled.admin.hosts);
        let now = self.surroundings.clock.now();
        gateway.activity().set_key_form(compiled.admin.keys, now);
        self.export = compiled.export;
        self.export.iter().for_each(SpanExport::enforce);
        self.shutdown = compiled.shutdown;
        self.files = compiled.files;
        let running = running_config(&compiled.text, &compiled.certificates, now);
        let hash = running.hash.clone();
        self.metrics.certificates(ends(&running));
        tracing::info!(hash, "the configuration is reloaded");
        let warnings = compiled.loaded.warnings.sentences();
        let changes = compiled.buckets.clone();
        self.history.succeeded(running, changes, warnings);
        config_log::log_changes(&compiled.buckets);
        config_log::log_warnings(compiled.loaded, now);
        // Last: whoever sees the count finds the rest.
        self.metrics.reloaded(&hash, seconds(now));
    }

    /// Says what is not what runs, and will not be before a restart.
    fn warn_of_restart(&self, new: &Rest) {
        self.restart_problem.clear();
        if self.surroundings.workers != new.server.workers.get() {
            tracing::warn!("changes of workers take effect at a restart");
            let problem = "restart pending: changes of workers take effect at a restart";
            self.restart_problem.set(problem.to_owned());
        }
    }
}

/// The parts of the process that a reload changes.
pub(super) struct Running<'a> {
    pub(super) gateway: &'a Gateway,
    pub(super) keeper: &'a SnapshotThread,
    pub(super) server: &'a mut Server,
    pub(super) admin: &'a mut Server,
}

/// A configuration that can no longer fail: new addresses are bound, and the ruleset is ready to
/// take over the buckets.
pub(super) struct Prepared {
    ruleset: PreparedRuleset,
    rest: Rest,
    files: FileShares,
    server: ServerChange,
    admin: ServerChange,
}

/// A compiled configuration.
struct Built {
    ruleset: PreparedRuleset,
    rest: Rest,
}

/// The compiled configuration outside the ruleset.
struct Rest {
    server: ServerSpec,
    admin: AdminSpec,
    snapshot: Option<SnapshotSpec>,
    shutdown: ShutdownTimes,
    export: Option<SpanExport>,
    files: Vec<VersionedFile>,
    certificates: Vec<CertificateEnd>,
    text: ConfigText,
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

fn build(
    source: Source,
    surroundings: BuildContext,
    export: Option<SpanExport>,
    running: Arc<Ruleset>,
) -> impl FnOnce() -> Result<Built, StartupError> {
    move || {
        let loaded = source.load()?;
        let compiled = compile(&loaded)?;
        let access_log = compiled.access_log.as_ref();
        let access_log = access_logs::provide(access_log, &surroundings, Some(&running))?;
        let registry = &surroundings.registry;
        let export = SpanExport::provide(compiled.export, registry, export.as_ref())?;
        let ruleset = PreparedRuleset::new(compiled.rules, &surroundings, Some(&running))
            .with_access_log(access_log)
            .with_spans(export.as_ref().map(SpanExport::queue));
        let rest = Rest {
            loaded,
            buckets: compare(&*running, ruleset.ruleset()),
            server: compiled.server,
            admin: compiled.admin,
            snapshot: compiled.snapshot,
            shutdown: compiled.shutdown,
            export,
            files: compiled.files,
            certificates: compiled.certificates,
            text: compiled.text,
        };
        Ok(Built { ruleset, rest })
    }
}

/// The configuration that runs from `now` on.
fn running_config(
    text: &ConfigText,
    certificates: &[CertificateEnd],
    now: Timestamp,
) -> RunningConfig {
    RunningConfig {
        source: text.source.clone(),
        text: Arc::clone(&text.masked),
        hash: text.hash.clone(),
        certificates: certificates.into(),
        loaded_at: now,
    }
}

/// The ends of its certificates, by file.
fn ends(running: &RunningConfig) -> impl Iterator<Item = (String, u64)> {
    let certificates = running.certificates.iter();
    certificates.map(|one| (one.path.display().to_string(), one.not_after))
}

fn seconds(instant: Timestamp) -> i64 {
    (instant.as_micros() / 1_000_000) as i64
}
