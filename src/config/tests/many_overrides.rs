//! Policies with more overrides than 16 bits can count: each is found, and has its own bucket.
//! Quadratic time anywhere from the text to the decision would take hours here.

use std::fmt::Write;
use std::net::IpAddr;
use std::sync::Arc;

use crate::clock::{Clock, Timestamp};
use crate::config::{self, lint};
use crate::limiter::Secret;
use crate::proxy::Ruleset;
use crate::proxy::inspect::dry_run::{Recorded, dry_run};
use crate::proxy::ruleset::build::{BuildContext, PreparedRuleset, memory_bytes};
use crate::proxy::ruleset::reload_diff::{OutcomeKind, compare};
use crate::telemetry::registry::Registry;
use http::Request;

const MANY: usize = 70_000;
const NOW: Timestamp = Timestamp::from_micros(1_700_000_000_000_000);

/// A policy with an override for each of [`MANY`] clients, on three routes.
fn config(quota: &str) -> String {
    let mut text = "policies:
  keyed:
    key: header:x-key
    quota: 5/1h
    max_keys: 2048
    candidate: { quota: 4/1h }
    overrides:\n"
        .to_owned();
    for number in 0..MANY {
        writeln!(
            text,
            "      - {{ value: customer-{number}, quota: {quota} }}"
        )
        .expect("a text grows");
    }
    for path in ["a", "b", "c"] {
        let routes = if path == "a" { "routes:\n" } else { "" };
        let route = "upstream: echo, limits: [keyed]";
        writeln!(
            text,
            "{routes}  - {{ match: {{ path: /{path} }}, {route} }}"
        )
        .expect("a text grows");
    }
    text
}

fn admitted(snapshot: &Ruleset, key: &str) -> usize {
    let request = |path: &str| {
        let request = Request::builder()
            .uri(path)
            .header("host", "a")
            .header("x-key", key);
        request.body(()).expect("a request").into()
    };
    let from: IpAddr = "192.0.2.1".parse().expect("an address");
    let paths = ["/a", "/b", "/c"].into_iter().cycle();
    paths
        .take(50)
        .take_while(|path| {
            let admits = dry_run(
                snapshot,
                &request(path),
                from,
                NOW,
                Recorded::default(),
                |rehearsal| !rehearsal.is_refused(),
            );
            admits.unwrap_or(false)
        })
        .count()
}

#[test]
fn every_override_of_very_many_has_its_own_bucket() {
    let rules = |quota: &str| {
        let loaded = config::parse("many.yaml", config(quota), &|_| None);
        let loaded = loaded.unwrap_or_else(|report| panic!("{report}"));
        let rules = config::compile_rules(&loaded).unwrap_or_else(|report| panic!("{report}"));
        let warnings = lint(loaded, NOW);
        assert!(warnings.problems.len() < 5, "{warnings}");
        rules
    };
    let (old, new) = (rules("7/1h"), rules("9/1h"));
    // One bucket each, not a table.
    assert!(
        memory_bytes(&old) < 1_000 * MANY as u64,
        "{}",
        memory_bytes(&old)
    );
    let fates = compare(&old, &new);
    let rescaled = fates.iter();
    let rescaled = rescaled.filter(|one| one.outcome == OutcomeKind::Rescaled);
    assert_eq!(rescaled.count(), MANY);

    let surroundings = BuildContext {
        workers: 1,
        registry: Registry::default(),
        clock: Arc::new(Clock::manual(Timestamp::EPOCH)),
        secret: Secret::from_key([1, 2]),
    };
    let snapshot = PreparedRuleset::new(old, &surroundings, None).migrate_buckets(NOW);
    let last = format!("customer-{}", MANY - 1);
    assert_eq!(admitted(&snapshot, "customer-0"), 7);
    assert_eq!(admitted(&snapshot, "customer-65536"), 7);
    assert_eq!(admitted(&snapshot, &last), 7);
    assert_eq!(admitted(&snapshot, &format!("customer-{MANY}")), 5);
    let next = PreparedRuleset::new(new, &surroundings, Some(&snapshot)).migrate_buckets(NOW);
    assert_eq!(admitted(&next, &last), 2, "what was used stays used");
    assert_eq!(admitted(&next, "customer-1"), 9);
}
