//! Detection of nodes that run another algorithm, or the same with another window, under the same
//! policy name.
//!
//! Both are part of a bucket's name, so such nodes share no bucket, and each group of them admits a
//! quota of its own.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use redis::Value;

use super::client::{Client, Command, Operation, Script, ScriptWords, Target};
use super::reply::{ProtocolError, fields, parsed};
use super::script::ALGORITHMS;

/// Pause between two notes of a node.
pub(super) const INTERVAL: Duration = Duration::from_secs(5);
/// The age in milliseconds beyond which a note of another algorithm no longer counts: three missed
/// notes.
const STALE_AFTER: u64 = 15_000;
/// Time to live of a policy's notes, in milliseconds.
const NOTE_TTL: u64 = 60_000;
/// Policies in one call of the script, where all keys are on one server.
const POLICIES_PER_CALL: usize = 32;

/// The algorithms of this node, and those in other nodes' notes.
#[derive(Debug)]
pub(super) struct AlgorithmCheck {
    client: Arc<Client>,
    script: Script,
    policies: Mutex<Vec<Arc<CheckedPolicy>>>,
}

/// One policy of this node, or a further bucket of one.
#[derive(Debug)]
struct CheckedPolicy {
    label: Box<str>,
    /// The algorithm, and a colon and the window unless nodes with any share buckets.
    algorithm: Box<str>,
    state: Mutex<CheckState>,
}

/// The result of earlier rounds.
#[derive(Debug, Default)]
struct CheckState {
    /// The server's time of this node's first note, in milliseconds: earlier notes may be of its
    /// own past.
    since: Option<u64>,
    /// Other algorithms that nodes use, as last logged.
    others: Vec<String>,
}

impl AlgorithmCheck {
    /// A check of no policy yet.
    pub(super) fn new(client: Arc<Client>) -> Self {
        Self {
            client,
            script: Script::new(ALGORITHMS),
            policies: Mutex::default(),
        }
    }

    /// Checks these policies, and no others, from the next round on.
    pub(super) fn follow<'a>(&self, policies: impl Iterator<Item = (&'a str, &'a str)>) {
        let mut known = self.policies.lock();
        let next = policies.map(|(label, algorithm)| {
            let is_same =
                |one: &&Arc<CheckedPolicy>| &*one.label == label && &*one.algorithm == algorithm;
            let new = || {
                Arc::new(CheckedPolicy {
                    label: label.into(),
                    algorithm: algorithm.into(),
                    state: Mutex::default(),
                })
            };
            known.iter().find(is_same).map_or_else(new, Arc::clone)
        });
        let next = next.collect();
        *known = next;
    }

    /// True without policies to check.
    pub(super) fn is_empty(&self) -> bool {
        self.policies.lock().is_empty()
    }

    /// Records this node's algorithms once, on this worker's connection, and logs policies that have
    /// others elsewhere.
    ///
    /// # Panics
    /// As [`Client::start`].
    pub(super) async fn compare(&self, worker: usize) {
        let policies = self.policies.lock().clone();
        let together = match self.client.spec().target {
            Target::Cluster(_) => 1,
            Target::Single(_) | Target::Sentinel { .. } => POLICIES_PER_CALL,
        };
        let groups = || policies.chunks(together);
        let commands = groups().map(|group| self.command(group)).collect();
        // The client itself logs a server that is out of use.
        let answers = self.client.batch(Operation::Background, worker, commands);
        for (group, answer) in groups().zip(answers.await) {
            // An answer of another release tells nothing.
            let _ = answer.map(|reply| apply_reply(group, &reply));
        }
    }

    fn command(&self, group: &[Arc<CheckedPolicy>]) -> Command {
        let prefix = &self.client.spec().prefix;
        let mut words = ScriptWords::default();
        for one in group {
            words.key(one.key(prefix).as_bytes());
        }
        words.number(NOTE_TTL);
        group.iter().for_each(|one| words.text(&one.algorithm));
        Command::script(&self.script, &words)
    }
}

impl CheckedPolicy {
    fn key(&self, prefix: &str) -> String {
        format!("{prefix}{{{}}}:algorithms", self.label)
    }

    /// Compares with the notes that all nodes had left at `now`, in the server's milliseconds.
    /// Returns the other algorithms that nodes use, if they have changed.
    fn apply_notes(&self, now: u64, notes: &str) -> Option<Vec<String>> {
        let mut state = self.state.lock();
        let since = *state.since.get_or_insert(now);
        let mut words = notes.split(' ');
        let mut others = Vec::new();
        while let (Some(algorithm), Some(at)) = (words.next(), words.next()) {
            let at: u64 = at.parse().unwrap_or(0);
            let is_recent = at > since && at.saturating_add(STALE_AFTER) > now;
            if is_recent && algorithm != &*self.algorithm && is_name(algorithm) {
                others.push(algorithm.to_owned());
            }
        }
        others.sort_unstable();
        let has_changed = others != state.others;
        state.others.clone_from(&others);
        has_changed.then_some(others)
    }
    fn log(&self, others: &[String]) {
        let Self {
            label, algorithm, ..
        } = self;
        let own = kind(algorithm);
        if others.is_empty() {
            return tracing::info!(
                "nodes agree again: policy `{label}` has the algorithm {own} on all nodes of the Redis store"
            );
        }
        let is_window = others.iter().any(|other| kind(other) == own);
        let shown = |form: &str| if is_window { form } else { kind(form) }.to_owned();
        let others: Vec<_> = others.iter().map(|other| shown(other)).collect();
        tracing::warn!(
            advice = "give all nodes the same `algorithm` and window",
            "nodes differ: policy `{label}` has the algorithm {} here and {} on other nodes of the Redis store; \
             each has buckets of its own, so the quotas add up",
            shown(algorithm),
            others.join(", "),
        )
    }
}

/// Logs the policies whose comparison has changed.
fn apply_reply(group: &[Arc<CheckedPolicy>], reply: &Value) -> Result<(), ProtocolError> {
    let fields = fields(reply)?;
    let (now, notes) = fields.split_first().ok_or(ProtocolError::Malformed)?;
    let now = parsed(now)?;
    for (policy, notes) in group.iter().zip(notes) {
        if let Some(others) = policy.apply_notes(now, &String::from_utf8_lossy(notes)) {
            policy.log(&others);
        }
    }
    Ok(())
}

/// The algorithm without its window.
fn kind(algorithm: &str) -> &str {
    algorithm.split(':').next().unwrap_or(algorithm)
}

/// True for an algorithm as nodes note it, also of another version's.
fn is_name(text: &str) -> bool {
    let is_plain = |byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b':' | b'/');
    (1..=64).contains(&text.len()) && text.bytes().all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked() -> CheckedPolicy {
        CheckedPolicy {
            label: "p".into(),
            algorithm: "gcra".into(),
            state: Mutex::default(),
        }
    }

    fn differs(others: &[&str]) -> Option<Vec<String>> {
        Some(others.iter().copied().map(Into::into).collect())
    }

    #[test]
    fn a_difference_is_logged_once_and_its_end_once() {
        let policy = checked();
        assert_eq!(policy.apply_notes(1_000, ""), None);
        assert_eq!(policy.apply_notes(6_000, "gcra 1000"), None);
        let notes = "gcra 6000 fixed_window 7000";
        assert_eq!(
            policy.apply_notes(11_000, notes),
            differs(&["fixed_window"])
        );
        assert_eq!(
            policy.apply_notes(16_000, "gcra 11000 fixed_window 12000"),
            None
        );
        let notes = "sliding_log 20999 gcra 16000 fixed_window 12000";
        let both = differs(&["fixed_window", "sliding_log"]);
        assert_eq!(policy.apply_notes(21_000, notes), both);
        assert_eq!(policy.apply_notes(60_000, notes), differs(&[]));
    }

    #[test]
    fn notes_from_before_the_first_own_note_are_ignored() {
        let policy = checked();
        assert_eq!(policy.apply_notes(6_000, "fixed_window 5000"), None);
        assert_eq!(
            policy.apply_notes(11_000, "fixed_window 6000 gcra 6000"),
            None
        );
        let notes = "fixed_window 6001";
        assert_eq!(
            policy.apply_notes(11_000, notes),
            differs(&["fixed_window"])
        );
    }

    #[test]
    fn another_window_differs_as_another_algorithm_does() {
        let policy = CheckedPolicy {
            algorithm: "sliding_window:1m/60".into(),
            ..checked()
        };
        assert_eq!(policy.apply_notes(1_000, ""), None);
        let notes = "sliding_window:1m/60 2000 sliding_window:1h/60 2000";
        let other = differs(&["sliding_window:1h/60"]);
        assert_eq!(policy.apply_notes(2_000, notes), other);
        // A node of 0.2.0.
        let notes = "sliding_window:1m/60 30000 sliding_window 30000";
        let other = differs(&["sliding_window"]);
        assert_eq!(policy.apply_notes(31_000, notes), other);
        let notes = "sliding_window:1m/60 60000";
        assert_eq!(policy.apply_notes(61_000, notes), differs(&[]));
    }

    #[test]
    fn foreign_text_is_not_logged() {
        let policy = checked();
        assert_eq!(policy.apply_notes(1_000, ""), None);
        let notes = "a\nb 2000 X1 2000 fixed_window";
        assert_eq!(policy.apply_notes(2_000, notes), None);
    }
}
