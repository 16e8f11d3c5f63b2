//! Results of `sluicegate replay`: decisions, the proxy's own access logs, and input that is no
//! log.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

use serde_json::{Value, json};

use crate::support::client::curl;
use crate::support::gateway::Gateway;
use crate::support::replay::{Replay, command, decisions, line, replay, stderr};
use crate::support::wait_for;

/// Two requests a second, in windows of the clock.
const TWO: &str = "routes:
  - { name: a, match: { path: '/a/**' }, upstream: echo,
      limits: [{ algorithm: fixed_window, quota: 2/1s }] }
  - { name: free, match: { path: /free }, upstream: echo }
";

#[test]
fn a_decision_lists_only_what_applies() {
    let log = [
        line("1000", "/a", ""),
        line("1000.001", "/a/%62", ""),
        line("\"1970-01-01T00:00:01.4985Z\"", "/a", ""),
        line("1500", "/free", ""),
        line("1500", "/nowhere", ""),
        line("1500", "/a%2fb", ""),
        line("2000", "/a", ""),
    ];
    let output = Replay::new(TWO, log.concat()).run(&["--decisions"]);
    let expected = r#"{"line":1,"decision":"allowed","policy":"a#0","remaining":1}
{"line":2,"decision":"allowed","policy":"a#0","remaining":0}
{"line":3,"decision":"limited","policy":"a#0","remaining":0,"retry_after_ms":501.5}
{"line":4,"decision":"unlimited"}
{"line":5,"decision":"unlimited"}
{"line":6,"decision":"unlimited","reason":"The path has an encoded slash, or a backslash."}
{"line":7,"decision":"allowed","policy":"a#0","remaining":1}
"#;
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
    assert_eq!(
        (stderr(&output).as_str(), output.status.code()),
        ("", Some(0))
    );
}

#[test]
fn a_refusal_without_a_key_and_a_permanent_one_have_no_retry_after() {
    let config = "routes:
  - { name: a, match: { path: /a }, upstream: echo, limits: [{ key: header:x, on_missing_key: refuse, quota: 1/1s }] }
  - { name: b, match: { path: /b }, upstream: echo, limits: [{ quota: 0/1s }] }
";
    let log = line("1", "/a", "") + &line("2", "/b", "") + &line("9000", "/b", "");
    let replay = Replay::new(config, log);
    let expected = [
        json!({ "line": 1, "decision": "limited", "policy": "a#0" }),
        json!({ "line": 2, "decision": "limited", "policy": "b#0", "remaining": 0 }),
        json!({ "line": 3, "decision": "limited", "policy": "b#0", "remaining": 0 }),
    ];
    assert_eq!(replay.decisions(&[]), expected);
    let report = replay.report(&[]);
    assert_eq!(report["routes"][0]["limits"][0]["limited"], 1);
    assert_eq!(report["policies"][0]["longest"]["limited_ms"], 8998);
}

#[test]
fn the_first_and_the_last_instant_are_decided() {
    let limits = [
        "quota: 1/366d",
        "quota: 1/366d, burst: 100",
        "quota: 1/1w, algorithm: fixed_window",
        "quota: 1/366d, algorithm: fixed_window, start: first_request",
        "quota: 1/366d, algorithm: sliding_window",
        "quota: 1/366d, algorithm: sliding_window, oldest: whole",
        "capacity: 1, refill: 1 per 366d, algorithm: token_bucket",
        "quota: 1/366d, algorithm: fixed_window, start: staggered",
        "quota: 1/1d, algorithm: fixed_window, time_zone: Asia/Tokyo",
        "quota: 1/1mo, algorithm: fixed_window, time_zone: America/New_York, anchor: 31",
        "quota: 1/1y, algorithm: fixed_window",
        "quota: 1/366d, algorithm: sliding_window, precision: 3600",
        "quota: 1/366d, algorithm: sliding_log",
    ];
    for limit in limits {
        let config = format!("routes: [{{ upstream: echo, limits: [{{ {limit} }}] }}]\n");
        let times = ["0", "0.001", "253402300799999.998", "253402300799999.999"];
        let log = times.map(|time| line(time, "/", "")).concat();
        let decided = Replay::new(&config, log).decisions(&[]);
        let remaining: Vec<_> = decided.iter().map(|told| &told["remaining"]).collect();
        if limit.contains("burst") {
            assert_eq!(remaining, [99, 98, 99, 98], "{limit}")
        } else {
            assert_eq!(remaining, [0, 0, 0, 0], "{limit}")
        }
    }
}

#[test]
fn several_policies_are_charged_all_or_none() {
    let config = "limits: [{ quota: 3/1h, algorithm: fixed_window }]
routes:
  - { name: a, match: { path: /a }, upstream: echo, limits: [{ quota: 1/1h, algorithm: fixed_window }] }
  - { name: b, match: { path: /b }, upstream: echo }
";
    let paths = ["/a", "/a", "/a", "/b", "/b", "/b"];
    let log: String = paths.map(|path| line("0", path, "")).concat();
    let replay = Replay::new(config, log);
    let told: Vec<_> = replay
        .decisions(&[])
        .iter()
        .map(|told| {
            format!(
                "{} {} {}",
                told["decision"], told["policy"], told["remaining"]
            )
            .replace('"', "")
        })
        .collect();
    let expected = [
        "allowed a#0 0",
        "limited a#0 0",
        "limited a#0 0",
        "allowed #0 1",
        "allowed #0 0",
        "limited #0 0",
    ];
    assert_eq!(told, expected);
    let report = replay.report(&[]);
    let limits = &report["routes"][0]["limits"];
    assert_eq!(
        limits[0],
        json!({ "policy": "#0", "allowed": 1, "limited": 0, "delayed": 0 })
    );
    assert_eq!(
        limits[1],
        json!({ "policy": "a#0", "allowed": 1, "limited": 2, "delayed": 0 })
    );
}

#[test]
fn the_client_address_is_derived_as_in_the_proxy() {
    let config = "client_ip: { trusted_proxies: [10.0.0.0/8] }
routes: [{ upstream: echo, limits: [{ quota: 10/1h, algorithm: fixed_window }] }]
";
    let line = |ip: &str, forwarded: &str| {
        format!(
            r#"{{"time":0,"client_ip":"{ip}","method":"GET","path":"/","headers":{{"x-forwarded-for":"{forwarded}"}}}}"#
        ) + "\n"
    };
    let log = [
        line("192.0.2.1", ""),
        line("::ffff:192.0.2.1", "198.51.100.1"),
        line("10.0.0.1", "192.0.2.1"),
        line("10.0.0.1", "192.0.2.1, 10.0.0.2"),
        line("2001:db8::1", ""),
        line("2001:db8::ffff", ""),
        line("2001:db8:0:1::1", ""),
    ];
    let decided = Replay::new(config, log.concat()).decisions(&[]);
    let remaining: Vec<_> = decided.iter().map(|told| &told["remaining"]).collect();
    assert_eq!(remaining, [9, 8, 7, 6, 9, 8, 9]);
}

#[test]
fn lines_are_decided_in_the_order_of_their_times() {
    let times = [
        "5000",
        "5900",
        "4000",
        "\"1970-01-01T00:00:05.8999999Z\"",
        "6000",
        "5999.999",
    ];
    let log = times.map(|time| line(time, "/a", "")).concat();
    let replay = Replay::new(TWO, log);
    let output = replay.run(&["--decisions"]);
    let told = decisions(&output);
    let told: Vec<_> = told
        .iter()
        .map(|told| [&told["line"], &told["remaining"], &told["retry_after_ms"]])
        .map(|told| told.map(Value::as_f64))
        .collect();
    let expected = [
        [Some(3.0), Some(1.0), None],
        [Some(1.0), Some(1.0), None],
        [Some(4.0), Some(0.0), None],
        [Some(2.0), Some(0.0), Some(100.0)],
        [Some(6.0), Some(0.0), Some(0.001)],
        [Some(5.0), Some(1.0), None],
    ];
    assert_eq!(told, expected);
    assert_eq!(stderr(&output), "");
    assert_eq!(replay.report(&[])["out_of_order"]["count"], 0);
}

#[test]
fn a_line_far_behind_later_ones_is_decided_at_the_latest_instant() {
    let config = "routes: [{ upstream: echo }]\n";
    // One more than wait for earlier ones.
    let later = line("6900", "/", "").repeat((1 << 16) + 1);
    let late = line("5000", "/", "");
    let replay = Replay::new(config, later + &late + &late);
    let text = replay.text();
    let named = "out of order lines: 2
  line 65538: 1.9s earlier than a line before it
  line 65539: 1.9s earlier than a line before it
";
    assert!(text.contains(named), "{text}");
    assert!(
        text.contains("65539 requests from 1970-01-01T00:00:06.9Z"),
        "{text}"
    );
}

#[test]
fn lines_that_cannot_be_read_are_counted_and_the_first_are_named() {
    let mut log = line("1000", "/a", "").into_bytes();
    log.extend_from_slice(b"\nnot JSON\n{\"time\":\xff}\r\n");
    log.extend(std::iter::repeat_n(b'x', 10 << 20));
    log.extend_from_slice(b"\n{}\n[]\n7\n\"\"");
    let replay = Replay::new(TWO, log);
    let report = replay.report(&[]);
    assert_eq!(
        (&report["requests"], &report["unparsable"]["count"]),
        (&json!(1), &json!(7))
    );
    let named = report["unparsable"]["first"].as_array().expect("a list");
    let lines: Vec<_> = named.iter().map(|named| &named["line"]).collect();
    assert_eq!(lines, [3, 4, 5, 6, 7]);
    assert_eq!(named[2]["reason"], "longer than 1024 KiB");
    let text = replay.text();
    assert!(
        text.contains("unparsable lines: 7\n  line 3: ") && text.contains("\n  and 2 more\n"),
        "{text}"
    );
    let output = replay.run(&["--decisions"]);
    assert!(
        stderr(&output).contains("line 5: longer than"),
        "{}",
        stderr(&output)
    );
    assert_eq!(decisions(&output).len(), 1);
}

#[test]
fn a_log_may_be_empty_or_end_without_a_newline_or_come_from_windows() {
    assert_eq!(Replay::new(TWO, "").decisions(&[]).len(), 0);
    let empty = Replay::new(TWO, "");
    assert!(empty.text().starts_with("0 requests\n"));
    for options in [&[][..], &["--json"], &["--decisions"]] {
        let told = stderr(&empty.run(options));
        assert!(told.starts_with("no request in "), "{options:?}: {told}");
    }
    let lines = line("1", "/a", "") + &line("2", "/a", "");
    for log in [
        lines.trim_end().to_owned(),
        lines.replace('\n', "\r\n"),
        format!("\u{feff}{lines}"),
    ] {
        assert_eq!(Replay::new(TWO, log).decisions(&[]).len(), 2);
    }
}

#[test]
fn combined_logs_are_read_with_a_host_from_the_command_line() {
    let config = "routes:
  - { name: api, match: { hosts: [api.example.com] }, upstream: echo, limits: [{ quota: 1/1h }] }
  - { name: rest, upstream: echo }
";
    let line = |target: &str| {
        format!(
            "2001:db8::7 - - [21/Nov/2026:04:41:00 +0100] \"GET {target} HTTP/1.1\" 200 5 \"-\" \"-\"\n"
        )
    };
    let replay = Replay::new(
        config,
        line("/a\\x22") + &line("http://other.example/") + &line("/a b"),
    );
    let ruled = |options: &[&str]| {
        let decided = replay.decisions(options).into_iter();
        decided
            .map(|told| told["decision"].to_string())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        ruled(&[]),
        ["\"unlimited\"", "\"unlimited\"", "\"unlimited\""]
    );
    let options = ["--host", "api.example.com"];
    assert_eq!(
        ruled(&options),
        ["\"allowed\"", "\"unlimited\"", "\"unlimited\""]
    );
    let report = replay.report(&options);
    assert_eq!(report["answered"], json!({ "The target isn't a URI.": 1 }));
    assert_eq!(report["from"], "2026-11-21T03:41:00Z");
    assert_eq!(report["routes"][1]["route"], "rest");
    // What the first line looks like does not matter where the format is given.
    let output = replay.run(&["--format", "json", "--json"]);
    let report: Value = serde_json::from_slice(&output.stdout).expect("a report");
    assert_eq!(report["unparsable"]["count"], 3);
}

#[test]
fn a_summary_has_routes_policies_and_the_most_frequent_keys() {
    let config = "routes:
  - { name: a, match: { path: /a }, upstream: echo, limits: [{ key: header:x, quota: 1/1s, algorithm: fixed_window }] }
";
    let mut log = String::new();
    for (time, key) in [
        (100, "k1"),
        (250, "k1"),
        (300, "k2"),
        (400, "k1"),
        (500, "k2"),
        (1200, "k3"),
    ] {
        log += &line(
            &time.to_string(),
            "/a",
            &format!(r#","headers":{{"x":"{key}"}}"#),
        );
    }
    log += &line("1300", "/nowhere", "");
    let replay = Replay::new(config, log);
    let expected = json!({
        "requests": 7, "from": "1970-01-01T00:00:00.1Z", "until": "1970-01-01T00:00:01.3Z",
        "allowed": 3, "limited": 3, "unlimited": 1, "answered": {},
        "routes": [
            { "route": "a", "requests": 6, "limited": 3,
              "limits": [{ "policy": "a#0", "allowed": 3, "limited": 3, "delayed": 0 }] },
            { "route": null, "requests": 1, "limited": 0, "limits": [] },
        ],
        "policies": [{
            "policy": "a#0", "algorithm": "fixed_window", "quota": "1/1s", "evictions": 0,
            "clients": 3, "limited_clients": 2,
            "clients_by_use": { "tenths": [0, 0, 0, 0, 0, 0, 0, 0, 0, 1], "limited": 2 },
            "longest": { "key": "header:x = k1", "from": "1970-01-01T00:00:00.25Z", "limited_ms": 750 },
            "most_limited": [
                { "key": "header:x = k1", "most": 2, "least": 2, "requests": { "most": 3, "least": 3 } },
                { "key": "header:x = k2", "most": 1, "least": 1, "requests": { "most": 2, "least": 2 } },
            ],
            "busiest": [
                { "key": "header:x = k1", "most": 3, "least": 3 },
                { "key": "header:x = k2", "most": 2, "least": 2 },
                { "key": "header:x = k3", "most": 1, "least": 1 },
            ],
        }],
        "timeline": {
            "from": "1970-01-01T00:00:00Z", "step_ms": 1000,
            "parts": [
                { "allowed": 2, "limited": 3, "unlimited": 0 },
                { "allowed": 1, "limited": 0, "unlimited": 1 },
            ],
            "policies": [{ "policy": "a#0", "limited": [3, 0], "shadowed": [0, 0] }],
        },
        "out_of_order": { "count": 0, "first": [] },
        "unparsable": { "count": 0, "first": [] },
    });
    assert_eq!(replay.report(&[]), expected);
    let text = replay.text();
    for part in [
        "7 requests from 1970-01-01T00:00:00.1Z to 1970-01-01T00:00:01.3Z\n           3  allowed\n",
        "\nroute a: 6 requests, 3 limited\n     allowed     limited     delayed  by policy\n",
        "\n           3           3           0  a#0\n",
        "\nno route takes: 1 requests, 0 limited\n",
        "\npolicy a#0 (fixed_window, 1/1s)\n  limited: 2 of 3 clients\n  longest single wait: 750ms from 1970-01-01T00:00:00.25Z, header:x = k1 (waits are not added up)\n",
        "\n  limited most:\n           2  header:x = k1 (66.7% of 3 requests)\n",
    ] {
        assert!(text.contains(part), "no {part:?} in\n{text}");
    }
}

/// Limits by `header:x` and by address, and a log in which `k1` asks four times and `k2` once.
fn keyed(quota: &str) -> String {
    format!(
        "policies:
  per-key: {{ key: \"header:x\", quota: {quota} }}
  per-address: {{ key: client_ip, quota: 9/300d }}
routes: [{{ name: a, upstream: echo, limits: [per-key, per-address] }}]\n"
    )
}

fn keyed_log() -> String {
    let line = |(time, key): (usize, &&str)| {
        let fields = format!(r#","headers":{{"x":"{key}"}}"#);
        line(&time.to_string(), "/", &fields)
    };
    let keys = ["k1", "k1", "k1", "k2", "k1"];
    keys.iter().enumerate().map(line).collect()
}

#[test]
fn one_policy_is_shown_alone() {
    let replay = Replay::new(&keyed("2/300d"), keyed_log());
    let report = replay.report(&["--policy", "per-key"]);
    let names = |list: &Value| {
        let items = list.as_array().expect("a list").iter();
        items.map(|item| item["policy"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(names(&report["policies"]), ["per-key"]);
    assert_eq!(names(&report["routes"][0]["limits"]), ["per-key"]);
    assert_eq!(report["requests"], 5);
    let most = &report["policies"][0]["most_limited"][0];
    assert_eq!(
        (&most["most"], &most["requests"]["most"]),
        (&json!(2), &json!(4))
    );
    let shown = replay.run(&["--policy", "per-key"]);
    let text = String::from_utf8(shown.stdout).expect("text");
    let scope = "Z\nonly policy per-key is shown, but the counts of requests are of all policies\n";
    assert!(text.contains(scope), "{text}");
    let unknown = replay.run(&["--policy", "per-kei"]);
    assert_eq!(unknown.status.code(), Some(2), "{unknown:?}");
    let told = stderr(&unknown);
    assert!(told.contains("did you mean `per-key`?"), "{told}");
}

#[test]
fn a_policy_in_shadow_would_limit() {
    let replay = Replay::new(&keyed("2/300d, burst: 1, mode: shadow"), keyed_log());
    let output = replay.run(&[]);
    let text = String::from_utf8(output.stdout).expect("text");
    for part in [
        "\n           5  allowed\n           0  limited\n           3  would be limited, by policies in shadow\n",
        "\npolicy per-key (gcra, 2/300d, burst 1)\n  would be limited: 1 of 2 clients\n",
        "\n  would be limited most:\n           3  header:x = k1 ",
        "\npolicy per-address (gcra, 9/300d)\n  limited: 0 of 1 clients\n",
    ] {
        assert!(text.contains(part), "no {part:?} in\n{text}");
    }
    assert!(!text.contains("  limited most"), "{text}");
}

#[test]
fn two_configurations_are_compared_by_policies_and_clients() {
    let replay = Replay::new(&keyed("1/300d"), keyed_log());
    let old = replay.dir.path().join("old.yaml");
    let former = keyed("3/300d").replace("per-address", "former");
    fs::write(&old, former).expect("the directory is writable");
    let old = old.to_str().expect("a path of ours");
    let compared = replay.report(&["--against", old]);
    let count = |limited: u64| json!({ "limited": limited, "shadowed": 0, "limited_clients": limited.min(1) });
    let policies = json!([
        { "policy": "per-key", "before": count(1), "after": count(3) },
        { "policy": "per-address", "before": null, "after": count(0) },
        { "policy": "former", "before": count(0), "after": null },
    ]);
    assert_eq!(compared["policies"], policies);
    let clients = json!([{
        "policy": "per-key", "key": "header:x = k1",
        "before": { "most": 1, "least": 1 }, "after": { "most": 3, "least": 3 },
    }]);
    assert_eq!(compared["clients"], clients);
    assert_eq!(compared["before"]["limited"], 1);
    assert_eq!(compared["after"]["limited"], 3);

    let output = replay.run(&["--against", old, "--policy", "per-key"]);
    let text = String::from_utf8(output.stdout).expect("text");
    for part in [
        "5 requests from 1970-",
        "\n           1           3  in all\n           1           3  policy per-key\n\n",
        "  clients that are limited\n           1           1  policy per-key\n\n",
        "\n           1           3  per-key: header:x = k1\n",
    ] {
        assert!(text.contains(part), "no {part:?} in\n{text}");
    }
    assert!(!text.contains("former"), "{text}");
    let shadow = keyed("3/300d").replace("3/300d", "3/300d, mode: shadow");
    fs::write(old, shadow).expect("the directory is writable");
    let output = replay.run(&["--against", old, "--policy", "per-key"]);
    let text = String::from_utf8(output.stdout).expect("text");
    for part in [
        "\n           0           3  in all\n",
        "\n           1           3  policy per-key (before in shadow)\n",
        "\n           1           3  per-key: header:x = k1 (before in shadow)\n",
    ] {
        assert!(text.contains(part), "no {part:?} in\n{text}");
    }
    let unknown = keyed("3/300d").replace("header:x", "header:other");
    fs::write(old, unknown).expect("the directory is writable");
    let output = replay.run(&["--against", old]);
    let text = String::from_utf8(output.stdout).expect("text");
    let (_, told) = text
        .split_once("\nwith the configuration before:\n")
        .unwrap_or_else(|| panic!("no remarks of the configuration before in\n{text}"));
    assert!(
        told.contains("header:other") || told.contains("`other`"),
        "{told}"
    );
    let wrong = replay.run(&["--against", "nothing.yaml"]);
    assert_eq!(wrong.status.code(), Some(1), "{wrong:?}");
}

#[test]
fn certificates_and_upstreams_need_not_exist() {
    let config = "listeners:
  - address: 192.0.2.1:443
    tls: { certificates: [{ certificate: missing.pem, key: missing.key }] }
access_log: { path: /nonexistent/access.log }
upstreams:
  api: { endpoints: [https://api.invalid], tls: { ca: missing-ca.pem } }
routes: [{ upstream: api, limits: [{ quota: 1/1h }] }]
";
    let decided = Replay::new(config, line("0", "/", "")).decisions(&[]);
    assert_eq!(decided[0]["decision"], "allowed");
}

#[test]
fn a_file_that_is_no_log_is_a_usage_error() {
    let replayed = Replay::new(TWO, b"\x1f\x8b\x08\x00\x00\x00");
    let output = replayed.run(&[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        stderr(&output).contains("zcat LOG | sluicegate replay -"),
        "{}",
        stderr(&output)
    );

    let config = replayed.dir.path().join("sluicegate.yaml");
    let output = replay(replayed.dir.path(), &config, &[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        stderr(&output).contains("is a directory"),
        "{}",
        stderr(&output)
    );

    let output = replay(&replayed.dir.path().join("missing"), &config, &[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        stderr(&output).contains("No such file"),
        "{}",
        stderr(&output)
    );

    for options in [
        &["--json", "--decisions"][..],
        &["--format", "xml"],
        &["--host", "a\nb"],
    ] {
        let output = replayed.run(options);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
    }
}

#[test]
fn an_invalid_configuration_is_reported() {
    let output = Replay::new("routes: [{ upstream: nowhere }]\n", "").run(&[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).contains("unknown-name"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn help_shows_an_example() {
    let output = command(["replay", "--help"])
        .output()
        .expect("the binary starts");
    let help = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        help.contains("zcat access.log.*.gz | sluicegate replay -"),
        "{help}"
    );
}

#[test]
fn many_lines_from_a_pipe_are_counted_to_the_last() {
    const LINES: u64 = 100_000;
    let dir = tempfile::tempdir().expect("a temporary directory");
    let config = dir.path().join("sluicegate.yaml");
    fs::write(&config, TWO).expect("the directory is writable");
    let mut process = command(["replay", "-", "--json", "--config"])
        .arg(config)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    let mut stdin = process.stdin.take().expect("stdin is a pipe");
    let writer = thread::spawn(move || {
        for number in 0..LINES {
            let line = line(&number.to_string(), "/a", "");
            stdin
                .write_all(line.as_bytes())
                .expect("the replay reads on");
        }
    });
    let output = process.wait_with_output().expect("our child");
    writer.join().expect("all is written");
    assert_eq!(stderr(&output), "", "no bar where there is no terminal");
    let report: Value = serde_json::from_slice(&output.stdout).expect("a report");
    assert_eq!(report["requests"], LINES);
    assert_eq!(report["allowed"], LINES / 1_000 * 2);
    assert_eq!(
        report["policies"][0]["most_limited"][0]["least"],
        LINES / 1_000 * 998
    );
}

#[test]
fn the_pictures_of_the_documentation_show_real_decisions() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let dir = tempfile::tempdir().expect("a temporary directory");
    let drawn = Command::new("python3")
        .arg(root.join("scripts/pictures"))
        .arg(env!("CARGO_BIN_EXE_sluicegate"))
        .arg(dir.path())
        .output()
        .expect("python3 is installed");
    assert!(drawn.status.success(), "{}", stderr(&drawn));
    let pages = ["README.md", "docs/limits.md"];
    let pages = pages.map(|page| fs::read_to_string(root.join(page)).expect("the page is kept"));
    let mut count = 0;
    for picture in fs::read_dir(dir.path()).expect("the directory is ours") {
        let picture = picture.expect("the directory is ours");
        let name = picture.file_name();
        let name = name.to_str().expect("a plain name");
        let kept = fs::read(root.join("docs/pictures").join(name)).expect("the picture is kept");
        let fresh = fs::read(picture.path()).expect("the directory is ours");
        assert!(kept == fresh, "{name} is another now: run scripts/pictures");
        let link = format!("pictures/{name})");
        assert!(
            pages.iter().any(|page| page.contains(&link)),
            "{name} is not shown"
        );
        count += 1;
    }
    let kept = fs::read_dir(root.join("docs/pictures")).expect("docs/pictures");
    // A browser makes the others.
    let kept = kept.filter(|one| {
        let picture = one.as_ref().expect("the directory is ours");
        picture.path().extension().is_some_and(|end| end == "svg")
    });
    assert_eq!(kept.count(), count, "no picture is left over");
}

/// Sends requests to a proxy with an access log; returns the log and its replay.
#[track_caller]
fn served_and_replayed(format: &str, hosts: &[&str]) -> (Vec<String>, Vec<Value>) {
    let mut gateway = Gateway::start(&format!(
        "workers: 1
access_log: {{ format: {format}, path: access.log }}
routes:
  - {{ name: api, match: {{ hosts: [api.example.com] }}, upstream: echo,
      limits: [{{ key: [header:user-agent, 'query:q'], algorithm: fixed_window, quota: 2/300d }}] }}
  - {{ name: rest, upstream: echo, limits: [{{ key: client_ip, quota: 1/300d }}] }}
"
    ));
    let port = gateway.address().port();
    let resolve = "127.0.0.1";
    let mut count = 0;
    for host in hosts {
        for version in ["--http1.1", "--http2-prior-knowledge", "--http1.0"] {
            for path in ["/a?q=%22x", "//b/../a?q=%22x&c=%c3", "/a%2fb"] {
                let url = format!("http://{host}:{port}{path}");
                let to = format!("{host}:{port}:{resolve}");
                let options = [
                    "--path-as-is",
                    "-A",
                    "a \"b\\\té",
                    "--resolve",
                    &to,
                    version,
                    &url,
                ];
                let output = curl(&options);
                assert_eq!(output.code, Some(0), "{output}");
                count += 1;
            }
        }
    }
    let path = gateway.dir().join("access.log");
    let log = wait_for("the access log", || {
        let log = fs::read_to_string(&path).ok()?;
        (log.lines().count() == count).then_some(log)
    });
    let output = replay(
        &path,
        &gateway.config_path(),
        &["--decisions", "--host", "api.example.com"],
    );
    assert_eq!(stderr(&output), "", "every line is read, and in order");
    assert!(gateway.is_running());
    (log.lines().map(str::to_owned).collect(), decisions(&output))
}

/// The decision that a status implies.
fn decision_of(status: u64) -> &'static str {
    match status {
        200 => "allowed",
        429 => "limited",
        _ => "unlimited",
    }
}

#[test]
fn a_json_access_log_is_replayed_with_the_same_decisions() {
    let (log, decided) = served_and_replayed("json", &["api.example.com", "other.example.com"]);
    assert_eq!(log.len(), decided.len());
    for (line, told) in log.iter().zip(&decided) {
        let line: Value = serde_json::from_str(line).expect("a JSON line");
        let status = line["status"].as_u64().expect("a status");
        assert_eq!(told["decision"], decision_of(status), "{line} {told}");
        assert_eq!(told["policy"], line["policy"], "{line} {told}");
    }
    let count = |decision| {
        decided
            .iter()
            .filter(|told| told["decision"] == decision)
            .count()
    };
    assert_eq!(["allowed", "limited", "unlimited"].map(count), [3, 9, 6]);
}

#[test]
fn a_combined_access_log_is_replayed_with_the_same_decisions() {
    let (log, decided) = served_and_replayed("combined", &["api.example.com"]);
    assert_eq!(log.len(), decided.len());
    for (line, told) in log.iter().zip(&decided) {
        let status = line
            .split("\" ")
            .nth(1)
            .and_then(|rest| rest.split(' ').next());
        let status = status
            .and_then(|status| status.parse().ok())
            .expect("a status");
        assert_eq!(told["decision"], decision_of(status), "{line} {told}");
    }
    let count = |decision| {
        decided
            .iter()
            .filter(|told| told["decision"] == decision)
            .count()
    };
    assert_eq!(["allowed", "limited", "unlimited"].map(count), [2, 4, 3]);
}
