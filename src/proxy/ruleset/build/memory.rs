//! The memory of a ruleset, divided among its policies.

use crate::proxy::ruleset::{CompiledPolicy, QuotaSpec, RulesetSpec};
use crate::store::{self, Home, MemoryRequest, Table, TableBudget, TrackingBudget};

/// Memory of all buckets once every part of their tables has been touched, in bytes.
pub fn memory_bytes(spec: &RulesetSpec) -> u64 {
    let shares = shares(&spec.policies, spec.max_size).into_iter();
    let bytes = shares.map(|share| Table::bytes_for(share.keys) as u64 + share.ring_bytes);
    bytes.sum()
}

/// The memory of each quota, in the order of [`CompiledPolicy::quotas`].
pub(crate) fn shares(policies: &[CompiledPolicy], max_size: u64) -> Vec<TableBudget> {
    let all = policies.iter().flat_map(CompiledPolicy::quotas);
    let wishes: Vec<_> = all
        .map(|spec| MemoryRequest::new(&spec.algorithm, spec.max_keys))
        .collect();
    store::divide_memory(max_size, &wishes)
}

/// The memory for state of keys beside their buckets. An override for one key needs almost none.
pub(crate) fn tracking_room(policies: &[CompiledPolicy], max_size: u64) -> TrackingBudget {
    let has_many = |quota: &QuotaSpec| quota.max_keys != Some(1);
    let maps = policies.iter().map(|policy| {
        let bans = policy.penalty.is_some() && has_many(&policy.quota);
        let tracked = match policy.spec.home {
            Home::Memory => 0,
            Home::Synchronised(_) | Home::Redis(_) => {
                policy.quotas().filter(|quota| has_many(quota)).count()
            }
        };
        usize::from(bans) + tracked
    });
    TrackingBudget::new(max_size, maps.sum())
}
