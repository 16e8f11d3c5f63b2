//! The readiness of the process.

use std::sync::{
    Arc,
    atomic::{AtomicU8, Ordering::Relaxed},
};

/// The stage of the process, for `/readyz`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Not all listeners serve yet.
    Starting,
    /// Takes traffic.
    Ready,
    /// Finishes its connections, and takes no new ones.
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

/// The process's state, which `app` sets and probes read. Clones share it; it starts as `Starting`.
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
