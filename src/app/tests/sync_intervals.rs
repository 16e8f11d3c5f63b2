//! A reload that changes how often buckets are synchronised.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::Clock;
use crate::config;
use crate::limiter::Secret;
use crate::proxy::Ruleset;
use crate::proxy::ruleset::build::{BuildContext, PreparedRuleset};
use crate::telemetry::metrics::SyncMetrics;
use crate::telemetry::registry::Registry;

#[test]
fn a_ruleset_that_never_runs_changes_no_interval() {
    let context = BuildContext {
        workers: 1,
        registry: Registry::default(),
        clock: Arc::new(Clock::system()),
        secret: Secret::from_key([1, 2]),
    };
    let build = |sync: &str, previous: Option<&Ruleset>| {
        let text = format!(
            "store: {{ redis: {{ url: \"redis://127.0.0.1:1\", secret: sixteen-characters }} }}
routes: [{{ upstream: echo, limits: [{{ quota: 10/1s, key: client_ip, store: redis, sync: {sync} }}] }}]"
        );
        let loaded = config::parse("test.yaml", text, &|_| None);
        let loaded = loaded.unwrap_or_else(|report| panic!("{report}"));
        let rules = config::compile_rules(&loaded).unwrap_or_else(|report| panic!("{report}"));
        PreparedRuleset::new(rules, &context, previous)
    };
    let running = build("10ms", None).migrate_buckets(context.clock.now());
    let is_synchronised = |millis| {
        let store = running.store.redis().expect("a store");
        let metrics = SyncMetrics::new(&context.registry);
        let synchroniser = store.synchroniser(Duration::from_millis(millis), &metrics);
        synchroniser.is_in_use()
    };
    assert!(is_synchronised(10));
    let built = build("100ms", Some(&running));
    assert!(
        is_synchronised(10) && !is_synchronised(100),
        "it does not run yet"
    );
    drop(built);
    assert!(is_synchronised(10));
    let _runs = build("100ms", Some(&running)).migrate_buckets(context.clock.now());
    assert!(!is_synchronised(10) && is_synchronised(100));
}
