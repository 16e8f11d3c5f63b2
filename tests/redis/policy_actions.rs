//! Policies in Redis beyond a plain refusal: several real proxies decide as one does in memory.

use crate::support::client::{Response, get};
use crate::support::gateway::Gateway;
use crate::support::redis::RedisServer;
use crate::support::shared::{ask, proxies, retry_after, said, statuses};

/// Two proxies with Redis answer in turn as one with the same policies in memory, whatever the
/// request. The policies have keys of `x-key`; `$` marks those in Redis.
fn alike(redis: &RedisServer, config: &str, paths: &[&str]) {
    let shared: [Gateway; 2] = proxies(redis, &config.replace('$', "store: redis, "));
    let alone = Gateway::start(&config.replace('$', ""));
    for (turn, path) in paths.iter().enumerate() {
        let [there, here] = [&shared[turn % 2], &alone].map(|gateway| ask(gateway, path));
        assert_eq!(said(&there), said(&here), "{turn}: {path}\n{config}");
        let [there, here] = [there, here].map(|answer| retry_after(&answer));
        assert!(
            there.abs_diff(here) <= 3,
            "{turn}: {there} {here}\n{config}"
        );
    }
}

#[test]
fn refusals_are_charged_as_in_memory() {
    let redis = RedisServer::start();
    for (place, policy) in [
        "quota: 4/1h",
        "quota: 4/1h, burst: 2",
        "capacity: 4, refill: 1 per 10m, algorithm: token_bucket",
        "quota: 4/1h, algorithm: fixed_window, cost: { header: x-cost, max: 4 }",
        "quota: 4/1h, algorithm: sliding_window, oldest: whole",
        "quota: 4/1h, algorithm: sliding_log",
    ]
    .into_iter()
    .enumerate()
    {
        let config = format!(
            "policies: {{ owes{place}: {{ $key: \"header:x-key\", {policy}, charge_refused: true }} }}
routes: [{{ upstream: echo, limits: [owes{place}] }}]
"
        );
        alike(&redis, &config, &["/"; 12]);
    }
}

#[test]
fn a_policy_that_charges_refusals_counts_those_of_other_policies() {
    let redis = RedisServer::start();
    // With the refusing policy in memory, and in Redis with a cached refusal.
    for (place, tight) in ["", "$"].into_iter().enumerate() {
        let config = format!(
            "policies:
  owes{place}: {{ $key: \"header:x-key\", quota: 8/1h, charge_refused: true }}
  tight{place}: {{ {tight}key: \"header:x-key\", quota: 2/1h }}
routes:
  - {{ match: {{ path: /both }}, upstream: echo, limits: [owes{place}, tight{place}] }}
  - {{ match: {{ path: \"/**\" }}, upstream: echo, limits: [owes{place}] }}
"
        );
        let [gateway] = proxies(&redis, &config.replace('$', "store: redis, "));
        assert_eq!(statuses(&gateway, "/both"), [200, 200, 429, 429, 429, 429]);
        assert_eq!(statuses(&gateway, "/"), [200, 200, 429]);
    }
}

#[test]
fn requests_over_a_tagging_limit_are_tagged_as_in_memory() {
    let redis = RedisServer::start();
    let [soft, hard] = ["/soft", "/hard"];
    for (place, owes) in ["", ", charge_refused: true"].into_iter().enumerate() {
        let config = format!(
            "policies:
  soft{place}: {{ $key: \"header:x-key\", quota: 3/1h{owes}, on_limit: {{ action: tag, tag_header: x-soft }} }}
  here{place}: {{ key: \"header:x-key\", quota: 5/1h, on_limit: {{ action: tag, tag_header: x-softer }} }}
  hard{place}: {{ $key: \"header:x-key\", quota: 4/1h }}
routes:
  - {{ match: {{ path: /soft }}, upstream: echo, limits: [soft{place}, here{place}] }}
  - {{ match: {{ path: /hard }}, upstream: echo, limits: [hard{place}, here{place}, soft{place}] }}
"
        );
        let paths = [soft, hard, hard, hard, hard, hard, soft, hard, soft];
        alike(&redis, &config, &paths);
    }
}

#[test]
fn tagging_limits_without_redis_follow_on_store_error() {
    let mut redis = RedisServer::start();
    let [gateway] = proxies(
        &redis,
        "policies:
  here: { store: redis, key: \"header:x-key\", quota: 1/1h, on_limit: { action: tag, tag_header: x-here } }
  open: { store: redis, key: \"header:x-key\", quota: 1/1h, on_store_error: admit, on_limit: { action: tag, tag_header: x-open } }
  shut: { store: redis, key: \"header:x-key\", quota: 1/1h, on_store_error: refuse, on_limit: { action: tag, tag_header: x-shut } }
routes: [{ name: all, upstream: echo, limits: [here, open, shut] }]
",
    );
    let tags = |answer: &Response| {
        assert_eq!(answer.status, 200);
        let text = answer.text().to_ascii_lowercase();
        ["x-here", "x-open", "x-shut"].map(|name| text.contains(&format!("\n{name}: ")))
    };
    assert_eq!(tags(&ask(&gateway, "/")), [false; 3]);
    assert_eq!(tags(&ask(&gateway, "/")), [true; 3]);
    redis.kill();
    assert_eq!(
        tags(&ask(&gateway, "/")),
        [false, false, true],
        "it has a bucket of its own"
    );
    assert_eq!(tags(&ask(&gateway, "/")), [true, false, true]);
    let errors = |policy: &str| {
        let series = format!(
            "sluicegate_limit_decisions_total{{policy=\"{policy}\",route=\"all\",decision=\"error\"}}"
        );
        gateway.metric(&series)
    };
    assert_eq!(
        errors("open"),
        Some(2.0),
        "{}",
        get(gateway.admin, "/metrics").text()
    );
}

#[test]
fn charges_overflow_as_in_memory() {
    let redis = RedisServer::start();
    let config = "policies:
  paid:
    $key: \"header:x-key\"
    quota: 2/1h
    overflow: { quota: 2/1h, priority_header: { x-priority: low }, overflow: { quota: 1/2h, priority_header: { x-priority: lowest } } }
  other: { $key: \"header:x-key\", quota: 7/1h }
  watch: { $key: \"header:x-key\", mode: shadow, quota: 1/1h, overflow: { quota: 2/1h } }
routes: [{ name: all, upstream: echo, limits: [paid, other, watch] }]
"
    .replace("    $key", "    DOLLARkey");
    let there = config
        .replace("DOLLAR", "store: redis\n    ")
        .replace('$', "store: redis, ");
    let here = config.replace("DOLLAR", "").replace('$', "");
    let shared: [Gateway; 2] = proxies(&redis, &there);
    let alone = Gateway::start(&here);
    for turn in 0..7 {
        let [there, here] = [&shared[turn % 2], &alone].map(|gateway| ask(gateway, "/"));
        assert_eq!(said(&there), said(&here), "{turn}");
        assert!(
            retry_after(&there).abs_diff(retry_after(&here)) <= 3,
            "{turn}"
        );
    }
    let counted = |gateway: &Gateway, policy, decision| {
        let series = format!(
            "sluicegate_limit_decisions_total{{policy=\"{policy}\",route=\"all\",decision=\"{decision}\"}}"
        );
        gateway.metric(&series).unwrap_or_default()
    };
    for (policy, decision) in [
        ("paid", "overflowed"),
        ("paid", "limited"),
        ("watch", "overflowed"),
        ("watch", "shadowed"),
    ] {
        let there: f64 = shared
            .iter()
            .map(|one| counted(one, policy, decision))
            .sum();
        assert_eq!(
            there,
            counted(&alone, policy, decision),
            "{policy} {decision}"
        );
    }
}
