//! Checks of policies, named and in place: settings fit together.

use std::collections::HashSet;

use crate::config::sections::prelude::*;
use crate::config::sections::{
    algorithm, condition, cost, exception, overflow, penalty, redis, responses, soft_limit,
};

pub(crate) fn check(config: &Config, findings: &Findings<'_>) {
    let limits = config.all_limits();
    let used: HashSet<_> = limits.filter_map(|limit| limit.name()).collect();
    check_names(config, findings);
    for (name, policy) in config.policies.iter() {
        check_policy(policy, policy.node, config, findings);
        if !used.contains(&name.value) {
            let message = format!("no limit uses the policy `{name}`");
            findings.add(Finding::warning(policy.node, Code::Unused, message).at_key());
        }
    }
    for limit in config.all_limits() {
        if let Some(policy) = limit.in_place() {
            check_policy(policy, limit.node, config, findings);
        }
    }
}

/// Names identify buckets, so no two limits may share one.
fn check_names(config: &Config, findings: &Findings<'_>) {
    for (name, policy) in config.policies.iter() {
        if let Some(own) = &policy.name {
            let message = format!("the policy `{name}` has another name here");
            let finding = no_effect(own.node, message);
            findings.add(finding.help("remove it: the key in `policies` is a policy's name"));
        }
    }
    let named = config.policies.iter();
    let named = named.map(|(name, policy)| (name.value.clone(), policy.node));
    let in_place = config.all_limits();
    let in_place = in_place.filter_map(|limit| limit.in_place()?.name.as_ref());
    let in_place = in_place.map(|name| (name.value.clone(), name.node));
    let help = "choose another name; to share the buckets, put the limit under `policies`, and name it here";
    report_repeated(named.chain(in_place), help, findings, |name| {
        format!("two limits have the name `{name}`")
    });
}

fn check_policy(policy: &Policy, node: NodeId, config: &Config, findings: &Findings<'_>) {
    check_key(policy, findings);
    if let Some(when) = &policy.when {
        condition::check(when, when.node, config, findings);
    }
    algorithm::check(policy, node, config, findings);
    overflow::check(policy, config, findings);
    soft_limit::check(policy, config, findings);
    cost::check(policy, findings);
    penalty::check(policy, config, findings);
    redis::check_policy(policy, config, findings);
    check_percent(policy, findings);
    check_wait(policy, config, findings);
    exception::check(policy, config, findings);
    let general = &config.responses.on_limit;
    responses::check_policy(&policy.on_limit, general, config, findings);
}

/// A request that waits was not refused, and waits for what time brings.
fn check_wait(policy: &Policy, config: &Config, findings: &Findings<'_>) {
    let general = &config.responses.on_limit;
    let of_policy = policy.on_limit.over(general);
    let overrides = policy.overrides.iter();
    let overrides = overrides.filter_map(|one| one.on_limit.as_ref());
    let mut all = overrides.chain([&policy.on_limit]);
    let Some(waits) = all.find(|own| own.action_over(&of_policy) == Action::Wait) else {
        return;
    };
    let action = waits.action.as_ref().or(of_policy.action.as_ref());
    let add = |node: NodeId, message: &str, help: &str| {
        let finding = conflict(node, message).help(help);
        let action = action.map(|action| action.node);
        findings.add(finding.related(action, "requests wait"));
    };
    if let AlgorithmName::Concurrency | AlgorithmName::LeakyBucket = policy.algorithm.value {
        let message = "this algorithm has a queue of its own";
        add(
            policy.algorithm.node,
            message,
            "use `queue` and `max_wait` of the policy",
        );
    }
    if policy.charge_refused.get() {
        let message = "a request that waits isn't refused, and owes nothing";
        add(
            policy.charge_refused.node,
            message,
            "remove `charge_refused`",
        );
    }
    if let Some(penalty) = &policy.penalty {
        let message = "a request that waits isn't refused, and no strike";
        add(
            penalty.node,
            message,
            "remove `penalty`, or use another policy for it",
        );
    }
}

fn check_percent(policy: &Policy, findings: &Findings<'_>) {
    if let Some(node) = policy.percent.given()
        && policy.mode.value != Mode::Enforce
    {
        let message = "only a policy that is enforced is so for a part of its keys";
        let finding = no_effect(node, message).help("remove `percent`, or use `mode: enforce`");
        findings.add(finding.related(policy.mode.node, "the mode"));
    }
}

fn check_key(policy: &Policy, findings: &Findings<'_>) {
    let parts = &policy.key.0;
    if parts.is_empty() {
        let finding = Finding::error(policy.key.node, Code::NoValue, "a key without parts");
        findings
            .add(finding.help("name one part at least; `constant` is one bucket for all requests"));
    }
    report_twice(parts, findings);
    let fallback = &policy.on_missing_key;
    let may_be_missing = |part: &KeyPart| {
        part.is_claimed() || part.is_of_client() || matches!(part, KeyPart::Capture(_))
    };
    if !parts.iter().any(|part| may_be_missing(part)) {
        let finding = warn_no_effect(fallback.node, "no part of this key is ever missing");
        findings.add(finding.help("remove `on_missing_key`"));
    }
}

/// The captures in a policy's key and its fallback.
pub(crate) fn captures(policy: &Policy) -> impl Iterator<Item = (&str, NodeId)> {
    policy.parts().filter_map(|(part, node)| match part {
        KeyPart::Capture(name) => Some((name.as_str(), node)),
        _ => None,
    })
}
