//! The process, as endpoints see it.

use std::sync::Arc;
use std::time::Duration;

use derive_more::Deref;
use tokio::time::Instant;

use super::access::Access;
use super::computations::{Playground, PlaygroundApi};
use super::hosts::AllowedHosts;
use super::readiness::Readiness;
use super::reload_history::ReloadHistory;
use super::scrape::MetricsRenderer;
use super::status_problem::StatusProblem;
use super::streams::readers::Streams;
use super::traffic_history::History;
use crate::clock::{Clock, Timestamp};
use crate::proxy::Gateway;
use crate::telemetry::log_throttle::LogThrottle;
use crate::telemetry::metrics::{AdminMetrics, RecentCounts};
use crate::telemetry::registry::Registry;

/// The parts of the process that endpoints read and change. `app` keeps clones of some.
#[derive(Clone, Debug)]
pub struct AdminContext {
    /// The registry of metric series.
    pub registry: Registry,
    /// The phase of the process, and the use of its connections.
    pub readiness: Readiness,
    /// The server of requests, with the ruleset in force.
    pub gateway: Arc<Gateway>,
    /// The clock.
    pub clock: Arc<Clock>,
    /// The tokens of callers.
    pub access: Access,
    /// The hosts of the listener.
    pub hosts: AllowedHosts,
    /// The running configuration, and the last reloads.
    pub reloads: ReloadHistory,
    /// The constants of the process.
    pub facts: ProcessFacts,
    /// The events of the last minutes.
    pub recent: RecentCounts,
    /// The counts of the last hour.
    pub history: History,
    /// The reason why buckets aren't saved.
    pub snapshot_problem: StatusProblem,
    /// A snapshot that could not be read.
    pub unread_problem: StatusProblem,
    /// The reason why the last upgrade failed.
    pub upgrade_problem: StatusProblem,
    /// The changes that wait for a restart.
    pub restart_problem: StatusProblem,
    /// The computations of the playground.
    pub playground: PlaygroundApi,
}

/// The constants of the process.
#[derive(Clone, Copy, Debug)]
pub struct ProcessFacts {
    /// The version of the program.
    pub version: &'static str,
    /// The commit that the program was built from.
    pub revision: &'static str,
    /// The number of worker threads.
    pub workers: usize,
    /// The start of the process.
    pub started_at: Timestamp,
    /// The start of the process on the monotonic clock.
    pub started: Instant,
}

/// The process, and what the admin listener adds to it. Clones share it.
#[derive(Clone, Deref)]
pub(super) struct AdminState(Arc<AdminParts>);

/// The parts of the admin listener's state.
#[derive(Deref)]
pub(super) struct AdminParts {
    #[deref]
    context: AdminContext,
    pub(super) metrics: MetricsRenderer,
    pub(super) admin_metrics: AdminMetrics,
    pub(super) streams: Streams,
    pub(super) playground: Playground,
    /// Changes that callers ask for which may make none.
    pub(super) refused_changes: LogThrottle,
}

impl AdminState {
    pub(super) fn new(context: AdminContext) -> Self {
        let admin_metrics = AdminMetrics::new(&context.registry);
        Self(Arc::new(AdminParts {
            metrics: MetricsRenderer::new(context.registry.clone()),
            streams: Streams::new(admin_metrics.clone(), Arc::clone(&context.history.events)),
            admin_metrics,
            playground: Playground::new(context.playground),
            refused_changes: LogThrottle::new(Duration::from_secs(1)),
            context,
        }))
    }
}
