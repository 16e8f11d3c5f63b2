//! Actions of policies with conditions, exceptions, costs, modes and candidates, over real sockets.

use std::time::Duration;

use crate::support::client::{Connection, Response, get_with, run};
use crate::support::gateway::Gateway;
use crate::support::replay::{Replay, line};
use crate::support::wait_for;

const ACTIONS: [&str; 5] = ["reject", "decoy", "tarpit", "drop", "tag"];

/// The number of times that a policy made this decision on the route `a`.
fn count(gateway: &Gateway, policy: &str, decision: &str) -> f64 {
    let labels = format!("policy=\"{policy}\",route=\"a\",decision=\"{decision}\"");
    let series = format!("sluicegate_limit_decisions_total{{{labels}}}");
    gateway.metric(&series).unwrap_or(0.0)
}

/// The tags that the upstream got, from its echo.
#[track_caller]
fn tags(answer: &Response) -> Vec<String> {
    assert_eq!(answer.status, 200);
    let text = answer.text();
    let fields = text.lines().map(str::to_ascii_lowercase);
    let tags = fields.filter_map(|line| Some(line.strip_prefix("x-over-limit: ")?.to_owned()));
    tags.collect()
}

/// True if the request reached the upstream and the response has no limit fields.
#[track_caller]
fn expect_untold(answer: &Response) {
    assert_eq!(answer.status, 200);
    assert!(answer.text().contains("x-key: "), "the upstream's echo");
    let told = |(name, _): &(String, String)| name.contains("ratelimit") || name == "retry-after";
    assert!(!answer.headers.iter().any(told), "{answer:?}");
}

fn explained(gateway: &Gateway, header: &str) -> String {
    let config = gateway.config_path();
    let config = config.to_str().expect("a path of ours");
    let arguments = [
        "explain",
        "GET",
        "http://a/",
        "-H",
        header,
        "--config",
        config,
    ];
    run(env!("CARGO_BIN_EXE_sluicegate"), &arguments).stdout
}

#[test]
fn a_shadowed_policy_takes_no_action() {
    for action in ACTIONS {
        let gateway = Gateway::start(&format!(
            "policies: {{ p: {{ key: constant, quota: 1/300d, mode: shadow, on_limit: {{ action: {action} }} }} }}
routes: [{{ name: a, upstream: echo, limits: [p] }}]
"
        ));
        for _ in 0..3 {
            let answer = get_with(
                gateway.address(),
                "/",
                "x-key: k\r\nx-over-limit: forged\r\n",
            );
            expect_untold(&answer);
            let expected: &[&str] = match action {
                "tag" => &[],
                _ => &["forged"],
            };
            assert_eq!(tags(&answer), expected, "{action}");
        }
        let counts = ["allowed", "shadowed", "limited", "tagged"];
        let counts = counts.map(|decision| count(&gateway, "p", decision));
        assert_eq!(counts, [1.0, 2.0, 0.0, 0.0], "{action}");
        let explained = explained(&gateway, "x-key: k");
        assert!(explained.contains("mode    shadow"), "{explained}");
        assert!(
            explained.ends_with("\nanswer    allowed, and forwarded to echo\n"),
            "{explained}"
        );
        assert!(!explained.contains("\ntag "), "{explained}");
    }
}

/// Among the keys of `per-key`, 1 is in the first ten percent, and 0 is not (see
/// `proxy::admission::mode`).
#[test]
fn percent_limits_the_action_to_a_part_of_the_keys() {
    for (action, status) in [("decoy", Some(200)), ("drop", None), ("reject", Some(429))] {
        let gateway = Gateway::start(&format!(
            "policies: {{ per-key: {{ key: header:x-key, quota: 0/1s, percent: 10, on_limit: {{ action: {action} }} }} }}
routes: [{{ name: a, upstream: echo, limits: [per-key] }}]
"
        ));
        expect_untold(&get_with(gateway.address(), "/", "x-key: key-0\r\n"));
        let mut client = Connection::open(gateway.address());
        client.send("GET / HTTP/1.1\r\nHost: a\r\nx-key: key-1\r\n\r\n");
        match status {
            Some(status) => {
                let answer = client.receive();
                assert_eq!(answer.status, status);
                assert!(!answer.text().contains("x-key"), "not the upstream's");
            }
            None => client.expect_closed(),
        }
    }
    let gateway = Gateway::start(
        "policies: { per-key: { key: header:x-key, quota: 0/1s, percent: 10, on_limit: { action: tag } } }
routes: [{ name: a, upstream: echo, limits: [per-key] }]
",
    );
    let ask = |key: &str| {
        let headers = format!("x-key: {key}\r\nx-over-limit: forged\r\n");
        tags(&get_with(gateway.address(), "/", &headers))
    };
    assert_eq!(ask("key-0"), [""; 0], "a client's own goes even so");
    assert_eq!(ask("key-1"), ["per-key"]);
}

#[test]
fn a_policy_that_tags_has_conditions_exceptions_and_costs() {
    let gateway = Gateway::start(
        "policies:
  soft:
    key: header:x-key
    on_missing_key: refuse
    quota: 2/300d
    cost: { header: x-cost, max: 9 }
    when: { header: { x-plan: free } }
    exempt: [{ value: health }]
    overrides: [{ value: partner, quota: 4/300d }]
    on_limit: { action: tag }
routes: [{ name: a, upstream: echo, limits: [soft] }]
",
    );
    let ask = |headers: &str| tags(&get_with(gateway.address(), "/", headers));
    let free = |key: &str, cost: &str| {
        ask(&format!(
            "x-plan: free\r\nx-key: {key}\r\nx-cost: {cost}\r\n"
        ))
    };
    let none = [""; 0];
    assert_eq!(ask("x-plan: gold\r\nx-key: a\r\nx-cost: 9\r\n"), none);
    assert_eq!(count(&gateway, "soft", "tagged"), 0.0, "it is for others");
    assert_eq!(free("health", "9"), none);
    assert_eq!(count(&gateway, "soft", "exempt"), 1.0);

    assert_eq!(free("partner", "4"), none);
    assert_eq!(free("partner", "1"), ["soft"]);
    assert_eq!(free("a", "two"), ["soft"], "no number, and no 400");
    assert_eq!(free("a", "2"), none, "that charged nothing");
    assert_eq!(free("a", "1"), ["soft"]);
    assert_eq!(ask("x-plan: free\r\n"), ["soft"], "without a key");
    assert_eq!(count(&gateway, "soft", "allowed"), 2.0);
    assert_eq!(count(&gateway, "soft", "tagged"), 4.0);

    let explained = explained(&gateway, "x-plan: free");
    assert!(explained.contains("\ntag       soft\n"), "{explained}");
}

#[test]
fn an_override_of_a_decoy_policy_is_not_disclosed_either() {
    let gateway = Gateway::start(
        "policies:
  hidden:
    key: header:x-key
    quota: 9/300d
    overrides: [{ value: spammer, quota: 1/300d }]
    on_limit: { action: decoy, format: text, body: 'thanks, {{quota}}' }
routes: [{ name: a, upstream: echo, limits: [hidden] }]
",
    );
    let ask = || get_with(gateway.address(), "/", "x-key: spammer\r\n");
    expect_untold(&ask());
    let decoy = ask();
    assert_eq!(
        (decoy.status, decoy.text().as_str()),
        (200, "thanks, 1/300d")
    );
    assert_eq!(decoy.header("ratelimit-policy"), None);
    expect_untold(&get_with(gateway.address(), "/", "x-key: other\r\n"));
}

#[test]
fn overrides_share_the_places_of_the_tarpit() {
    let gateway = Gateway::start(
        "policies:
  slow:
    key: header:x-key
    quota: 0/1s
    overrides: [{ value: partner, quota: 0/1s }]
    on_limit: { action: tarpit, delay: 5m, max_held: 1 }
routes: [{ name: a, upstream: echo, limits: [slow] }]
",
    );
    let held = || gateway.metric("sluicegate_limit_held{policy=\"slow\"}");
    let mut partner = Connection::open(gateway.address());
    partner.send("GET / HTTP/1.1\r\nHost: a\r\nx-key: partner\r\n\r\n");
    wait_for("one held", || (held() == Some(1.0)).then_some(()));
    assert_eq!(
        get_with(gateway.address(), "/", "x-key: a\r\n").status,
        429,
        "at once: no place is free"
    );
}

#[test]
fn a_candidate_takes_no_action_either() {
    for action in ["decoy", "tag"] {
        let gateway = Gateway::start(&format!(
            "policies: {{ p: {{ key: constant, quota: 2/300d, candidate: {{ quota: 1/300d }}, on_limit: {{ action: {action} }} }} }}
routes: [{{ name: a, upstream: echo, limits: [p] }}]
"
        ));
        let ask = || get_with(gateway.address(), "/", "x-key: k\r\n");
        for _ in 0..2 {
            let answer = ask();
            expect_untold(&answer);
            assert_eq!(tags(&answer), [""; 0], "{action}");
        }
        let third = ask();
        let expected: &[&str] = match action {
            "tag" => &["p"],
            _ => &[],
        };
        assert_eq!(tags(&third), expected, "the candidate is not named");
        assert_eq!(third.text().is_empty(), action == "decoy");
        let candidate = "p/candidate";
        assert_eq!(count(&gateway, candidate, "allowed"), 1.0);
        // A request that the policy itself refuses stays so.
        let shadowed = if action == "tag" { 2.0 } else { 1.0 };
        assert_eq!(count(&gateway, candidate, "shadowed"), shadowed);
        assert_eq!(count(&gateway, candidate, "tagged"), 0.0);
    }
}

#[test]
fn a_preflight_needs_no_cost_and_cannot_forge_a_tag() {
    let config = |limited: bool| {
        format!(
            "responses: {{ cors: {{ limit_preflight: {limited} }} }}
policies:
  hard: {{ key: constant, quota: 9/300d, cost: {{ header: x-cost, max: 9 }} }}
  watching: {{ key: constant, quota: 0/1s, mode: shadow }}
  soft: {{ key: constant, quota: 0/1s, when: {{ method: [OPTIONS] }}, on_limit: {{ action: tag }} }}
routes: [{{ name: a, upstream: echo, limits: [hard, watching, soft] }}]
"
        )
    };
    let ask = |gateway: &Gateway, cost: &str| {
        Connection::open(gateway.address()).exchange(&format!(
            "OPTIONS / HTTP/1.1\r\nHost: a\r\nOrigin: https://b.example\r\nAccess-Control-Request-Method: PUT\r\n\
             x-over-limit: forged\r\nx-cost: {cost}\r\n\r\n"
        ))
    };
    let gateway = Gateway::start(&config(true));
    assert_eq!(ask(&gateway, "many").status, 400);
    assert_eq!(tags(&ask(&gateway, "1")), ["soft"]);
    assert_eq!(count(&gateway, "watching", "shadowed"), 1.0);

    let gateway = Gateway::start(&config(false));
    let answer = ask(&gateway, "many");
    assert_eq!(tags(&answer), [""; 0]);
    assert_eq!(answer.header("ratelimit-policy"), None);
    for policy in ["hard", "watching", "soft"] {
        for decision in ["allowed", "limited", "shadowed", "tagged"] {
            assert_eq!(count(&gateway, policy, decision), 0.0, "{policy}");
        }
    }
}

#[test]
fn an_enforced_refusal_is_not_held_by_a_shadowed_tarpit() {
    let gateway = Gateway::start(
        "policies:
  watching: { key: constant, quota: 0/1s, mode: shadow, on_limit: { action: tarpit, delay: 5m } }
  hidden: { key: constant, quota: 0/1s, mode: shadow, on_limit: { action: decoy } }
  real: { key: constant, quota: 1/300d }
routes: [{ name: a, upstream: echo, limits: [watching, hidden, real] }]
",
    );
    assert_eq!(get_with(gateway.address(), "/", "").status, 200);
    let refusal = get_with(gateway.address(), "/", "accept: application/json\r\n");
    assert_eq!(refusal.status, 429);
    assert!(refusal.text().contains("\"violated-policies\":[\"real\"]"));
    let retry: u64 = refusal
        .expect_header("retry-after")
        .parse()
        .expect("seconds");
    let quota = Duration::from_secs(300 * 86_400);
    assert!(
        retry <= quota.as_secs(),
        "the wait of the one that enforces"
    );
    let held = gateway.metric("sluicegate_limit_held{policy=\"watching\"}");
    assert_eq!(held.unwrap_or(0.0), 0.0);
}

#[test]
fn replay_counts_tags_of_shadowed_policies() {
    let config = "policies: { soft: { key: constant, quota: 1/1h, mode: shadow, on_limit: { action: tag } } }
routes: [{ name: a, upstream: echo, limits: [soft] }]";
    let replay = Replay::new(config, line("1700000000", "/", "").repeat(3));
    let text = replay.text();
    assert!(text.contains("  soft, 2 shadowed\n"), "{text}");
    let limits = &replay.report(&[])["routes"][0]["limits"];
    assert_eq!(
        (&limits[0]["shadowed"], limits[0].get("tagged")),
        (&serde_json::json!(2), None)
    );
    let decisions = replay.decisions(&[]);
    assert!(
        decisions.iter().all(|one| one.get("shadowed_by").is_none()),
        "it would have refused none of them: {decisions:?}"
    );
}
