//! The lines that fit a terminal, and their order.

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::admin::policies::PolicyList;
use crate::admin::upstreams::UpstreamList;

/// The answers of a proxy with these numbers of problems, keys, policies and upstreams.
pub(in crate::cli::top) fn report(count: usize) -> Report {
    let numbers = 1..=count;
    let problems = numbers.clone().map(|number| {
        let severity = if number % 3 == 1 { "critical" } else { "warning" };
        json!({ "kind": "StoreDown", "severity": severity, "since": "2026-01-01T00:00:00Z", "labels": {}, "text": format!("redis {number} is down, \
            and each machine counts alone for policies that many clients meet"),
            "remedy": "see if it runs, and if its network does" })
    });
    let items = numbers.clone().map(|number| {
        json!({ "rank": number, "policy": format!("policy-{number}"), "key_id": format!("k_{number}"),
            "key": if number % 2 == 0 { json!("東京\u{1b}[2J") } else { json!(null) },
            "client": if number % 3 == 0 { json!("acme") } else { json!(null) }, "address": null,
            "limited": 100 - number, "requests": null, "units": null, "error_bound": 0 })
    });
    let policies = numbers.clone().map(|number| {
        let decisions = json!({ "allowed": 10, "limited": number });
        json!({ "name": format!("policy-{number}"), "algorithm": "gcra", "quota": "100/1m",
            "unit": "requests", "limit_units": 100, "window_s": 60.0, "capacity_units": 100,
            "key": ["client_ip"], "store": "memory", "sync_s": null, "routes": [], "overrides": 0,
            "mode": { "configured": "enforce", "current": "enforce", "percent": null, "set_at": null,
                "reason": null },
            "buckets": { "in_use": 0, "near": 0, "capacity": 0, "bytes": 0, "max_bytes": 0 },
            "decisions": decisions, "recent": decisions, "settled_units": null, "near": 0,
            "bans": null, "banned_keys": 0, "granted_keys": 0, "shadow": null })
    });
    let upstreams = numbers.map(|number| {
        let state = if number == 2 { "ejected" } else { "available" };
        let host = json!({ "address": "127.0.0.1:9", "state": state, "reason": null, "for_s": null,
            "in_flight": 7, "failures": 0 });
        json!({ "name": format!("upstream-{number}"), "protocol": "http/1.1", "balance": null,
            "endpoints": [{ "endpoint": "a:9", "weight": 1, "draining": false, "hosts": [host] }],
            "recent": { "seconds": 10.0, "requests_per_s": 4.0, "2xx_per_s": 4.0, "4xx_per_s": 0.0,
                "5xx_per_s": 0.5, "p50_ms": 2.0, "p99_ms": null } })
    });
    let status = json!({ "version": "1.0.0", "revision": "unknown", "pid": 1,
        "started_at": "2026-01-01T00:00:00Z", "uptime_s": 90, "phase": "ready", "workers": 1,
        "ruleset": { "hash": "h", "loaded_at": "2026-01-01T00:00:00Z" }, "last_reload": null,
        "stores": [], "connections": { "open": 3, "max": 10 }, "recent": null, "problems": [],
        "problem_details": problems.collect::<Vec<_>>(), "notes": [] });
    let top = json!({ "by": "limited", "window": "1m", "counted_s": 60.0, "keys": "readable",
        "items": items.collect::<Vec<_>>() });
    let policies = json!({ "policies": policies.collect::<Vec<_>>() });
    let upstreams = json!({ "upstreams": upstreams.collect::<Vec<_>>() });
    let upstreams: UpstreamList = serde_json::from_value(upstreams).expect("upstreams");
    let policies: PolicyList = serde_json::from_value(policies).expect("policies");
    Report {
        top: serde_json::from_value(top).expect("keys"),
        status: serde_json::from_value(status).expect("a status"),
        policies: policies.policies,
        upstreams: upstreams.upstreams,
        outcomes: [900, 1, 0, 99, 0, 0],
    }
}

fn texts(report: &Report, width: usize, height: usize) -> Vec<String> {
    let lines = report.lines(width, height).into_iter();
    lines.map(|line| line.to_string()).collect()
}

#[test]
fn a_small_terminal_shows_all_five_things() {
    let lines = texts(&report(42), 80, 24);
    assert_eq!(lines.len(), 23, "the last row is for help: {lines:#?}");
    let begin = |text: &str| {
        let place = lines.iter().position(|line| line.starts_with(text));
        place.unwrap_or_else(|| panic!("{text}: {lines:#?}"))
    };
    assert!(lines[1].starts_with("last 1m [====="), "{lines:#?}");
    assert_eq!(
        lines[2].trim_end(),
        "=passed 90%  ~beyond <1%  #limited 10%"
    );
    assert_eq!(begin("problems: 42, critical: 14"), 3);
    assert!(
        lines[4].starts_with("critical for 1m 30s: redis 1 is down"),
        "{lines:#?}"
    );
    assert_eq!(begin("KEY"), 9);
    assert_eq!(begin("POLICY (3 of 42)"), 15);
    assert!(
        lines[16].starts_with("policy-42"),
        "the most limiting first: {lines:#?}"
    );
    assert_eq!(begin("UPSTREAM (3 of 42)"), 19);
    assert!(
        lines[20].contains("0 of 1 work"),
        "the worst first: {lines:#?}"
    );
}

#[test]
fn keys_of_a_client_stand_together_and_cannot_move_the_cursor() {
    let lines = texts(&report(6), 120, 1_000);
    let keys = lines.iter().skip_while(|line| !line.starts_with("KEY"));
    let policies = keys.skip(1).take(6).map(|line| {
        let mut words = line.split_whitespace();
        words
            .find(|word| word.starts_with("policy-"))
            .expect("a policy")
    });
    let policies: Vec<_> = policies.collect();
    let order = [1, 2, 3, 6, 4, 5].map(|number| format!("policy-{number}"));
    assert_eq!(policies, order);
    let all = lines.join("\n");
    assert!(
        all.contains("東京\\u001b[2J") && !all.contains('\u{1b}'),
        "{all}"
    );
}

#[test]
fn a_proxy_without_anything_has_heads_alone() {
    let lines = texts(&report(0), 80, 24);
    let begins = lines
        .iter()
        .filter_map(|line| line.split_whitespace().next());
    let begins: Vec<_> = begins.skip(3).collect();
    assert_eq!(begins, ["no", "KEY", "POLICY", "UPSTREAM"], "{lines:#?}");
}

#[test]
fn numbers_beyond_reason_take_little_room() {
    for counted in [1e308, 1e-308, -1.0] {
        let mut report = report(1);
        report.top.counted_s = counted;
        report.top.items[0].counts.limited = Some(u64::MAX);
        let lines = texts(&report, 80, 24);
        let widest = lines.iter().map(|line| line.chars().count()).max();
        assert!(widest < Some(120), "{lines:#?}");
    }
}

proptest! {
    #[test]
    fn lines_fit_every_terminal(count in 0..60_usize, width in 80..220_usize, height in 1..90_usize) {
        let lines = report(count).lines(width, height);
        prop_assert!(lines.len() < height.max(FIXED), "{} of {height}", lines.len());
        for line in lines {
            prop_assert!(line.width() <= width, "{} of {width}: {line}", line.width());
        }
    }

    #[test]
    fn a_bar_is_full_and_each_part_as_wide_as_its_share(counts: [u32; OUTCOMES], width in 1..300_usize) {
        let counts = counts.map(u64::from);
        let cells = shares(counts, width);
        let all = counts.iter().sum::<u64>();
        prop_assert_eq!(cells.iter().sum::<usize>(), if all == 0 { 0 } else { width });
        for (count, cells) in counts.into_iter().zip(cells) {
            let exact = width as f64 * count as f64 / all.max(1) as f64;
            prop_assert!((exact - cells as f64).abs() <= 1.0, "{exact} is {cells}");
        }
    }
}
