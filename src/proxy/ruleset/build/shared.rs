//! State of policies that other machines know: names, charges, bans.

use std::sync::Arc;

use crate::clock::Timestamp;
use crate::limiter::{KeyParts, Secret};
use crate::proxy::ruleset::{Policy, PolicySpec, Ruleset};
use crate::store::{Home, TrackingBudget};

impl Ruleset {
    /// Directs the charges of other machines to the tables of this ruleset, and shares the bans of
    /// its policies only.
    pub(super) fn follow(&self, now: Timestamp) {
        let policies = || self.policies.iter();
        let buckets = policies().flat_map(|policy| policy.all());
        let penalties = policies().filter_map(|policy| policy.penalties.as_deref());
        // Overflow buckets and overrides have the algorithm of their policy.
        let known = |policy: &&Arc<Policy>| policy.buckets.home != Home::Memory;
        let steering = policies().filter_map(|policy| policy.steering.as_ref());
        let algorithms = policies().filter(known);
        self.store.follow(
            buckets.map(|policy| &*policy.buckets),
            penalties,
            steering,
            algorithms.map(|policy| (&*policy.name, policy.buckets.algorithm().kind())),
            now,
        );
    }

    /// Sets the memory for what each policy keeps of keys beside their buckets.
    pub(super) fn set_tracking_room(&self, room: TrackingBudget) {
        for policy in self.policies.iter().flat_map(|policy| policy.all()) {
            let bytes = room.bytes(policy.buckets.table.keys());
            policy.buckets.set_tracking_room(bytes);
            if let Some(penalties) = &policy.penalties {
                penalties.set_room(bytes);
            }
        }
    }
}

/// The name of an override in Redis. It differs from all names of policies, which have no slash.
pub(super) fn label_of_override(spec: &PolicySpec) -> Box<str> {
    let mut hasher = Secret::from_key([0, 0]).wide_hasher();
    hasher.part(0, spec.key.as_bytes());
    format!("{}/{:08x}", spec.name, hasher.finish() as u32).into()
}
