//! The running configuration and the last reloads, which `app` records and endpoints read.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;

use derive_more::Deref;
use parking_lot::Mutex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::json::Rfc3339;
use crate::clock::Timestamp;
use crate::proxy::ruleset::reload_diff::{BucketChange, OutcomeKind};
use crate::server::tls::CertificatePeriod;

/// The most reloads that are kept.
const MAX_RELOADS: usize = 50;
/// The most changes of buckets, and of lists, that are kept of a reload.
const MAX_CHANGES: usize = 200;

/// Files with values or networks: how many each has, and a hash of its text.
pub type ListTexts = BTreeMap<PathBuf, (usize, u64)>;

/// The facts of a configuration, for people.
#[derive(Clone, Debug)]
pub struct ConfigInfo {
    /// The path of the file, or another name of the text.
    pub source: String,
    /// The text, with its secrets masked.
    pub text: Arc<str>,
    /// A hash of the text: 16 hexadecimal digits.
    pub hash: String,
    /// When its certificates are valid.
    pub certificates: Arc<[CertificatePeriod]>,
    /// The files with values or networks that conditions read.
    pub lists: Arc<ListTexts>,
    /// True if a restart keeps what is in memory, bans included.
    pub saves_buckets: bool,
}

/// The running configuration.
#[derive(Clone, Debug, Deref)]
pub struct RunningConfig {
    /// Its facts.
    #[deref]
    pub info: ConfigInfo,
    /// The instant since which it runs.
    pub loaded_at: Timestamp,
}

/// A reload.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ReloadEvent {
    /// The instant at which it ended.
    pub at: Rfc3339,
    /// Its result.
    pub result: ReloadResult,
    /// The hash of the configuration, if it runs.
    pub hash: Option<String>,
    /// The reason why it failed.
    pub error: Option<Arc<str>>,
    /// The place and the first line of the error.
    pub cause: Option<String>,
    /// Policies whose buckets do not just survive, 200 at most.
    pub buckets: Vec<BucketChange>,
    /// Files with values or networks whose text is another one, 200 at most.
    pub lists: Vec<String>,
    /// Warnings, for people.
    pub warnings: Vec<String>,
}

/// The result of a reload.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, strum::IntoStaticStr,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum ReloadResult {
    /// Another text runs.
    Applied,
    /// The text is the same. Files that it names were read again.
    Unchanged,
    /// The configuration before continues to run.
    Failed,
}

/// The running configuration, and the last reloads. Clones share them.
#[derive(Clone, Debug)]
pub struct ReloadHistory(Arc<Mutex<History>>);

#[derive(Debug)]
struct History {
    running: RunningConfig,
    /// The newest first.
    reloads: VecDeque<ReloadEvent>,
    /// The number of reloads since the start.
    count: u64,
}

impl ReloadHistory {
    /// The configuration at the start, and no reload.
    pub fn new(running: RunningConfig) -> Self {
        let reloads = VecDeque::with_capacity(MAX_RELOADS);
        Self(Arc::new(Mutex::new(History {
            running,
            reloads,
            count: 0,
        })))
    }

    /// Records a reload that took effect: `running` runs from now on. Keeps the first 200 changes of
    /// buckets that do not just survive.
    pub fn succeeded(
        &self,
        running: RunningConfig,
        changes: Vec<BucketChange>,
        lists: Vec<String>,
        warnings: Vec<String>,
    ) {
        let changes = changes.into_iter();
        let changes =
            changes.filter(|one| one.outcome != OutcomeKind::Survives || one.reason.is_some());
        let buckets = changes.take(MAX_CHANGES).collect();
        let mut history = self.0.lock();
        let result = if history.running.hash == running.hash {
            ReloadResult::Unchanged
        } else {
            ReloadResult::Applied
        };
        history.record(ReloadEvent {
            at: Rfc3339(running.loaded_at),
            result,
            hash: Some(running.hash.clone()),
            error: None,
            cause: None,
            buckets,
            lists,
            warnings,
        });
        history.running = running;
    }

    /// Records a reload that failed at the instant `at`.
    pub fn failed(&self, at: Timestamp, error: &str) {
        let error = shortened(error);
        self.0.lock().record(ReloadEvent {
            at: Rfc3339(at),
            result: ReloadResult::Failed,
            hash: None,
            error: Some(error.into()),
            cause: Some(first_line(error)),
            buckets: Vec::new(),
            lists: Vec::new(),
            warnings: Vec::new(),
        });
    }

    /// The lists of the running configuration that have another text in `new`, and a warning of each
    /// that is empty now.
    pub fn changed_lists(&self, new: &ConfigInfo) -> (Vec<String>, Vec<String>) {
        let (running, mut lists, mut warnings) = (self.running(), Vec::new(), Vec::new());
        for (path, list) in new.lists.iter() {
            let Some(before) = running.lists.get(path).filter(|before| *before != list) else {
                continue;
            };
            let path = path.display();
            if let (0, entries @ 1..) = (list.0, before.0) {
                warnings.push(format!(
                    "the list {path} is empty now, and had {entries} entries"
                ));
            }
            lists.push(path.to_string());
        }
        lists.truncate(MAX_CHANGES);
        (lists, warnings)
    }

    /// True if the configuration with this hash runs.
    pub fn is_running(&self, hash: &str) -> bool {
        self.0.lock().running.hash == hash
    }

    /// The running configuration.
    pub fn running(&self) -> RunningConfig {
        self.0.lock().running.clone()
    }

    /// The last reloads, the newest first.
    pub(super) fn all(&self) -> Vec<ReloadEvent> {
        self.0.lock().reloads.iter().cloned().collect()
    }

    /// The number of reloads since the start, and those after the first `seen`, the oldest first.
    pub(super) fn after(&self, seen: u64) -> (u64, Vec<ReloadEvent>) {
        let history = self.0.lock();
        let count = usize::try_from(history.count.saturating_sub(seen)).unwrap_or(usize::MAX);
        let new = history.reloads.iter().take(count).cloned();
        let mut new: Vec<_> = new.collect();
        new.reverse();
        (history.count, new)
    }

    /// The last reload, if there was one.
    pub(super) fn last(&self) -> Option<ReloadEvent> {
        self.0.lock().reloads.front().cloned()
    }
}

impl History {
    fn record(&mut self, reload: ReloadEvent) {
        self.reloads.truncate(MAX_RELOADS - 1);
        self.reloads.push_front(reload);
        self.count += 1;
    }
}

/// The start of a text. A report repeats lines of the file, and these may be long.
fn shortened(text: &str) -> &str {
    const MAX_BYTES: usize = 16 << 10;
    &text[..text.floor_char_boundary(MAX_BYTES)]
}

/// The first line of an error, after the place that it points to.
pub fn first_line(error: &str) -> String {
    let mut lines = error.lines();
    let first = lines.next().unwrap_or_default();
    let coded = first.strip_prefix("error[");
    let message = coded.and_then(|rest| rest.split_once("]: "));
    let message = message.map_or(first, |(_, message)| message);
    let place = lines
        .next()
        .and_then(|line| line.trim_start().strip_prefix("--> "));
    match place {
        Some(place) => format!("{place}: {message}"),
        None => message.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn running(hash: &str) -> RunningConfig {
        RunningConfig {
            info: ConfigInfo {
                source: "sluicegate.yaml".to_owned(),
                text: "".into(),
                hash: hash.to_owned(),
                certificates: Arc::default(),
                lists: Arc::default(),
                saves_buckets: false,
            },
            loaded_at: Timestamp::EPOCH,
        }
    }

    #[test]
    fn the_last_reloads_are_kept_and_a_failed_one_changes_nothing() {
        let history = ReloadHistory::new(running("a"));
        assert!(history.last().is_none());
        let last = || history.last().map(|reload| reload.result);
        history.succeeded(running("b"), Vec::new(), Vec::new(), Vec::new());
        assert_eq!(last(), Some(ReloadResult::Applied));
        history.succeeded(running("b"), Vec::new(), Vec::new(), Vec::new());
        assert_eq!(last(), Some(ReloadResult::Unchanged));
        for _ in 0..2 * MAX_RELOADS {
            history.failed(Timestamp::EPOCH, &"é".repeat(MAX_RELOADS << 10));
        }
        assert_eq!(last(), Some(ReloadResult::Failed));
        assert_eq!(history.running().hash, "b");
        assert_eq!(history.0.lock().reloads.len(), MAX_RELOADS);
        let (all, new) = history.after(2 * MAX_RELOADS as u64);
        assert_eq!((all, new.len()), (2 * MAX_RELOADS as u64 + 2, 2));
        assert_eq!(history.after(all).1.len(), 0);
    }

    #[test]
    fn an_error_has_its_place_first() {
        let report = "error[invalid-value]: `1zz` has an unknown unit\n --> gate.yaml:36:12\n  |\n";
        assert_eq!(
            first_line(report),
            "gate.yaml:36:12: `1zz` has an unknown unit"
        );
        assert_eq!(first_line("no file\nsecond"), "no file");
        assert_eq!(first_line(""), "");
    }
}
