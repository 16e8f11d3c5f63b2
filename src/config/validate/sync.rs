//! Checks of synchronised policies: suitable algorithms, and no settings without effect.

use super::redis::redis_policies;
use crate::config::diagnostic::Code;
use crate::config::document::NodeId;
use crate::config::finding::{Finding, Findings};
use crate::config::located::Located;
use crate::config::schema::{
    AlgorithmName, Config, Policy, RedisStore, StoreName, SyncInterval, WindowStart,
};

/// Warns of `refusal_cache` if no policy calls Redis for requests.
pub(super) fn check(config: &Config, redis: &RedisStore, findings: &Findings<'_>) {
    let mut policies = redis_policies(config).peekable();
    let is_asked = policies.peek().is_none() || policies.any(|policy| policy.sync.is_none());
    if redis.refusal_cache.node == NodeId::ABSENT || is_asked {
        return;
    }
    let message = "no policy asks Redis about requests: all are synchronised";
    let finding = Finding::warning(redis.refusal_cache.node, Code::NoEffect, message);
    findings.add(finding.help("remove `refusal_cache`"));
}

pub(super) fn check_policy(policy: &Policy, findings: &Findings<'_>) {
    let Some(sync) = &policy.sync else {
        return;
    };
    if policy.store.value == StoreName::Memory {
        let message = "nobody else has the buckets of this process";
        let finding = Finding::error(sync.node, Code::NoEffect, message);
        return findings.add(finding.help("say `store: redis`, or remove `sync`"));
    }
    if let Some(on_error) = &policy.on_store_error {
        let message = "no request waits for Redis: without it each machine goes on by itself";
        let finding = Finding::error(on_error.node, Code::NoEffect, message);
        let finding = finding.related(sync.node, "it is synchronised");
        findings.add(finding.help("remove `on_store_error`, or `sync`"));
    }
    check_algorithm(policy, sync, findings);
}

fn check_algorithm(policy: &Policy, sync: &Located<SyncInterval>, findings: &Findings<'_>) {
    let (node, message, help) = match (policy.algorithm.value, &policy.start) {
        (AlgorithmName::Concurrency, _) => (
            policy.algorithm.node,
            "what is in flight cannot be synchronised: a permit that two machines give is given twice",
            "use `store: memory` with a `max` for each machine, or another `algorithm`",
        ),
        (AlgorithmName::LeakyBucket, _) => (
            policy.algorithm.node,
            "a queue cannot be synchronised: everybody in it has been told when his turn is",
            "use `store: memory` with a quota for each machine, or another `algorithm`",
        ),
        (AlgorithmName::SlidingLog, _) => (
            policy.algorithm.node,
            "a log cannot be synchronised: machines tell each other how much, and not when",
            "use `sliding_window`, with a `precision`, or remove `sync`",
        ),
        (AlgorithmName::FixedWindow, Some(start)) if start.value == WindowStart::FirstRequest => (
            start.node,
            "windows that each machine begins by itself cannot be synchronised: they end at different instants",
            "use `start: clock` or `staggered`, or remove `sync`",
        ),
        _ => return,
    };
    let node = match node {
        NodeId::ABSENT => sync.node,
        node => node,
    };
    let finding = Finding::error(node, Code::Conflict, message).help(help);
    findings.add(finding.related(sync.node, "it is to be synchronised"));
}
