//! The last hour: what became of requests, and what policies decided, in steps of 10 s, and events.

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::io::{Read, Write};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use super::json::Rfc3339;
use super::per_label::{PerDecision, PerOutcome};
use super::problem::KnownProblems;
use super::streams::readers::{PastEvents, message};
use super::totals::{Totals, made, rounded};
use crate::clock::Timestamp;
use crate::proxy::activity::RefusedKeys;
use crate::proxy::{Gateway, Ruleset};

/// The most steps that are kept: those of an hour.
pub(super) const MAX_STEPS: usize = 360;

/// The most policies of a step, those that decide most: an hour of them takes 3.2 MB.
const MAX_POLICIES: usize = 100;

/// The steps and events of the last hour, the oldest first. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct History {
    steps: Arc<Mutex<VecDeque<Step>>>,
    /// The counts at the last step but one, and at the last.
    totals: Arc<Mutex<[Option<Totals>; 2]>>,
    pub(super) events: Arc<Mutex<PastEvents>>,
    pub(super) problems: Arc<Mutex<KnownProblems>>,
}

/// Data that a process hands to the one that takes over from it, which may be of another version.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct Past {
    #[serde(deserialize_with = "read_part")]
    steps: VecDeque<Step>,
    #[serde(deserialize_with = "read_part")]
    events: VecDeque<(Rfc3339, String)>,
    #[serde(deserialize_with = "read_part")]
    refused: RefusedKeys,
    #[serde(deserialize_with = "read_part")]
    problems: KnownProblems,
}

/// Reads a part. If another version has written it otherwise, it's left out, and the others stay.
fn read_part<'a, D, T>(from: D) -> Result<T, D::Error>
where
    D: Deserializer<'a>,
    T: DeserializeOwned + Default,
{
    let text = Box::<RawValue>::deserialize(from)?;
    let read = serde_json::from_str(text.get());
    if let Err(error) = &read {
        tracing::warn!("a part of the history of the old process can't be read: {error}");
    }
    Ok(read.unwrap_or_default())
}

/// This process took over from another.
#[derive(Serialize, JsonSchema)]
pub(super) struct UpgradeEvent {
    at: Rfc3339,
    /// The version that runs from now on.
    version: &'static str,
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
    /// Writes the steps and events for the process that takes over, and since when keys are refused and
    /// problems known.
    ///
    /// # Errors
    /// An error of the writer.
    pub fn write(
        &self,
        writer: impl Write,
        gateway: &Gateway,
        now: Timestamp,
    ) -> serde_json::Result<()> {
        let problems = self
            .steps
            .lock()
            .back()
            .map_or(0, |step| step.counts.problems);
        self.end_step(&gateway.ruleset(), now, Duration::from_secs(1), || problems);
        let past = Past {
            steps: self.steps.lock().clone(),
            events: self.events.lock().messages.clone(),
            refused: gateway.activity.refused_keys(now),
            problems: self.problems.lock().clone(),
        };
        serde_json::to_writer(writer, &past)
    }

    /// Begins with what another process has written.
    ///
    /// # Errors
    /// An error of the reader, or another format.
    pub fn begin_with(
        &self,
        reader: impl Read,
        gateway: &Gateway,
        now: Timestamp,
    ) -> serde_json::Result<()> {
        let past: Past = serde_json::from_reader(reader)?;
        let (at, version) = (Rfc3339(now), env!("CARGO_PKG_VERSION"));
        let event = message("upgrade", &UpgradeEvent { at, version });
        // No request has come yet.
        self.totals.lock()[1] = Some(Totals::at(now));
        *self.steps.lock() = past.steps;
        *self.problems.lock() = past.problems;
        self.events
            .lock()
            .begin_with(past.events.into_iter().chain([(at, event)]));
        gateway.activity.begin_with(past.refused);
        Ok(())
    }

    /// Passes the totals at the last step but one, and the seconds since then, to `read`. `None` before
    /// the first step.
    pub(super) fn since<T>(
        &self,
        now: Timestamp,
        read: impl FnOnce(&Totals, f64) -> T,
    ) -> Option<T> {
        let totals = self.totals.lock();
        let before = totals[0].as_ref()?;
        Some(read(before, now.since(before.at).as_secs_f64()))
    }

    /// The steps that `read` is given, the oldest first.
    pub(super) fn read<T>(&self, read: impl FnOnce(&VecDeque<Step>) -> T) -> T {
        read(&self.steps.lock())
    }

    /// Ends a step that has taken this long, with the number of problems.
    pub(super) fn end_step(
        &self,
        ruleset: &Ruleset,
        now: Timestamp,
        least: Duration,
        problems: impl FnOnce() -> usize,
    ) {
        let begin = self.totals.lock()[1]
            .get_or_insert_with(|| Totals::at(now))
            .at;
        let length = now.since(begin);
        if length < least {
            return;
        }
        let problems = problems();
        let mut ends = self.totals.lock();
        let before = ends[1].get_or_insert_with(|| Totals::at(now));
        let totals = Totals::of(ruleset, now);
        let policies = made(before, &totals).map(|(name, made)| (Arc::clone(name), made.into()));
        let mut policies: Vec<(_, PerDecision<u64>)> = policies.collect();
        policies.sort_unstable_by_key(|(_, made)| Reverse(made.0.iter().sum::<u64>()));
        policies.truncate(MAX_POLICIES);
        let counts = StepCounts {
            at: Rfc3339(now),
            seconds: rounded(length.as_secs_f64()),
            requests: totals.requests_since(before).outcomes.into(),
            problems,
        };
        *ends = [ends[1].take(), Some(totals)];
        let mut steps = self.steps.lock();
        if steps.len() == MAX_STEPS {
            steps.pop_front();
        }
        steps.push_back(Step { counts, policies });
    }
}

#[cfg(test)]
mod tests;
