//! State of the old process that no configuration has: modes that operators have set, endpoints that
//! drain, and hosts whose health checks fail.

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;
use crate::proxy::{ModeChange, Ruleset};
use crate::upstream::LeftOut;

/// The most bytes of modes, and of hosts and endpoints: what fits into a message.
const MAX_BYTES: usize = 90_000;

/// Settings of a running ruleset.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::app) struct Settings {
    /// The hash of the configuration. Modes hold until that changes.
    hash: String,
    modes: Vec<SetMode>,
    left_out: Vec<LeftOut>,
}

/// The mode of a policy that an operator has set.
#[derive(Debug, Serialize, Deserialize)]
struct SetMode {
    policy: String,
    mode: String,
    /// Microseconds since the Unix epoch.
    at: u64,
    reason: Option<Box<str>>,
}

impl Settings {
    /// The settings of `ruleset`, which runs the configuration with this hash.
    pub(in crate::app) fn of(ruleset: &Ruleset, hash: String) -> Self {
        let modes = ruleset.policies.iter().filter_map(|policy| {
            let change = policy.mode.change()?;
            let mode: &'static str = policy.mode.current().into();
            Some(SetMode {
                policy: policy.name.to_string(),
                mode: mode.to_owned(),
                at: change.at.as_micros(),
                reason: change.reason,
            })
        });
        let upstreams = ruleset.upstreams.iter();
        let left_out = upstreams.flat_map(|upstream| upstream.left_out());
        Self {
            hash,
            modes: fitting(modes, "modes of policies"),
            left_out: fitting(left_out, "drained or failing hosts"),
        }
    }

    /// Sets the same in another process, modes only if the hash of its configuration `is_same`.
    pub(in crate::app) fn apply(self, ruleset: &Ruleset, is_same: impl Fn(&str) -> bool) {
        for upstream in &ruleset.upstreams {
            upstream.leave_out(&self.left_out);
        }
        if !is_same(&self.hash) {
            return;
        }
        for set in self.modes {
            let mut policies = ruleset.policies.iter();
            if let Some(policy) = policies.find(|policy| *policy.name == *set.policy) {
                let (at, reason) = (Timestamp::from_micros(set.at), set.reason);
                // A word that this version does not know stays unset.
                policy.mode.set(&set.mode, ModeChange { at, reason });
            }
        }
    }
}

/// As many of these as fit into [`MAX_BYTES`]. Logs how many don't.
fn fitting<T: Serialize>(items: impl Iterator<Item = T>, what: &str) -> Vec<T> {
    let mut bytes = 0;
    let (kept, lost): (Vec<_>, Vec<_>) = items.partition(|item| {
        bytes += serde_json::to_vec(item).map_or(0, |text| text.len() + 1);
        bytes <= MAX_BYTES
    });
    if !lost.is_empty() {
        let lost = lost.len();
        tracing::warn!(
            lost,
            "too many {what} for an upgrade: the new process doesn't know these"
        );
    }
    kept
}
