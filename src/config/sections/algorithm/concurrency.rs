//! Checks of `concurrency` policies: a `max`, perhaps a queue, and no settings of quotas or
//! buckets.

use super::check_cost;
use crate::config::schema::{Action, Config, Policy};
use crate::config::{Code, Finding, Findings, NodeId};

pub(in crate::config) fn check(
    policy: &Policy,
    node: NodeId,
    config: &Config,
    findings: &Findings<'_>,
) {
    match &policy.amounts.max {
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
            let message = "no request waits without a queue";
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
        let message = "no request waits in a queue with a `max_wait` of 0";
        let finding = Finding::warning(queue.node, Code::NoEffect, message);
        let finding = finding.help("raise `max_wait`, or remove `queue`");
        findings.add(finding.related(max_wait.node, "the longest wait"));
    }
}
