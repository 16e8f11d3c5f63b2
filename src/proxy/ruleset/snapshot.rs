//! The state of a ruleset that the snapshot file keeps.

use super::Ruleset;
use crate::store::Table;
use crate::store::snapshot::{PolicyBans, PolicySteering};

impl Ruleset {
    /// All tables for the snapshot file, with the key of their policy.
    ///
    /// Synchronised tables are missing: their charges come back from Redis, and would count twice.
    pub fn tables(&self) -> impl Iterator<Item = (&str, &Table)> {
        let quotas = self.policies.iter().flat_map(|policy| policy.quotas());
        quotas
            .filter(|quota| !quota.buckets.is_synchronised())
            .map(|quota| (quota.key.as_str(), &*quota.buckets.table))
    }

    /// Strikes and bans of all policies for the snapshot file. Shared ones are included, since
    /// Redis may be down at the next start.
    pub fn bans(&self) -> impl Iterator<Item = PolicyBans<'_>> {
        self.policies.iter().filter_map(|policy| {
            let penalties = policy.penalties.as_ref()?;
            Some(penalties.to_keep(&policy.name, &policy.quota.key, self.secret))
        })
    }

    /// The keys that operators steer, for the snapshot file.
    pub fn steered(&self) -> impl Iterator<Item = PolicySteering<'_>> {
        self.policies.iter().map(|policy| {
            let key = &policy.quota.key;
            policy.steering.to_keep(&policy.name, key, self.secret)
        })
    }
}
