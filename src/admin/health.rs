//! Liveness and readiness of the process.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicU8, Ordering::Relaxed},
};

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::RETRY_AFTER;

use super::{AdminState, NO_STORE, upstreams};
use crate::proxy::Ruleset;
use crate::server::ConnectionPressure;

/// The phase of the process, for `/readyz`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Not all listeners serve yet.
    Starting,
    /// Takes traffic.
    Ready,
    /// Finishes its connections, and takes no new ones.
    Draining,
}

impl Phase {
    /// Returns the word that `/readyz` answers.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Ready => "ready",
            Self::Draining => "draining",
        }
    }
}

/// The process's phase, which `app` sets and probes read, and the use of its connections. Clones
/// share it; it starts as `Starting`.
#[derive(Clone, Debug, Default)]
pub struct Readiness {
    phase: Arc<AtomicU8>,
    pressure: Arc<OnceLock<ConnectionPressure>>,
}

impl Readiness {
    /// Enters a phase.
    pub fn set(&self, phase: Phase) {
        self.phase.store(phase as u8, Relaxed);
    }

    /// Reports the use of these connections from now on.
    pub fn watch(&self, pressure: ConnectionPressure) {
        let _ = self.pressure.set(pressure);
    }

    /// A line if connections run out. The process still takes traffic.
    fn pressure_line(&self) -> String {
        let pressure = self.pressure();
        let line = pressure.and_then(|pressure| {
            let giving_way = pressure.giving_way()?;
            let (open, max) = (pressure.open(), pressure.max());
            Some(format!("connections: {open} of {max}, {giving_way}\n"))
        });
        line.unwrap_or_default()
    }

    /// The use of connections; `None` before all listeners serve.
    pub(super) fn pressure(&self) -> Option<&ConnectionPressure> {
        self.pressure.get()
    }

    /// The phase.
    pub(super) fn get(&self) -> Phase {
        match self.phase.load(Relaxed) {
            0 => Phase::Starting,
            1 => Phase::Ready,
            _ => Phase::Draining,
        }
    }
}

/// The state of the stores, and of connections.
#[derive(Debug, Default)]
struct StoreReport {
    /// A line for each store.
    lines: String,
    /// The reason why the process takes no traffic without them; `None` if it does.
    unready: Option<String>,
}

impl StoreReport {
    fn new(ruleset: &Ruleset) -> Self {
        let Some(store) = ruleset.store.redis() else {
            return Self::default();
        };
        let policies = match &*ruleset.policies_without_store() {
            // The other servers of a cluster decide about the other keys.
            _ if ruleset.store.unreachable_share() < 1.0 => None,
            [] => None,
            [first] => Some(format!("policy {first}")),
            [first, others @ ..] => Some(format!("policy {first} and {} more", others.len())),
        };
        let unready =
            |policies| format!("{policies} cannot reach Redis, and on_store_error is refuse");
        Self {
            lines: format!("redis: {}\n", store.state()),
            unready: policies.map(unready),
        }
    }
}

pub(super) async fn livez() -> impl IntoResponse {
    ([NO_STORE], "alive\n")
}

pub(super) async fn readyz(State(state): State<AdminState>) -> Response {
    let ruleset = state.gateway.ruleset();
    let mut report = StoreReport::new(&ruleset);
    for name in upstreams::down(&ruleset) {
        report.lines += &format!("upstream {name}: {}\n", upstreams::DOWN);
    }
    report.lines += &state.readiness.pressure_line();
    respond(state.readiness.get(), report)
}

fn respond(phase: Phase, StoreReport { lines, unready }: StoreReport) -> Response {
    let is_ready = phase == Phase::Ready && unready.is_none();
    let body = match unready {
        Some(reason) if phase == Phase::Ready => format!("not ready: {reason}\n{lines}"),
        _ => format!("{}\n{lines}", phase.as_str()),
    };
    if is_ready {
        return ([NO_STORE], body).into_response();
    }
    let headers = [NO_STORE, (RETRY_AFTER, "1")];
    (StatusCode::SERVICE_UNAVAILABLE, headers, body).into_response()
}
