//! Applicability: the algorithms of each option of a policy, as one table, and what its store allows.

use crate::config::sections::cost::settlement_node;
use crate::config::sections::prelude::*;

use AlgorithmName::{
    Concurrency, FixedWindow, Gcra, LeakyBucket, SlidingLog, SlidingWindow, TokenBucket,
};

/// All algorithms with a quota.
const QUOTAS: &[AlgorithmName] = &[
    Gcra,
    TokenBucket,
    FixedWindow,
    SlidingWindow,
    SlidingLog,
    LeakyBucket,
];
/// All algorithms with a bucket of units that nobody waits for.
const BUCKETS: &[AlgorithmName] = &[Gcra, TokenBucket, FixedWindow, SlidingWindow, SlidingLog];
const TOKENS: &[AlgorithmName] = &[Gcra, TokenBucket];
const QUEUES: &[AlgorithmName] = &[LeakyBucket, Concurrency];

/// A key, its node in a policy that has it, the algorithms that it is for, and advice if there is more
/// to say than that.
type Row = (
    &'static str,
    fn(&Policy) -> Option<NodeId>,
    &'static [AlgorithmName],
    Option<&'static str>,
);

/// The options that not every algorithm has. Checks of their own report the others, which depend on
/// more than the algorithm.
#[rustfmt::skip]
const APPLIES: [Row; 19] = [
    ("quota", |p| p.amounts.quota.given(), QUOTAS, Some("use `max`, and perhaps `queue`; or another algorithm")),
    ("burst", |p| p.amounts.burst.given(), TOKENS, None),
    ("soft_limits", |p| p.soft_limits.given(), BUCKETS, None),
    ("overflow", |p| p.overflow.given(), TOKENS, None),
    ("capacity", |p| p.amounts.capacity.given(), &[TokenBucket], None),
    ("refill", |p| p.amounts.refill.given(), &[TokenBucket], None),
    ("max", |p| p.amounts.max.given(), &[Concurrency], Some("it is for `concurrency`; else use `quota`")),
    ("retry_after", |p| p.retry_after.given(), &[Concurrency], Some("it is for `concurrency`; other algorithms send an exact `Retry-After`")),
    ("queue", |p| p.queue.given(), QUEUES, None),
    ("max_wait", |p| p.max_wait.given(), QUEUES, None),
    ("delay_after", |p| p.delay_after.given(), &[LeakyBucket], None),
    ("start", |p| p.start.given(), &[FixedWindow], None),
    ("time_zone", |p| p.time_zone.given(), QUOTAS, Some("it is for `fixed_window`")),
    ("anchor", |p| p.anchor.given(), QUOTAS, Some("it is for `fixed_window`")),
    ("precision", |p| p.precision.given(), &[SlidingWindow], None),
    ("oldest", |p| p.oldest.given(), &[SlidingWindow], None),
    ("charge_refused", |p| p.charge_refused.given().filter(|_| p.charge_refused.get()), QUOTAS, Some("remove it, or use another algorithm")),
    ("max_keys", |p| p.max_keys.given(), QUOTAS, None),
    ("on_full", |p| p.on_full.given(), QUOTAS, None),
];

/// Reports options that other algorithms have.
pub(crate) fn check_algorithm(policy: &Policy, findings: &Findings<'_>) {
    let algorithm = &policy.algorithm;
    for (key, node, algorithms, advice) in APPLIES {
        let is_for = algorithms.contains(&algorithm.value);
        let Some(node) = node(policy).filter(|_| !is_for) else {
            continue;
        };
        let message = format!(
            "`{key}` has no effect with `algorithm: {}`",
            word(algorithm)
        );
        let finding = no_effect(node, message).related(algorithm.node, "the algorithm");
        let list = || {
            let names: Vec<_> = algorithms.iter().map(word).collect();
            let names: Vec<_> = names.iter().map(String::as_str).collect();
            format!("it is for {}", nearest::list(&names))
        };
        findings.add(finding.help(advice.map_or_else(list, str::to_owned)));
    }
}

/// Reports options that other stores have, and algorithms that cannot be synchronised.
pub(crate) fn check_store(policy: &Policy, findings: &Findings<'_>) {
    let checks = [
        store_error,
        synchronisation,
        queue_in_redis,
        settlement_in_redis,
    ];
    findings.extend(checks.iter().filter_map(|check| check(policy)));
}

/// The finding on an `on_store_error` for a store that no request waits for.
fn store_error(policy: &Policy) -> Option<Finding> {
    let node = policy.on_store_error.given()?;
    let sync = policy.sync.given();
    let finding = |message: &str| no_effect(node, message);
    Some(match policy.store.value {
        StoreName::Memory => finding("the memory of this process does not fail")
            .help("remove `on_store_error`, or say `store: redis`"),
        StoreName::Redis => {
            finding("no request waits for Redis: without it, each machine decides alone")
                .related(sync?, "it is synchronised")
                .help("remove `on_store_error`, or `sync`")
        }
    })
}

/// The finding on a queue of requests that wait for permits of Redis.
fn queue_in_redis(policy: &Policy) -> Option<Finding> {
    let has_queue = policy.algorithm.value == Concurrency && policy.queue.get() > 0;
    let message =
        "machines have no common order of the requests in a queue: not with `store: redis`";
    let finding = conflict(policy.queue.node, message).related(policy.store.node, "the store");
    (has_queue && policy.is_only_in_redis()).then(|| {
        finding.help("remove `queue`, or use `store: memory` with a `max` for each machine")
    })
}

/// The finding on a cost that a response settles, in several counters or a log of Redis.
fn settlement_in_redis(policy: &Policy) -> Option<Finding> {
    let node = settlement_node(policy)?;
    let message = "a response can't settle a cost with `precision` or `sliding_log` in Redis";
    let finding = conflict(node, message).related(policy.store.node, "the store");
    let is_ring = policy.has_counters() || policy.algorithm.value == SlidingLog;
    (is_ring && policy.is_only_in_redis()).then(|| {
        finding.help("use another `algorithm`, no `precision`, `store: memory`, or a cost that is known beforehand")
    })
}

/// The finding on buckets that cannot be synchronised, as `sync` demands.
fn synchronisation(policy: &Policy) -> Option<Finding> {
    let sync = policy.sync.given()?;
    if policy.store.value == StoreName::Memory {
        let finding = no_effect(sync, "buckets in memory belong to this process alone");
        return Some(finding.help("write `store: redis`, or remove `sync`"));
    }
    let (node, message, help) = match policy.algorithm.value {
        Concurrency => (
            policy.algorithm.node,
            "requests in flight can't be synchronised: two machines could give the same permit",
            "use `store: memory` with a `max` for each machine, or another `algorithm`",
        ),
        LeakyBucket => (
            policy.algorithm.node,
            "a queue cannot be synchronised: its requests already know their turn",
            "use `store: memory` with a quota for each machine, or another `algorithm`",
        ),
        SlidingLog => (
            policy.algorithm.node,
            "a log cannot be synchronised: machines tell each other how much, and not when",
            "use `sliding_window`, with a `precision`, or remove `sync`",
        ),
        FixedWindow if policy.start.value == WindowStart::FirstRequest => (
            policy.start.node,
            "windows that each machine begins by itself cannot be synchronised: they end at different instants",
            "use `start: clock` or `staggered`, or remove `sync`",
        ),
        _ => return None,
    };
    let finding = conflict(node.or(sync), message).help(help);
    Some(finding.related(sync, "it is to be synchronised"))
}
