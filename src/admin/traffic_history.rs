//! The last hour: what became of requests, and what policies decided, in steps of 10 s, and events.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::sync::Arc;

use parking_lot::Mutex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::json::Rfc3339;
use super::per_label::{PerDecision, PerOutcome};
use super::streams::readers::PastEvents;
use super::totals::Totals;
use crate::clock::Timestamp;

/// The most steps that are kept: those of an hour.
pub(super) const MAX_STEPS: usize = 360;

/// The steps and events of the last hour, the oldest first. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct History {
    steps: Arc<Mutex<VecDeque<Step>>>,
    /// The counts at the last step but one.
    last: Arc<Mutex<Option<Totals>>>,
    pub(super) events: Arc<Mutex<PastEvents>>,
}

/// The counts of some seconds.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct StepCounts {
    /// The end of the step.
    pub(super) at: Rfc3339,
    /// The length of the step in seconds.
    pub(super) seconds: f64,
    /// Requests that ended, by outcome.
    pub requests: PerOutcome<u64>,
    /// Problems of /v1/status at the end of the step.
    pub(super) problems: usize,
}

/// The counts of some seconds, with the decisions of policies.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Step {
    #[serde(flatten)]
    pub(super) counts: StepCounts,
    pub(super) policies: Vec<(Arc<str>, PerDecision<u64>)>,
}

impl History {
    /// Writes the steps and events for the process that takes over.
    ///
    /// # Errors
    /// An error of the writer.
    pub fn write(&self, writer: impl Write) -> serde_json::Result<()> {
        serde_json::to_writer(writer, &(&*self.steps.lock(), &self.events.lock().messages))
    }

    /// Begins with the steps and events that another process has written.
    ///
    /// # Errors
    /// An error of the reader, or another format.
    pub fn begin_with(&self, reader: impl Read) -> serde_json::Result<()> {
        let (steps, events) = serde_json::from_reader(reader)?;
        *self.steps.lock() = steps;
        self.events.lock().begin_with(events);
        Ok(())
    }

    /// Passes the totals at the last step but one, and the seconds since then, to `read`. `None` before
    /// the first step.
    pub(super) fn since<T>(
        &self,
        now: Timestamp,
        read: impl FnOnce(&Totals, f64) -> T,
    ) -> Option<T> {
        let last = self.last.lock();
        let before = last.as_ref()?;
        Some(read(before, now.since(before.at).as_secs_f64()))
    }

    /// The steps that `read` is given, the oldest first.
    pub(super) fn read<T>(&self, read: impl FnOnce(&VecDeque<Step>) -> T) -> T {
        read(&self.steps.lock())
    }

    /// Adds a step that began with these totals.
    pub(super) fn add(&self, step: Step, before: Totals) {
        *self.last.lock() = Some(before);
        let mut steps = self.steps.lock();
        if steps.len() == MAX_STEPS {
            steps.pop_front();
        }
        steps.push_back(step);
    }
}
