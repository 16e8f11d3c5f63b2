//! The state of a ruleset that the snapshot file keeps.

use super::Ruleset;
use crate::store::snapshot::PolicyKeyRules;
use crate::store::{Buckets, Table};

impl Ruleset {
    /// All buckets, with the ids of their quotas.
    pub fn buckets(&self) -> impl Iterator<Item = (&str, &Buckets)> {
        let quotas = self.policies.iter().flat_map(|policy| policy.quotas());
        quotas.map(|quota| (quota.id.as_str(), &*quota.buckets))
    }

    /// All tables for the snapshot file, with the ids of their quotas.
    ///
    /// Leaves out synchronised tables: their charges return from Redis, and would count twice.
    pub fn tables(&self) -> impl Iterator<Item = (&str, &Table)> {
        self.buckets()
            .filter(|(_, buckets)| !buckets.is_synchronised())
            .map(|(id, buckets)| (id, &*buckets.table))
    }

    /// Strikes, bans and grants of all policies for the snapshot file. Shared bans are included,
    /// since Redis may be down at the next start.
    pub fn keys(&self) -> impl Iterator<Item = PolicyKeyRules<'_>> {
        self.policies.iter().map(|policy| PolicyKeyRules {
            policy: &policy.name,
            key: &policy.quota.id,
            secret: policy.steering.secret().unwrap_or(self.secret),
            bans: policy.penalties.as_deref(),
            steered: Some(policy.steering.keys()),
        })
    }
}
