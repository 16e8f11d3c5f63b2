//! Whether the process takes traffic.

use std::sync::{
    Arc,
    atomic::{AtomicU8, Ordering::Relaxed},
};

/// Where a process is in its life, as `/readyz` says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Not all listeners serve yet.
    Starting,
    /// Takes traffic.
    Ready,
    /// Serves what it has, and wants no more.
    Draining,
}

impl State {
    /// Returns the word that `/readyz` answers.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Ready => "ready",
            Self::Draining => "draining",
        }
    }
}

/// The process's state: set by whoever runs it, read by probes. Clones are one; starts as `Starting`.
#[derive(Clone, Debug, Default)]
pub struct Readiness(Arc<AtomicU8>);

impl Readiness {
    /// Changes the state.
    pub fn set(&self, state: State) {
        self.0.store(state as u8, Relaxed);
    }

    /// Returns the state.
    pub fn get(&self) -> State {
        match self.0.load(Relaxed) {
            0 => State::Starting,
            1 => State::Ready,
            _ => State::Draining,
        }
    }
}
