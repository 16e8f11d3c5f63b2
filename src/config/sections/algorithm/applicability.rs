//! Applicability: the algorithms and stores of each option of a policy, as one table, and the
//! messages for options elsewhere.

use crate::config::schema::{AlgorithmName, Policy, StoreName, WindowStart};
use crate::config::sections::cost::settlement_node;
use crate::config::{Code, Finding, Findings, NodeId, node_of};

use Home::{Memory, Redis, Synchronised};
use Kind::{
    Concurrency, FirstRequestWindow, FixedWindow, Gcra, LeakyBucket, SlidingCounters, SlidingLog,
    SlidingWindow, TokenBucket,
};

/// An algorithm, in the forms that differ in their options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Gcra,
    TokenBucket,
    FixedWindow,
    /// `fixed_window` with `start: first_request`.
    FirstRequestWindow,
    SlidingWindow,
    /// `sliding_window` with a `precision` above 1.
    SlidingCounters,
    SlidingLog,
    LeakyBucket,
    Concurrency,
}

impl Kind {
    fn of(policy: &Policy) -> Self {
        let start = policy.start.as_ref().map(|start| start.value);
        let parts = policy.precision.as_ref().map_or(1, |parts| parts.get());
        match policy.algorithm.value {
            AlgorithmName::Gcra => Gcra,
            AlgorithmName::TokenBucket => TokenBucket,
            AlgorithmName::FixedWindow if start == Some(WindowStart::FirstRequest) => {
                FirstRequestWindow
            }
            AlgorithmName::FixedWindow => FixedWindow,
            AlgorithmName::SlidingWindow if parts > 1 => SlidingCounters,
            AlgorithmName::SlidingWindow => SlidingWindow,
            AlgorithmName::SlidingLog => SlidingLog,
            AlgorithmName::LeakyBucket => LeakyBucket,
            AlgorithmName::Concurrency => Concurrency,
        }
    }
}

/// The store of a policy's buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Home {
    Memory,
    Redis,
    /// Memory, with `sync` through Redis.
    Synchronised,
}

impl Home {
    fn of(policy: &Policy) -> Self {
        match (policy.store.value, &policy.sync) {
            (StoreName::Memory, _) => Memory,
            (StoreName::Redis, None) => Redis,
            (StoreName::Redis, Some(_)) => Synchronised,
        }
    }
}

/// An option, and where it applies.
struct Row {
    key: &'static str,
    /// The node of the option in a policy that has it.
    given: fn(&Policy) -> Option<NodeId>,
    applies: &'static [(&'static [Kind], &'static [Home])],
}

const fn row(
    key: &'static str,
    given: fn(&Policy) -> Option<NodeId>,
    applies: &'static [(&'static [Kind], &'static [Home])],
) -> Row {
    Row {
        key,
        given,
        applies,
    }
}

/// All algorithms with a quota.
#[rustfmt::skip]
const QUOTAS: &[Kind] = &[
    Gcra, TokenBucket, FixedWindow, FirstRequestWindow, SlidingWindow, SlidingCounters, SlidingLog, LeakyBucket,
];
/// Algorithms that can charge refused requests.
#[rustfmt::skip]
const DEBTORS: &[Kind] = &[
    Gcra, TokenBucket, FixedWindow, FirstRequestWindow, SlidingWindow, SlidingCounters, SlidingLog,
];
#[rustfmt::skip]
const SYNCHRONISABLE: &[Kind] = &[Gcra, TokenBucket, FixedWindow, SlidingWindow, SlidingCounters];
/// Algorithms whose usage is a single cell.
#[rustfmt::skip]
const CELLS: &[Kind] = &[Gcra, TokenBucket, FixedWindow, FirstRequestWindow, SlidingWindow];
const RINGS: &[Kind] = &[SlidingCounters, SlidingLog];
const TOKENS: &[Kind] = &[Gcra, TokenBucket];
const QUEUES: &[Kind] = &[LeakyBucket, Concurrency];
const SLIDING: &[Kind] = &[SlidingWindow, SlidingCounters];
const FIXED: &[Kind] = &[FixedWindow, FirstRequestWindow];

const ANY: &[Home] = &[Memory, Redis, Synchronised];
const LOCAL: &[Home] = &[Memory, Synchronised];

/// The options that not every algorithm and store has. Only the row of `sync` says which algorithms
/// can be synchronised.
#[rustfmt::skip]
const APPLIES: [Row; 22] = [
    row("quota", |p| node_of(&p.amounts.quota), &[(QUOTAS, ANY)]),
    row("burst", |p| node_of(&p.amounts.burst), &[(TOKENS, ANY)]),
    row("overflow", |p| node_of(&p.overflow), &[(TOKENS, ANY)]),
    row("capacity", |p| node_of(&p.amounts.capacity), &[(&[TokenBucket], ANY)]),
    row("refill", |p| node_of(&p.amounts.refill), &[(&[TokenBucket], ANY)]),
    row("max", |p| node_of(&p.amounts.max), &[(&[Concurrency], ANY)]),
    row("retry_after", |p| node_of(&p.retry_after), &[(&[Concurrency], ANY)]),
    row("queue", |p| node_of(&p.queue), &[(QUEUES, ANY)]),
    row("queue", permit_queue, &[(&[Concurrency], LOCAL)]),
    row("max_wait", |p| node_of(&p.max_wait), &[(QUEUES, ANY)]),
    row("delay_after", |p| node_of(&p.delay_after), &[(&[LeakyBucket], ANY)]),
    row("start", |p| node_of(&p.start), &[(FIXED, ANY)]),
    row("time_zone", |p| node_of(&p.time_zone), &[(&[FixedWindow], ANY)]),
    row("anchor", |p| node_of(&p.anchor), &[(&[FixedWindow], ANY)]),
    row("precision", |p| node_of(&p.precision), &[(SLIDING, ANY)]),
    row("oldest", |p| node_of(&p.oldest), &[(SLIDING, ANY)]),
    row("charge_refused", |p| Some(p.charge_refused.node), &[(DEBTORS, ANY)]),
    row("cost", settlement_node, &[(CELLS, ANY), (RINGS, LOCAL)]),
    row("max_keys", |p| node_of(&p.max_keys), &[(QUOTAS, ANY)]),
    row("on_full", |p| Some(p.on_full.node), &[(QUOTAS, ANY)]),
    row("sync", |p| node_of(&p.sync), &[(SYNCHRONISABLE, &[Synchronised])]),
    row("on_store_error", |p| node_of(&p.on_store_error), &[(QUOTAS, &[Redis]), (&[Concurrency], &[Redis])]),
];

/// A queue with room for requests that wait for permits.
fn permit_queue(policy: &Policy) -> Option<NodeId> {
    let queue = policy.queue.as_ref().filter(|queue| queue.get() > 0);
    queue
        .filter(|_| policy.algorithm.value == AlgorithmName::Concurrency)
        .map(|queue| queue.node)
}

impl Row {
    /// The node of an option that the user wrote.
    fn written(&self, policy: &Policy) -> Option<NodeId> {
        (self.given)(policy).filter(|node| *node != NodeId::ABSENT)
    }

    fn has(&self, kind: Kind) -> bool {
        self.applies.iter().any(|(kinds, _)| kinds.contains(&kind))
    }

    fn has_at(&self, kind: Kind, home: Home) -> bool {
        let mut applies = self.applies.iter();
        applies.any(|(kinds, homes)| kinds.contains(&kind) && homes.contains(&home))
    }
}

/// Reports options that other algorithms have.
pub(in crate::config) fn check_algorithm(policy: &Policy, findings: &Findings<'_>) {
    let kind = Kind::of(policy);
    for row in APPLIES.iter().filter(|row| !row.has(kind)) {
        if let Some(node) = row.written(policy)
            && let Some((message, help)) = misplaced(row.key, kind)
        {
            let finding = Finding::error(node, Code::NoEffect, message).help(help);
            findings.add(finding.related(policy.algorithm.node, "the algorithm"));
        }
    }
}

/// Reports options that other stores have, and algorithms that cannot be synchronised.
pub(in crate::config) fn check_store(policy: &Policy, findings: &Findings<'_>) {
    let (kind, home) = (Kind::of(policy), Home::of(policy));
    for row in APPLIES.iter().filter(|row| !row.has_at(kind, home)) {
        // `check_algorithm` reports the other options of other algorithms.
        if (row.has(kind) || row.key == "sync")
            && let Some(node) = row.written(policy)
            && let Some(finding) = in_wrong_store(row.key, node, kind, policy)
        {
            findings.add(finding);
        }
    }
}

/// The message and the advice for an option that the algorithm does not have. Options that depend
/// on their value, too, have checks of their own.
fn misplaced(key: &str, kind: Kind) -> Option<(String, String)> {
    const WAITS: &str = "only a leaky bucket makes requests wait, and a limit of what is in flight";
    let (message, help) = match (key, kind) {
        ("cost" | "sync", _) => return None,
        (_, Concurrency) => {
            return Some((
                format!("`{key}` means nothing to a limit of what is in flight"),
                format!("remove `{key}`; such a limit has a `max`, and may have a `queue`"),
            ));
        }
        ("burst", LeakyBucket) => (
            "a queue has no burst: it moves at the quota's rate",
            "say how many may wait with `queue`, and how many of them need not with `delay_after`",
        ),
        ("burst", _) => (
            "a window has no burst: it holds the quota and no more",
            "raise the quota, or use `gcra` or `token_bucket`",
        ),
        ("overflow", _) => (
            "only tokens overflow into another bucket",
            "remove `overflow`, or use `gcra` or `token_bucket`",
        ),
        ("queue" | "max_wait", _) => (
            WAITS,
            "remove it, or use `algorithm: leaky_bucket` or `concurrency`",
        ),
        ("delay_after", _) => (
            "only in a leaky bucket some go on at once",
            "remove it, or use `algorithm: leaky_bucket`",
        ),
        ("capacity", _) => (
            "only a token bucket has a capacity",
            "use `quota` and `burst`, or `algorithm: token_bucket`",
        ),
        ("refill", _) => (
            "only a token bucket is refilled",
            "use `quota`, or `algorithm: token_bucket`",
        ),
        ("start", _) => (
            "only a fixed window has a start",
            "remove `start`, or use `algorithm: fixed_window`",
        ),
        ("oldest", _) => (
            "only a sliding window counts an older one",
            "remove `oldest`, or use `algorithm: sliding_window`",
        ),
        ("precision", _) => (
            "only a sliding window is cut in parts",
            "remove `precision`, or use `algorithm: sliding_window`",
        ),
        ("max", _) => (
            "only a limit of what is in flight has a `max`",
            "use `quota`, or `algorithm: concurrency`",
        ),
        ("retry_after", _) => (
            "when to come back is known, and told exactly",
            "remove `retry_after`, or use `algorithm: concurrency`",
        ),
        _ => return None,
    };
    Some((message.to_owned(), help.to_owned()))
}

/// The finding on an option that the store does not have.
fn in_wrong_store(key: &str, node: NodeId, kind: Kind, policy: &Policy) -> Option<Finding> {
    let is_in_memory = policy.store.value == StoreName::Memory;
    let error = |code, message: &str, help: &str| Finding::error(node, code, message).help(help);
    let finding = match key {
        "on_store_error" if is_in_memory => error(
            Code::NoEffect,
            "the memory of this process does not fail",
            "remove `on_store_error`, or say `store: redis`",
        ),
        "on_store_error" => error(
            Code::NoEffect,
            "no request waits for Redis: without it each machine goes on by itself",
            "remove `on_store_error`, or `sync`",
        )
        .related(node_of(&policy.sync)?, "it is synchronised"),
        "sync" if is_in_memory => error(
            Code::NoEffect,
            "buckets in memory belong to this process alone",
            "say `store: redis`, or remove `sync`",
        ),
        "sync" => not_synchronisable(node, kind, policy)?,
        "queue" => error(
            Code::Conflict,
            "machines have no common order of the requests in a queue: not with `store: redis`",
            "remove `queue`, or use `store: memory` with a `max` for each machine",
        )
        .related(policy.store.node, "the store"),
        "cost" => error(
            Code::Conflict,
            "what a response settles is not taken back out of many counters, or a log: not with `store: redis`",
            "use another `algorithm`, no `precision`, `store: memory`, or a cost that is known beforehand",
        )
        .related(policy.store.node, "the store"),
        _ => return None,
    };
    Some(finding)
}

/// The finding on an algorithm that cannot be synchronised, as `sync` at `sync` demands.
fn not_synchronisable(sync: NodeId, kind: Kind, policy: &Policy) -> Option<Finding> {
    let start = node_of(&policy.start);
    let (node, message, help) = match kind {
        Concurrency => (
            policy.algorithm.node,
            "what is in flight cannot be synchronised: a permit that two machines give is given twice",
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
        FirstRequestWindow => (
            start?,
            "windows that each machine begins by itself cannot be synchronised: they end at different instants",
            "use `start: clock` or `staggered`, or remove `sync`",
        ),
        _ => return None,
    };
    let finding = Finding::error(node.or(sync), Code::Conflict, message).help(help);
    Some(finding.related(sync, "it is to be synchronised"))
}
