//! Costs that responses state, compared with what a bucket can owe.

use super::{AlgorithmName, AppliedPolicy, Finding, RouteLimits, policies};
use crate::config::Code;
use crate::config::schema::Cost;
use crate::limiter::Debt;

/// Warns of responses that may cost more than a bucket ever owes.
pub(super) fn forgiven(places: &[RouteLimits<'_>]) -> Vec<Finding> {
    let all = policies(places);
    all.iter().filter_map(forgiven_cost).collect()
}

fn forgiven_cost(applied: &AppliedPolicy<'_>) -> Option<Finding> {
    use AlgorithmName::{Gcra, TokenBucket};
    let Cost::Stated(cost) = &applied.policy.cost.value else {
        return None;
    };
    let quota = applied.policy.amounts.quota.as_ref();
    let limit = quota.map_or(applied.capacity(), |quota| quota.limit());
    if cost.header.is_some() || limit == 0 {
        return None;
    }
    let windows = match applied.policy.algorithm.value {
        Gcra | TokenBucket => Debt::MAX_WINDOWS,
        _ => 1,
    };
    let owed = u64::from(limit) * u64::from(windows);
    if u64::from(cost.max.get()) <= owed {
        return None;
    }
    let message = format!("what a response costs beyond {owed} units is forgiven");
    let finding = Finding::warning(cost.max.node, Code::ForgivenCost, message);
    let finding = finding.related(applied.quota_node(), "a bucket owes no more than that");
    Some(match windows {
        1 => finding.help("use `algorithm: gcra`, which carries the debt on, or a longer window"),
        _ => finding.help(format!("lower `max` to {owed}, or raise the quota")),
    })
}
