//! Policies that a reload has removed. They are kept for a while with their buckets, bans and grants,
//! because they may be back soon: a file was away, or a change is undone.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use super::{Policy, Ruleset};
use crate::clock::Timestamp;
use crate::store::Table;

/// How long a policy is kept.
const KEPT: Duration = Duration::from_mins(10);

/// A removed policy, and the instant until which it is kept.
pub(super) type Kept = (Arc<Policy>, Timestamp);

impl Ruleset {
    /// The removed policies, the latest first.
    pub fn kept(&self) -> Vec<Arc<Policy>> {
        let kept = self.kept.lock();
        kept.iter().map(|(policy, _)| Arc::clone(policy)).collect()
    }

    /// Forgets what was kept until `now`.
    pub(in crate::proxy) fn forget_kept(&self, now: Timestamp) {
        self.kept.lock().retain(|(_, until)| *until > now);
    }

    /// The policies to keep beside `new` ones, the latest first: those with buckets that `new` has not,
    /// which take at most `max_bytes`.
    pub(super) fn kept_beside(
        &self,
        new: &[Arc<Policy>],
        mut max_bytes: u64,
        now: Timestamp,
    ) -> Vec<Kept> {
        let until = now.saturating_add(KEPT);
        let running = self
            .policies
            .iter()
            .map(|policy| (Arc::clone(policy), until));
        let known: HashSet<_> = new.iter().flat_map(|policy| policy.ids()).collect();
        let mut seen = HashSet::new();
        let all = running.chain(self.kept.lock().clone());
        let kept = all.filter(|(policy, until)| {
            let gone = policy.ids().filter(|id| !known.contains(id));
            let gone = gone.map(|(name, id)| (name.to_owned(), id.to_owned()));
            // All of them, not the first alone, are seen.
            let is_gone = gone.filter(|id| seen.insert(id.clone())).count() > 0;
            let tables = policy.quotas().map(|quota| &quota.buckets.table);
            let bytes = tables.map(|one| Table::bytes_for(one.keys) as u64 + one.ring_bytes);
            if !is_gone || *until <= now {
                return false;
            }
            let left = max_bytes.checked_sub(bytes.sum());
            // Without room for this, no earlier one is kept either: its buckets may have moved here.
            max_bytes = left.unwrap_or(0);
            left.is_some()
        });
        kept.collect()
    }
}

impl Policy {
    /// The names of its quotas: its own, and a key that tells the quota from its others.
    pub(super) fn ids(&self) -> impl Iterator<Item = (&str, &str)> {
        self.quotas().map(|quota| (&*self.name, &*quota.id))
    }
}
