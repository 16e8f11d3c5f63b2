//! Checks of `concurrency` policies: a `max`, perhaps a queue, and no settings of quotas or
//! buckets.

use super::algorithms::{check_cost, node_of};
use crate::config::diagnostic::Code;
use crate::config::document::NodeId;
use crate::config::finding::{Finding, Findings};
use crate::config::schema::{Action, Config, Policy};

pub(super) fn check(policy: &Policy, node: NodeId, config: &Config, findings: &Findings<'_>) {
    for (key, at) in of_others(policy) {
        if let Some(at) = at.filter(|at| *at != NodeId::ABSENT) {
            let message = format!("`{key}` means nothing to a limit of what is in flight");
            let finding = Finding::error(at, Code::NoEffect, message).help(format!(
                "remove `{key}`; such a limit has a `max`, and may have a `queue`"
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
    check_queue(policy, config, findings);
}

/// Tagged requests never wait; a queue needs a `max_wait` above zero.
fn check_queue(policy: &Policy, config: &Config, findings: &Findings<'_>) {
    let queue = policy.queue.as_ref().filter(|queue| queue.get() > 0);
    let Some(queue) = queue else {
        if let Some(max_wait) = &policy.max_wait {
            let message = "nobody waits where there is no queue";
            let finding = Finding::error(max_wait.node, Code::NoEffect, message);
            findings.add(finding.help("say how many may wait with `queue`, or remove `max_wait`"));
        }
        return;
    };
    if policy.on_limit.action_over(&config.responses.on_limit) == Action::Tag {
        let message = "a policy that tags makes no request wait";
        let finding = Finding::error(queue.node, Code::Conflict, message);
        findings.add(finding.help("remove `queue`, or use another `action`"));
    }
    if let Some(max_wait) = policy.max_wait.as_ref().filter(|wait| wait.get().is_zero()) {
        let message = "nobody waits in a queue for no time at all";
        let finding = Finding::warning(queue.node, Code::NoEffect, message);
        let finding = finding.help("raise `max_wait`, or remove `queue`");
        findings.add(finding.related(max_wait.node, "the longest wait"));
    }
}

/// Settings of other algorithms.
fn of_others(policy: &Policy) -> [(&'static str, Option<NodeId>); 14] {
    [
        ("quota", node_of(&policy.quota)),
        ("burst", node_of(&policy.burst)),
        ("capacity", node_of(&policy.capacity)),
        ("refill", node_of(&policy.refill)),
        ("overflow", node_of(&policy.overflow)),
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
