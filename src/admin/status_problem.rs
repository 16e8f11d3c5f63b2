//! A problem that a part of the process reports to the list of problems.

use std::sync::Arc;

use parking_lot::Mutex;

/// A problem that a part of the process has, or not. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct StatusProblem(Arc<Mutex<Option<String>>>);

impl StatusProblem {
    /// Sets the problem. Returns true if there was none.
    pub fn set(&self, problem: String) -> bool {
        self.0.lock().replace(problem).is_none()
    }

    /// Ends the problem.
    pub fn clear(&self) {
        self.0.lock().take();
    }

    /// True if there is a problem.
    pub fn is_set(&self) -> bool {
        self.0.lock().is_some()
    }

    pub(super) fn get(&self) -> Option<String> {
        self.0.lock().clone()
    }
}
