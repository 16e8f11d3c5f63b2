//! Memory of buckets, and their lifetime.

use std::time::Duration;

use super::{AppliedPolicy, Finding, NodeId, RouteLimits, policies};
use crate::config::compile::compile_rules;
use crate::config::schema::Config;
use crate::config::value::KeyPart;
use crate::config::{Code, Loaded};
use crate::proxy::ruleset::build::memory_bytes;
use crate::store::OnFull;
use crate::telemetry::process;

/// Quotas for at least this long deserve a snapshot file.
const LONG_WINDOW: Duration = Duration::from_secs(24 * 60 * 60);
/// The shortest window in which a flood of keys could fill a table.
const SHORT_WINDOW: Duration = Duration::from_secs(60);
/// Quotas below this many requests are small: a flood of keys that evicts the bucket gains as much
/// as many requests.
const SMALL_QUOTA: u32 = 20;

/// Warns of quotas for longer than the process is likely to run, in memory without a snapshot.
pub(super) fn forgotten_at_restart(config: &Config, places: &[RouteLimits<'_>]) -> Vec<Finding> {
    if config.store.memory.snapshot.is_some() {
        return Vec::new();
    }
    let long = policies(places)
        .into_iter()
        .filter(|applied| applied.window() >= LONG_WINDOW && !applied.is_shared());
    let findings = long.map(|applied| {
        let message = "a restart forgets what was used of it";
        Finding::warning(applied.quota_node(), Code::ForgottenAtRestart, message)
            .help("keep buckets in a file: `store: { memory: { snapshot: { path: buckets } } }`")
    });
    findings.collect()
}

/// Warns of quotas of a few requests, in buckets that a flood of other keys can evict.
pub(super) fn small_quotas(places: &[RouteLimits<'_>]) -> Vec<Finding> {
    let small = policies(places).into_iter().filter(|applied| {
        let displaced = applied.policy.on_full.value == OnFull::Forget && has_many_keys(applied);
        displaced
            && applied.is_enforced()
            && applied.is_in_memory()
            && (1..SMALL_QUOTA).contains(&applied.capacity())
            && applied.window() >= SHORT_WINDOW
    });
    let findings = small.map(|applied| {
        let message = "when memory is full, a flood of new keys can make it forget a key that is nearly spent";
        Finding::warning(applied.quota_node(), Code::SmallQuota, message)
            .help("say `on_full: strict`: then no key ever exceeds its quota")
    });
    findings.collect()
}

fn has_many_keys(applied: &AppliedPolicy<'_>) -> bool {
    let few = |part: &KeyPart| matches!(part, KeyPart::Constant | KeyPart::Route | KeyPart::Method);
    applied.policy.key.0.iter().any(|part| !few(part))
}

/// Warns of tables that together exceed `max_size`, since no table can be smaller.
pub(super) fn memory(loaded: &Loaded) -> Vec<Finding> {
    let max_size = &loaded.config.store.memory.max_size;
    let machine = process::memory_limit();
    if let Some(machine) = machine.filter(|machine| max_size.bytes() > *machine) {
        let message = format!(
            "buckets may take more than the {} MiB of memory that this machine gives the process",
            machine >> 20
        );
        let finding = Finding::warning(max_size.node, Code::Memory, message);
        return vec![
            finding.help("lower it, so that the process is not ended when buckets fill it"),
        ];
    }
    let Ok(rules) = compile_rules(loaded) else {
        return Vec::new();
    };
    let (most, needed) = (rules.max_size, memory_bytes(&rules));
    if needed <= most {
        return Vec::new();
    }
    let mib = |bytes: u64| bytes.div_ceil(1 << 20);
    let message = format!(
        "buckets may take {} MiB, more than the {} MiB that they are given",
        mib(needed),
        mib(most)
    );
    let node = max_size.node.or(NodeId::ROOT);
    let help = "raise `store.memory.max_size`, lower `max_keys`, or share policies between routes by their name";
    vec![Finding::warning(node, Code::Memory, message).help(help)]
}
