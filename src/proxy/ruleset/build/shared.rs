//! State of policies that other machines know: names, charges, bans, and the scripts for them.

use std::sync::Arc;

use crate::limiter::{KeyParts, Secret};
use crate::proxy::ruleset::{Limit, Policy, Ruleset};
use crate::store::{Buckets, Home, TrackingBudget};

impl Ruleset {
    /// Loads all scripts that requests may call into the Redis servers.
    pub fn load_scripts(&self) {
        let routes = self.all_routes();
        let routes = routes.map(|route| route.limits.iter().flat_map(buckets_of));
        let mut penalties = self
            .policies
            .iter()
            .filter_map(|one| one.penalties.as_ref());
        let shares_bans = penalties.any(|penalties| penalties.is_shared());
        self.store.load_scripts(routes, shares_bans);
    }

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
                let bytes = room.bytes(quota.buckets.table.keys);
                quota.buckets.set_tracking_room(bytes);
            }
            if let Some(penalties) = &policy.penalties {
                penalties.set_room(room.bytes(policy.quota.buckets.table.keys));
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

/// The buckets of a limit, with overrides and overflow buckets; true if their charges are settled.
fn buckets_of(limit: &Limit) -> impl Iterator<Item = (&Buckets, bool)> {
    let settles = limit.spec.settlement.is_some();
    let quotas = limit.policy.quotas();
    quotas.map(move |quota| (&*quota.buckets, settles))
}
