//! The scripts that a ruleset calls in Redis.

use crate::proxy::ruleset::{Limit, Ruleset};
use crate::store::Buckets;

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
}

/// The buckets of a limit, with overrides and overflow buckets; true if their charges are settled.
fn buckets_of(limit: &Limit) -> impl Iterator<Item = (&Buckets, bool)> {
    let settles = limit.spec.settlement.is_some();
    let quotas = limit.policy.quotas();
    quotas.map(move |quota| (&*quota.buckets, settles))
}
