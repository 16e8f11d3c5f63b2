//! Exchanges the running ruleset for a new one, or leaves all as it is.
//!
//! Everything that can fail is done first, aside, and off the runtimes that serve. Then the buckets
//! are handed over, the certificates are exchanged, and the snapshot is swapped: none of it can fail.

use std::path::PathBuf;
use std::sync::Arc;

use crate::config::{Compiled, Report, Shutdown, Source};
use crate::proxy::build::{Built, Surroundings};
use crate::proxy::{Gateway, Snapshot};
use crate::server::{ListenerSpec, Spec as ServerSpec};
use crate::telemetry::metrics::ConfigMetrics;

/// What a reload needs, and what it keeps for the next.
#[derive(Debug)]
pub(super) struct Reloader {
    source: Source,
    surroundings: Surroundings,
    server: ServerSpec,
    shutdown: Shutdown,
    files: Vec<PathBuf>,
    metrics: ConfigMetrics,
}

impl Reloader {
    /// Remembers what was started with.
    pub(super) fn new(source: Source, compiled: &Compiled, surroundings: Surroundings) -> Self {
        let now = seconds(&surroundings);
        Reloader {
            metrics: ConfigMetrics::new(&surroundings.registry, &compiled.hash, now),
            server: compiled.server.clone(),
            shutdown: compiled.shutdown,
            files: compiled.files.clone(),
            source,
            surroundings,
        }
    }

    /// The files whose change is a reason to reload.
    pub(super) fn files(&self) -> Vec<PathBuf> {
        self.source
            .file()
            .into_iter()
            .map(PathBuf::from)
            .chain(self.files.clone())
            .collect()
    }

    /// How the process is to end.
    pub(super) fn shutdown(&self) -> Shutdown {
        self.shutdown
    }

    /// Reads the configuration again. A bad one changes nothing, and is reported.
    pub(super) async fn reload(&mut self, gateway: &Gateway) {
        let prepared = prepare(
            self.source.clone(),
            self.surroundings.clone(),
            gateway.snapshot(),
        );
        match tokio::task::spawn_blocking(prepared).await {
            Ok(Ok(prepared)) => self.apply(prepared, gateway),
            Ok(Err(report)) => {
                self.metrics.failed();
                tracing::error!(
                    "the configuration is not reloaded; the old one serves on\n{report}"
                );
            }
            Err(panicked) => {
                self.metrics.failed();
                tracing::error!(%panicked, "the configuration is not reloaded; the old one serves on");
            }
        }
    }

    fn apply(&mut self, prepared: Prepared, gateway: &Gateway) {
        gateway.swap(prepared.snapshot);
        let compiled = prepared.rest;
        self.adopt(&compiled.server);
        self.shutdown = compiled.shutdown;
        self.files = compiled.files;
        self.metrics
            .reloaded(&compiled.hash, seconds(&self.surroundings));
        tracing::info!(hash = compiled.hash, "the configuration is reloaded");
    }

    /// Exchanges the certificates; says what else of the listeners has changed and waits for a restart.
    fn adopt(&mut self, new: &ServerSpec) {
        let same = |a: &ListenerSpec, b: &ListenerSpec| {
            (a.address, a.protocols, a.tls.is_some()) == (b.address, b.protocols, b.tls.is_some())
        };
        for (running, wanted) in self.server.listeners.iter().zip(&new.listeners) {
            if let (Some(running), Some(wanted)) = (&running.tls, &wanted.tls) {
                running.adopt(wanted);
            }
        }
        let listeners = self.server.listeners.len() == new.listeners.len()
            && self
                .server
                .listeners
                .iter()
                .zip(&new.listeners)
                .all(|(a, b)| same(a, b));
        if !listeners || self.server.workers != new.workers || self.server.client != new.client {
            tracing::warn!(
                "changes of workers, listeners and client bounds take effect at a restart"
            );
        }
    }
}

/// A snapshot that is ready to be swapped in, and the rest of its configuration.
struct Prepared {
    snapshot: Arc<Snapshot>,
    rest: Rest,
}

/// What of a compiled configuration is not in the snapshot.
struct Rest {
    server: ServerSpec,
    shutdown: Shutdown,
    files: Vec<PathBuf>,
    hash: String,
}

fn prepare(
    source: Source,
    surroundings: Surroundings,
    running: Arc<Snapshot>,
) -> impl FnOnce() -> Result<Prepared, Report> {
    move || {
        let compiled = source.compile()?;
        let built = Built::new(compiled.rules, &surroundings, Some(&running));
        Ok(Prepared {
            snapshot: built.hand_over(surroundings.clock.now()),
            rest: Rest {
                server: compiled.server,
                shutdown: compiled.shutdown,
                files: compiled.files,
                hash: compiled.hash,
            },
        })
    }
}

fn seconds(surroundings: &Surroundings) -> i64 {
    (surroundings.clock.now().as_micros() / 1_000_000) as i64
}
