//! Policies that a reload has removed, and what a ruleset keeps of them.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::Clock;
use crate::config;
use crate::limiter::Secret;
use crate::proxy::Ruleset;
use crate::proxy::ruleset::build::{BuildContext, PreparedRuleset};
use crate::store::Table;
use crate::telemetry::registry::Registry;

/// The last ruleset of these policies, each built on the one before, with more settings for each.
fn built(generations: &[&str], more: &str) -> (Arc<Ruleset>, BuildContext) {
    let context = BuildContext {
        workers: 1,
        registry: Registry::default(),
        clock: Arc::new(Clock::system()),
        secret: Secret::from_key([1, 2]),
    };
    let mut running: Option<Arc<Ruleset>> = None;
    for policies in generations {
        let names: Vec<_> = policies.split_whitespace().collect();
        let defined = names
            .iter()
            .map(|name| format!("{name}: {{ quota: 5/1h{more} }}"));
        let text = format!(
            "store: {{ memory: {{ max_size: 2MiB }} }}
policies: {{ {} }}
routes: [{{ upstream: echo, limits: [{}] }}]",
            defined.collect::<Vec<_>>().join(", "),
            names.join(", ")
        );
        let loaded = config::parse("test.yaml", text, &|_| None);
        let loaded = loaded.unwrap_or_else(|report| panic!("{report}"));
        let rules = config::compile_rules(&loaded).unwrap_or_else(|report| panic!("{report}"));
        let prepared = PreparedRuleset::new(rules, &context, running.as_deref());
        running = Some(prepared.migrate_buckets(context.clock.now()));
    }
    (running.expect("a generation"), context)
}

fn kept(ruleset: &Ruleset) -> Vec<String> {
    let kept = ruleset.kept();
    kept.iter().map(|policy| policy.name.to_string()).collect()
}

#[test]
fn removed_policies_are_kept_until_they_return_and_for_ten_minutes() {
    let (ruleset, context) = built(&["a b", "b", "c", "b c"], ", max_keys: 1024");
    assert_eq!(kept(&ruleset), ["a"]);
    let now = context.clock.now();
    ruleset.sweep(now.saturating_add(Duration::from_secs(9 * 60)));
    assert_eq!(kept(&ruleset), ["a"]);
    ruleset.sweep(now.saturating_add(Duration::from_secs(10 * 60)));
    assert_eq!(kept(&ruleset), [""; 0]);
}

#[test]
fn kept_buckets_take_no_more_memory_than_those_that_run() {
    // Each has all the memory.
    let (ruleset, _) = built(&["a", "b", "c", "d"], "");
    assert_eq!(kept(&ruleset), ["c"], "the latest");
    // Two share it.
    let (ruleset, _) = built(&["a b", "c d", "e f"], "");
    let kept_policies = ruleset.kept();
    let quotas = kept_policies.iter().flat_map(|policy| policy.quotas());
    let tables = quotas.map(|quota| Table::bytes_for(quota.buckets.table.keys));
    assert!(tables.sum::<usize>() <= 2 << 20);
    assert_eq!(kept(&ruleset)[..2], ["c", "d"]);
    assert!(kept(&ruleset).len() < 4);
}
