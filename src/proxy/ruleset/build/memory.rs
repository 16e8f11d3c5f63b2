//! The memory of a ruleset, divided among its policies.

use crate::proxy::ruleset::{PolicySpec, RulesetSpec};
use crate::store::{self, Home, MemoryRequest, Table, TableBudget, TrackingBudget};

/// Memory of all buckets once every part of their tables has been touched, in bytes.
pub fn memory_bytes(spec: &RulesetSpec) -> u64 {
    let shares = shares(&spec.policies, spec.max_size).into_iter();
    let bytes = shares.map(|share| Table::bytes_for(share.keys) as u64 + share.ring_bytes);
    bytes.sum()
}

/// The memory of each policy, followed by those of its overrides.
pub(crate) fn shares(policies: &[PolicySpec], max_size: u64) -> Vec<TableBudget> {
    let all = policies.iter().flat_map(PolicySpec::all);
    let wishes: Vec<_> = all
        .map(|spec| MemoryRequest::new(&spec.algorithm, spec.max_keys))
        .collect();
    store::divide_memory(max_size, &wishes)
}

/// The memory for state of keys beside their buckets. An override for one key needs almost none.
pub(crate) fn tracking_room(policies: &[PolicySpec], max_size: u64) -> TrackingBudget {
    let all = policies.iter().flat_map(PolicySpec::all);
    let maps = all.filter(|spec| spec.max_keys != Some(1)).map(|spec| {
        let kinds = [spec.penalty.is_some(), spec.home != Home::Memory];
        kinds.into_iter().filter(|kind| *kind).count()
    });
    TrackingBudget::new(max_size, maps.sum())
}
