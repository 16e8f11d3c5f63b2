//! Policies that bound what is in flight: they have a `max`, and nothing that has to do with time or with buckets.

use super::algorithms::{check_cost, node_of};
use crate::config::diagnostic::Code;
use crate::config::document::NodeId;
use crate::config::finding::{Finding, Findings};
use crate::config::schema::Policy;

pub(super) fn check(policy: &Policy, node: NodeId, findings: &Findings<'_>) {
    for (key, at) in of_others(policy) {
        if let Some(at) = at.filter(|at| *at != NodeId::ABSENT) {
            let message = format!("`{key}` means nothing to a limit of what is in flight");
            let finding = Finding::error(at, Code::NoEffect, message).help(format!(
                "remove `{key}`; `max` is all that such a limit has"
            ));
            findings.add(finding.related(policy.algorithm.node, "the algorithm"));
        }
    }
    match &policy.max {
        Some(max) => check_cost(policy, node, (max.get(), max.node), findings),
        None => {
            let finding = Finding::error(node, Code::MissingKey, "the key `max` is missing");
            findings.add(finding.help("say how many at a time: `max: 20`"));
        }
    }
}

/// What only other algorithms are told.
fn of_others(policy: &Policy) -> [(&'static str, Option<NodeId>); 16] {
    [
        ("quota", node_of(&policy.quota)),
        ("burst", node_of(&policy.burst)),
        ("capacity", node_of(&policy.capacity)),
        ("refill", node_of(&policy.refill)),
        ("overflow", node_of(&policy.overflow)),
        ("queue", node_of(&policy.queue)),
        ("max_wait", node_of(&policy.max_wait)),
        ("delay_after", node_of(&policy.delay_after)),
        ("charge_refused", Some(policy.charge_refused.node)),
        ("start", node_of(&policy.start)),
        ("time_zone", node_of(&policy.time_zone)),
        ("anchor", node_of(&policy.anchor)),
        ("precision", node_of(&policy.precision)),
        ("oldest", node_of(&policy.oldest)),
        ("max_keys", node_of(&policy.max_keys)),
        ("on_full", Some(policy.on_full.node)),
    ]
}
