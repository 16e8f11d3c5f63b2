//! The phase of the process, and the use of its connections.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicU8, Ordering::Relaxed},
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::server::ConnectionBounds;

/// The phase of the process.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, strum::IntoStaticStr,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Phase {
    /// Not all listeners serve yet.
    Starting,
    /// Takes traffic.
    Ready,
    /// Finishes its connections, and takes no new ones.
    Draining,
}

/// Connections of clients.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Connections {
    /// Open ones.
    pub open: usize,
    /// The most.
    pub max: usize,
}

/// The process's phase, which `app` sets and probes read, and the use of its connections. Clones
/// share it; it starts as `Starting`.
#[derive(Clone, Debug, Default)]
pub struct Readiness {
    phase: Arc<AtomicU8>,
    pressure: Arc<OnceLock<Arc<ConnectionBounds>>>,
}

impl Readiness {
    /// Enters a phase.
    pub fn set(&self, phase: Phase) {
        self.phase.store(phase as u8, Relaxed);
    }

    /// Reports the use of these connections from now on.
    pub fn watch(&self, pressure: Arc<ConnectionBounds>) {
        let _ = self.pressure.set(pressure);
    }

    /// A line if connections run out. The process still takes traffic.
    pub(super) fn pressure_line(&self) -> String {
        let pressure = self.pressure();
        let line = pressure.and_then(|pressure| {
            let giving_way = pressure.giving_way()?;
            let (open, max) = (pressure.open(), pressure.max());
            Some(format!("connections: {open} of {max}, {giving_way}\n"))
        });
        line.unwrap_or_default()
    }

    /// The use of connections; `None` before all listeners serve.
    pub(super) fn pressure(&self) -> Option<&ConnectionBounds> {
        self.pressure.get().map(|bounds| &**bounds)
    }

    /// The number of connections.
    pub(super) fn connections(&self) -> Connections {
        Connections {
            open: self.pressure().map_or(0, ConnectionBounds::open),
            max: self.pressure().map_or(0, ConnectionBounds::max),
        }
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
