//! The scripts that a ruleset calls in Redis.

use std::collections::HashSet;

use crate::proxy::admission::penalties::Penalties;
use crate::proxy::ruleset::{Limit, Route, Ruleset};
use crate::store::redis::{AlgorithmKind, AlgorithmKinds, Procedure};

impl Ruleset {
    /// Loads all scripts that requests may call into the Redis servers.
    ///
    /// Conditions, exceptions and the slots of a cluster decide which limits share a call, so each
    /// subset of a route's kinds has its own script.
    pub fn load_scripts(&self) {
        let Some(store) = &self.redis else { return };
        let routes = self.routes.iter().chain([&self.unmatched]);
        let kinds: HashSet<AlgorithmKinds> = routes.clone().map(|route| kinds_of(route)).collect();
        let charges = kinds.into_iter().flat_map(AlgorithmKinds::subsets);
        let mut procedures: HashSet<_> = charges.map(Procedure::Charge).collect();
        for limit in routes.flat_map(|route| route.all_limits()) {
            for kind in kinds_of_limit(limit) {
                procedures.extend(match kind {
                    AlgorithmKind::Concurrency => Some(Procedure::Lease),
                    AlgorithmKind::LeakyBucket => Some(Procedure::Leave),
                    _ => None,
                });
                let settles = limit.spec.settlement.is_some();
                procedures.extend(settles.then_some(Procedure::Settle(kind)));
            }
        }
        let mut penalties = self
            .policies
            .iter()
            .filter_map(|one| one.penalties.as_ref());
        let are_shared = penalties.any(|one| Penalties::shared(one).is_some());
        procedures.extend(are_shared.then_some(Procedure::Ban));
        store.load_scripts(procedures.into_iter());
    }
}

fn kinds_of(route: &Route) -> AlgorithmKinds {
    route.all_limits().flat_map(kinds_of_limit).collect()
}

/// The kinds of a limit's buckets in Redis, with overrides and overflow buckets.
fn kinds_of_limit(limit: &Limit) -> impl Iterator<Item = AlgorithmKind> {
    let policies = limit.policy.all().into_iter();
    let in_redis = policies.filter(|policy| policy.shared.is_some());
    in_redis.map(|policy| AlgorithmKind::of(policy.table.algorithm()))
}
