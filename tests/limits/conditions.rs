//! Conditions, exceptions, costs and modes of policies, over real sockets.

use std::net::SocketAddr;

use crate::support::admin::{AdminClient, TOKENS};
use crate::support::client::{get, get_with};
use crate::support::gateway::Gateway;
use crate::support::replay::{Replay, command, line};
use crate::support::wait_for;

/// The statuses of `N` requests for `path` with these header fields.
fn statuses<const N: usize>(address: SocketAddr, path: &str, headers: &str) -> [u16; N] {
    std::array::from_fn(|_| get_with(address, path, headers).status)
}

/// The output of `explain` for a GET of `url` with this header field.
fn explained(config: &str, url: &str, header: &str) -> String {
    let dir = tempfile::tempdir().expect("there is room for a directory");
    let file = dir.path().join("sluicegate.yaml");
    std::fs::write(&file, config).expect("there is room for a file");
    let mut explain = command(["explain", "GET", url, "-H", header, "--config"]);
    let output = explain.arg(file).output().expect("the binary starts");
    String::from_utf8(output.stdout).expect("it is text")
}

#[test]
fn a_policy_applies_where_its_condition_holds_and_charges_nothing_elsewhere() {
    let gateway = Gateway::start(
        "policies:
  free: { key: constant, quota: 2/300d, when: { not: { header: { x-plan: gold } } } }
  all: { key: constant, quota: 9/300d }
routes:
  - { name: a, upstream: echo, limits: [free, all] }
  - name: paths
    match: { path: /Paths/** }
    case_sensitive: false
    upstream: echo
    limits: [{ key: constant, quota: 1/300d, when: { path: /Paths/Login, cidr: [127.0.0.0/8] } }]
",
    );
    let address = gateway.address();
    assert_eq!(statuses(address, "/", "x-plan: gold\r\n"), [200; 3]);
    assert_eq!(statuses(address, "/", ""), [200, 200, 429]);
    let both = "x-plan: gold\r\nx-plan: free\r\n";
    assert_eq!(
        statuses(address, "/", both),
        [429],
        "a second value frees nobody"
    );

    let gold = get_with(address, "/", "x-plan: gold\r\n");
    assert_eq!(
        gold.expect_header("ratelimit-policy"),
        "\"all\";q=9;w=25920000"
    );
    assert!(
        gold.expect_header("ratelimit").starts_with("\"all\";r=3"),
        "3 + 2 + 1 of 9 are spent"
    );
    let counted = |policy, decision| {
        gateway.metric(&format!(
            "sluicegate_limit_decisions_total{{policy=\"{policy}\",route=\"a\",decision=\"{decision}\"}}"
        ))
    };
    assert_eq!(counted("free", "allowed"), Some(2.0));
    assert_eq!(counted("free", "limited"), Some(2.0));
    assert_eq!(counted("free", "exempt"), Some(0.0), "it was for others");
    assert_eq!(counted("all", "allowed"), Some(6.0));

    assert_eq!(statuses(address, "/paths/other", ""), [200; 3]);
    assert_eq!(get(address, "/paths/LOGIN").status, 200);
    assert_eq!(
        get(address, "/PATHS/login").status,
        429,
        "as the route reads paths"
    );
}

#[test]
fn explain_names_a_condition_that_does_not_hold() {
    let config = "routes: [{ upstream: echo, limits: [{ quota: 1/1h, when: { header: { x-plan: free } } }] }]";
    let gold = explained(config, "http://a/", "x-plan: gold");
    assert!(
        gold.contains("says    does not apply: `when` is not met\n"),
        "{gold}"
    );
    let free = explained(config, "http://a/", "x-plan: free");
    assert!(free.contains("says    allowed: 0 left"), "{free}");
}

#[test]
fn exempt_keys_are_not_limited_and_overrides_have_their_own_quota_and_buckets() {
    let policy = |partner: u32| {
        format!(
            "policies:
  keys:
    key: header:x-key
    quota: 2/300d
    exempt: [{{ value: health }}, {{ cidr: 127.0.0.2 }}]
    overrides: [{{ value: partner, quota: {partner}/300d }}, {{ prefix: trial-, quota: 1/300d }}]
routes: [{{ name: a, upstream: echo, limits: [keys] }}]
"
        )
    };
    let gateway = Gateway::start(&policy(4));
    let address = gateway.address();
    assert_eq!(statuses(address, "/", "x-key: health\r\n"), [200; 5]);
    assert_eq!(statuses(address, "/", "x-key: alice\r\n"), [200, 200, 429]);
    assert_eq!(statuses(address, "/", "x-key: trial-1\r\n"), [200, 429]);
    assert_eq!(statuses(address, "/", "x-key: trial-2\r\n"), [200, 429]);
    assert_eq!(
        statuses(address, "/", "x-key: partner\r\n"),
        [200, 200, 200, 200, 429]
    );

    let refusal = get_with(address, "/", "x-key: partner\r\naccept: text/plain\r\n");
    assert_eq!(
        refusal.expect_header("ratelimit-policy"),
        "\"keys\";q=4;w=25920000"
    );
    assert!(
        refusal.text().contains("of 4/300d is used up"),
        "{}",
        refusal.text()
    );
    let exempt = get_with(address, "/", "x-key: health\r\n");
    assert_eq!(exempt.header("ratelimit"), None);
    let metric = |series: &str| gateway.metric(series).unwrap_or(0.0);
    let decided = |decision| {
        metric(&format!(
            "sluicegate_limit_decisions_total{{policy=\"keys\",route=\"a\",decision=\"{decision}\"}}"
        ))
    };
    assert_eq!(
        (decided("exempt"), decided("allowed"), decided("limited")),
        (6.0, 8.0, 5.0)
    );
    assert_eq!(
        metric("sluicegate_limit_buckets{policy=\"keys\"}"),
        4.0,
        "those of overrides too"
    );

    gateway.reload(&policy(6));
    assert_eq!(
        statuses(address, "/", "x-key: partner\r\n"),
        [200, 200, 429],
        "it keeps what it used"
    );
}

#[test]
fn explain_shows_exemptions_and_overrides() {
    let config = "routes: [{ upstream: echo, limits: [{ key: header:x-key, quota: 5/1h, \
                  exempt: [{ value: a }], overrides: [{ value: b, quota: 9/1h }] }] }]";
    let exempt = explained(config, "http://a/", "x-key: a");
    assert!(
        exempt.contains("says    does not apply: exempt\n"),
        "{exempt}"
    );
    let other = explained(config, "http://a/", "x-key: b");
    assert!(
        other.contains("(gcra, 9/1h)") && other.contains("says    allowed: 8 left"),
        "{other}"
    );
}

#[test]
fn on_missing_key_value_replaces_a_missing_part_in_keys_and_exceptions() {
    let gateway = Gateway::start(
        "policies:
  plans:
    key: [header:x-plan, header:x-region]
    on_missing_key: { value: free }
    quota: 3/300d
    overrides: [{ part: header:x-plan, value: free, quota: 2/300d }]
  keys: { key: header:x-key, on_missing_key: { value: 7 }, quota: 2/300d }
  own: { key: header:x-key, on_missing_key: { value: monitor }, quota: 1/300d, exempt: [{ value: monitor }] }
routes:
  - { match: { path: /plans }, upstream: echo, limits: [plans] }
  - { match: { path: /keys }, upstream: echo, limits: [keys] }
  - { match: { path: /own }, upstream: echo, limits: [own] }
",
    );
    let address = gateway.address();
    assert_eq!(statuses(address, "/plans", ""), [200]);
    let same = "x-plan: free\r\nx-region: free\r\n";
    assert_eq!(
        statuses(address, "/plans", same),
        [200, 429],
        "it is that bucket, with the quota of its override"
    );
    assert_eq!(statuses(address, "/plans", "x-plan:\r\n"), [429], "empty");
    assert_eq!(
        statuses(address, "/plans", "x-plan: pro\r\n"),
        [200, 200, 200, 429]
    );
    let stood_in = "x-plan: pro\r\nx-region: free\r\n";
    assert_eq!(statuses(address, "/plans", stood_in), [429]);
    assert_eq!(
        statuses(address, "/plans", "x-region: eu\r\n"),
        [200, 200, 429]
    );
    assert_eq!(statuses(address, "/keys", ""), [200, 200, 429]);
    assert_eq!(statuses(address, "/keys", "x-key: 7\r\n"), [429]);
    let several = "x-key: 1\r\nx-key: 2\r\n";
    assert_eq!(statuses(address, "/keys", several), [400]);
    assert_eq!(statuses(address, "/own", ""), [200, 200, 200]);
    assert_eq!(statuses(address, "/own", "x-key: other\r\n"), [200, 429]);
}

#[test]
fn explain_names_the_value_that_replaces_a_missing_part() {
    let config = "routes: [{ upstream: echo, limits: [{ key: header:x-key, on_missing_key: { value: free }, \
                  quota: 5/1h, overrides: [{ value: free, quota: 9/1h }] }] }]";
    let shown = explained(config, "http://a/", "x-other: a");
    assert!(
        shown.contains("header:x-key is missing\n  key     on_missing_key = free\n"),
        "{shown}"
    );
    assert!(shown.contains("(gcra, 9/1h)"), "{shown}");
}

#[test]
fn a_request_states_its_cost_and_is_refused_without_a_charge_if_that_is_no_number() {
    let gateway = Gateway::start(
        "policies:
  units: { key: constant, quota: 10/300d, cost: { header: x-cost, max: 6 } }
  requests: { key: constant, quota: 100/300d }
routes: [{ upstream: echo, limits: [requests, units] }]
",
    );
    let address = gateway.address();
    let of = |status, requests, units| (status, vec![requests, units]);
    // `"requests";r=99;t=1, "units";r=9;t=1`
    let left = |headers: &str| {
        let answer = get_with(address, "/", headers);
        let items = answer.headers_of("ratelimit").join(", ");
        let numbers = items.split(";r=").skip(1);
        let number = |text: &str| {
            text.split([';', ','])
                .next()
                .and_then(|digits| digits.parse().ok())
        };
        let numbers: Vec<u32> = numbers.map(|text| number(text).expect("r=N")).collect();
        (answer.status, numbers)
    };
    assert_eq!(left(""), of(200, 99, 9));
    assert_eq!(left("x-cost: 3\r\n"), of(200, 98, 6));
    for wrong in [
        "x-cost: many\r\n",
        "x-cost: 1\r\nx-cost: 2\r\n",
        "x-cost: -1\r\n",
    ] {
        assert_eq!(left(wrong), (400, vec![]), "{wrong}");
    }
    assert_eq!(
        left("x-cost: 99999999999\r\n"),
        of(200, 97, 0),
        "6 is the most"
    );
    assert_eq!(
        left("x-cost: 0\r\n"),
        of(429, 97, 0),
        "nobody passes for nothing"
    );

    let config =
        "routes: [{ upstream: echo, limits: [{ quota: 5/1h, cost: { header: x-cost, max: 9 } }] }]";
    let explain = |header| explained(config, "http://a/", header);
    let paid = explain("x-cost: 2");
    assert!(
        paid.contains("  cost    2\n  says    allowed: 3 left"),
        "{paid}"
    );
    let never = explain("x-cost: 7");
    assert!(
        never.contains("limited: it can never be allowed"),
        "{never}"
    );
    let wrong = explain("x-cost: two");
    assert!(
        wrong.contains("answer    400 Bad Request: The field that says"),
        "{wrong}"
    );
}

#[test]
fn a_shadowed_policy_counts_would_be_refusals_and_refuses_nothing() {
    let gateway = Gateway::start(&format!(
        "{TOKENS}access_log: {{ format: json, path: access.log }}
policies:
  watching: {{ key: constant, quota: 2/300d, mode: shadow }}
  keyed: {{ key: header:x-key, on_missing_key: refuse, quota: 5/300d, mode: shadow }}
  disabled: {{ key: constant, quota: 0/1s, mode: disabled }}
  real: {{ key: constant, quota: 4/300d }}
routes: [{{ name: a, upstream: echo, limits: [watching, keyed, disabled, real] }}]
"
    ));
    let address = gateway.address();
    assert_eq!(statuses(address, "/", ""), [200, 200, 200, 200, 429, 429]);
    let refused = get_with(address, "/", "accept: application/json\r\n");
    assert_eq!(
        refused.expect_header("ratelimit-policy"),
        "\"real\";q=4;w=25920000"
    );
    assert!(
        refused.text().contains("\"violated-policies\":[\"real\"]"),
        "{}",
        refused.text()
    );
    let count = |policy, decision| {
        let labels = format!("policy=\"{policy}\",route=\"a\",decision=\"{decision}\"");
        gateway
            .metric(&format!("sluicegate_limit_decisions_total{{{labels}}}"))
            .unwrap_or(0.0)
    };
    assert_eq!(
        (count("watching", "allowed"), count("watching", "shadowed")),
        (2.0, 2.0),
        "of four requests that pass"
    );
    let policy = AdminClient::writer(&gateway).read("/v1/policies/watching");
    assert_eq!(policy["decisions"]["shadowed"], 2);
    let clients = &policy["shadow"];
    assert_eq!(
        (&clients["clients"], &clients["limited_clients"]),
        (&1.into(), &1.into())
    );
    assert_eq!(clients["most_limited"][0]["requests"], 2);
    assert_eq!(
        (count("watching", "limited"), count("real", "limited")),
        (0.0, 3.0)
    );
    assert_eq!(count("keyed", "shadowed"), 4.0, "nobody gave a key");
    assert_eq!(count("disabled", "limited"), 0.0);

    let log = wait_for("the log", || {
        let log = std::fs::read_to_string(gateway.dir().join("access.log")).ok()?;
        (log.lines().count() == 7).then_some(log)
    });
    let decided = log.lines().map(|line| {
        let line: serde_json::Value = serde_json::from_str(line).expect("it is JSON");
        format!("{} {}", line["policy"], line["decision"]).replace('"', "")
    });
    // Each worker has its own queue.
    let mut decided: Vec<_> = decided.collect();
    decided.sort_unstable();
    let expected = [
        ["real allowed"; 2].as_slice(),
        &["real limited"; 3],
        &["watching shadowed"; 2],
    ];
    assert_eq!(decided, expected.concat());
}

#[test]
fn percent_enforces_always_the_same_part_of_the_keys() {
    let config = "policies: { part: { key: header:x-key, quota: 1/300d, percent: 30 } }
routes: [{ upstream: echo, limits: [part] }]
";
    let refused = || {
        let gateway = Gateway::start(config);
        let is_refused = |key: &usize| {
            let header = format!("x-key: {key}\r\n");
            statuses(gateway.address(), "/", &header) == [200, 429]
        };
        (0..60).filter(is_refused).collect::<Vec<_>>()
    };
    let first = refused();
    assert!((6..=30).contains(&first.len()), "{first:?}");
    assert_eq!(refused(), first, "another process, another secret");
}

#[test]
fn explain_names_shadowed_policies() {
    let config = "routes: [{ upstream: echo, limits: [{ quota: 0/1h, mode: shadow }] }]";
    let shadow = explained(config, "http://a/", "x-key: a");
    assert!(
        shadow.contains("  mode    shadow: it refuses nothing\n  says    shadowed"),
        "{shadow}"
    );
    assert!(shadow.contains("answer    allowed"), "{shadow}");
}

#[test]
fn a_candidate_runs_beside_the_quota_and_keeps_its_buckets() {
    let policy = |candidate: u32| {
        format!(
            "policies:
  keys:
    key: header:x-key
    quota: 5/300d
    overrides: [{{ value: partner, quota: 9/300d }}]
    candidate: {{ quota: {candidate}/300d }}
routes: [{{ name: a, upstream: echo, limits: [keys] }}]
"
        )
    };
    let gateway = Gateway::start(&policy(1));
    let address = gateway.address();
    let decided = |name, decision| {
        let labels = format!("policy=\"{name}\",route=\"a\",decision=\"{decision}\"");
        let series = format!("sluicegate_limit_decisions_total{{{labels}}}");
        gateway.metric(&series).unwrap_or(0.0)
    };
    assert_eq!(statuses(address, "/", "x-key: a\r\n"), [200, 200, 200]);
    assert_eq!(statuses(address, "/", "x-key: partner\r\n"), [200; 5]);
    assert_eq!(
        (decided("keys", "allowed"), decided("keys", "limited")),
        (8.0, 0.0)
    );
    let candidate = "keys/candidate";
    assert_eq!(
        (
            decided(candidate, "allowed"),
            decided(candidate, "shadowed")
        ),
        (1.0, 2.0)
    );
    assert_eq!(
        decided(candidate, "exempt"),
        5.0,
        "it is not about partners"
    );

    gateway.reload(&policy(2));
    let last = get_with(address, "/", "x-key: a\r\n");
    assert_eq!(
        last.expect_header("ratelimit-policy"),
        "\"keys\";q=5;w=25920000"
    );
    assert_eq!(statuses(address, "/", "x-key: a\r\n"), [200, 429]);
    // A fresh bucket would have room for the second. Series may begin anew with a reload.
    let shadowed = decided(candidate, "shadowed");
    assert!([1.0, 3.0].contains(&shadowed), "{shadowed}");
}

#[test]
fn replay_reports_shadowed_policies() {
    let config = "routes: [{ name: a, upstream: echo, limits: [{ key: constant, quota: 9/1h, candidate: { quota: 1/1h } }] }]";
    let replay = Replay::new(
        config,
        format!(
            "{}{}",
            line("1700000000", "/", ""),
            line("1700000001", "/", "")
        ),
    );
    let decisions = replay.decisions(&[]);
    assert_eq!(decisions[0].get("shadowed_by"), None);
    assert_eq!(
        decisions[1]["shadowed_by"],
        serde_json::json!(["a#0/candidate"])
    );
    assert_eq!(decisions[1]["decision"], "allowed");
    let text = replay.text();
    assert!(text.contains("a#0/candidate, 1 shadowed\n"), "{text}");
    let limits = &replay.report(&[])["routes"][0]["limits"];
    assert_eq!(limits[1]["shadowed"], 1);
}

#[test]
fn a_top_level_exemption_holds_for_every_limit() {
    let gateway = Gateway::start(
        "exempt:
  - { part: header:x-api-key, value: monitor }
  - { part: header:x-api-key, prefix: probe- }
  - { part: route, value: health }
  - { part: path, value: /B/free }
limits: [{ key: constant, quota: 1/300d }]
policies:
  own: { key: header:x-api-key, quota: 1/300d, exempt: [{ value: partner }], overrides: [{ value: monitor, quota: 0/1d }],
         penalty: { strikes: 1, within: 1h, for: [1d] } }
routes:
  - { name: a, match: { path: /a }, upstream: echo, limits: [own] }
  - { name: health, match: { path: /health }, upstream: echo, limits: [own] }
  - { name: b, match: { path: /b/** }, case_sensitive: false, upstream: echo, limits: [own] }
",
    );
    let address = gateway.address();
    let asked = |path, key: &str| statuses::<3>(address, path, &format!("x-api-key: {key}\r\n"));
    assert_eq!(asked("/a", "monitor"), [200; 3], "before its override");
    assert_eq!(asked("/a", "probe-7"), [200; 3]);
    assert_eq!(asked("/health", "any"), [200; 3], "by the route");
    assert_eq!(
        asked("/b/FREE", "any"),
        [200; 3],
        "as the route reads paths"
    );
    assert_eq!(asked("/nowhere", "monitor"), [404; 3], "where no route is");
    assert_eq!(
        asked("/a", "partner"),
        [200, 429, 429],
        "by the top-level limit"
    );
    assert_eq!(asked("/nowhere", "partner"), [429; 3]);
    let twice = "x-api-key: monitor\r\nx-api-key: other\r\n";
    assert_eq!(statuses::<1>(address, "/a", twice), [400]);
    let exempt = "sluicegate_limit_decisions_total{policy=\"own\",route=\"a\",decision=\"exempt\"}";
    assert_eq!(
        gateway.metric(exempt),
        Some(9.0),
        "the partner's refused ones, too"
    );
    let config = "exempt: [{ cidr: 127.0.0.0/8 }]
limits: [{ key: constant, quota: 0/300d }]
routes: [{ name: a, upstream: echo, limits: [{ quota: 0/1h, mode: shadow }] }]
";
    gateway.reload(config);
    assert_eq!(statuses::<3>(address, "/a", ""), [200; 3]);
}

#[test]
fn on_several_values_says_which_of_them_count() {
    let gateway = Gateway::start(
        "policies:
  first: { key: [cookie:sid, query:q], quota: 2/300d, on_several_values: first }
  all: { key: header:x-key, quota: 2/300d, on_several_values: all }
  other: { key: header:x-none, on_missing_key: cookie:sid, quota: 1/300d, on_several_values: first }
routes:
  - { match: { path: /first }, upstream: echo, limits: [first] }
  - { match: { path: /other }, upstream: echo, limits: [other] }
  - { upstream: echo, limits: [all] }
",
    );
    let ask = |path: &str, headers: &str| get_with(gateway.address(), path, headers).status;
    assert_eq!(ask("/first?q=1&q=2", "cookie: sid=a; sid=b\r\n"), 200);
    assert_eq!(ask("/first?q=1", "cookie: sid=a\r\n"), 200, "the same key");
    assert_eq!(ask("/first?q=1", "cookie: sid=a\r\ncookie: sid=c\r\n"), 429);
    assert_eq!(ask("/first?q=2", "cookie: sid=a\r\n"), 200);
    assert_eq!(ask("/other", "cookie: sid=a; sid=b\r\n"), 200);
    assert_eq!(ask("/other", "cookie: sid=a; sid=c\r\n"), 429);
    assert_eq!(ask("/", "x-key: a\r\nx-key: b\r\n"), 200);
    assert_eq!(
        ask("/", "x-key: b\r\nx-key: a\r\nx-key: b\r\n"),
        200,
        "in any order"
    );
    assert_eq!(ask("/", "x-key: a\r\nx-key: b\r\n"), 429);
    assert_eq!(ask("/", "x-key: a\r\n"), 200, "a key of its own");
    assert_eq!(ask("/", "x-key: a\r\nx-key: c\r\n"), 200);
}
