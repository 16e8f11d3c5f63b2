//! State of policies that other machines know: names, charges, bans.

use std::sync::Arc;

use crate::limiter::{KeyParts, Secret};
use crate::proxy::ruleset::{Policy, Ruleset};
use crate::store::{Home, TrackingBudget};

impl Ruleset {
    /// Directs the charges of other machines to the tables of this ruleset, and shares the bans of
    /// its policies only.
    pub(super) fn follow(&self) {
        let policies = || self.policies.iter();
        let quotas = policies().flat_map(|policy| policy.quotas());
        let penalties = policies().filter_map(|policy| policy.penalties.as_ref());
        // Overflow buckets and overrides have the algorithm of their policy.
        let known = |policy: &&Arc<Policy>| policy.quota.buckets.home != Home::Memory;
        let steering = policies().map(|policy| &policy.steering);
        let algorithms = policies().filter(known);
        self.store.follow(
            quotas.map(|quota| &*quota.buckets),
            penalties,
            steering,
            algorithms.map(|policy| (&*policy.name, policy.quota.buckets.shared_algorithm())),
        );
    }

    /// Sets the memory for what each policy keeps of keys beside their buckets.
    pub(super) fn set_tracking_room(&self, room: TrackingBudget) {
        for policy in &self.policies {
            for quota in policy.quotas() {
                let bytes = room.bytes(quota.buckets.table.keys());
                quota.buckets.set_tracking_room(bytes);
            }
            if let Some(penalties) = &policy.penalties {
                penalties.set_room(room.bytes(policy.quota.buckets.table.keys()));
            }
        }
    }
}

/// The name of an override in Redis. It differs from all names of policies, which have no slash.
pub(super) fn label_of_override(policy: &str, key: &str) -> Box<str> {
    let mut hasher = Secret::from_key([0, 0]).wide_hasher();
    hasher.part(0, key.as_bytes());
    format!("{policy}/{:08x}", hasher.finish() as u32).into()
}
