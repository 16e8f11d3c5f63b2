//! Costs that responses settle, over real sockets: the reserved units are corrected or given back.

use std::net::SocketAddr;
use std::sync::{Arc, Barrier};
use std::thread;

use crate::support::client::{Connection, get, get_with};
use crate::support::costs::{left, origin};
use crate::support::gateway::Gateway;
use crate::support::origin::{Origin, Step, answer, ok, raw};
use crate::support::replay::{Replay, command};
use crate::support::wait_for;
use serde_json::json;

fn behind(origin: &Origin, policy: &str) -> Gateway {
    Gateway::start(&config(origin, policy))
}

fn config(origin: &Origin, policy: &str) -> String {
    format!(
        "policies: {{ p: {policy} }}\nroutes: [{{ name: a, upstream: '{}', limits: [p] }}]\n",
        origin.url()
    )
}

/// The remaining units after a request, and the units that it reserved.
#[track_caller]
fn wait_until_left(address: SocketAddr, path: &str, expected: usize) {
    let mut last = 0;
    wait_for("what is left", || {
        last = left(&get(address, path));
        (last == expected).then_some(())
    });
}

const ALGORITHMS: [&str; 6] = [
    "quota: 1000/300d",
    "algorithm: token_bucket, capacity: 1000, refill: 1 per 1d",
    "algorithm: fixed_window, quota: 1000/300d, start: first_request",
    "algorithm: sliding_window, quota: 1000/300d, oldest: whole",
    "algorithm: sliding_window, quota: 1000/300d, precision: 60, oldest: whole",
    "algorithm: sliding_log, quota: 1000/300d",
];

#[test]
fn a_field_of_the_response_settles_the_cost() {
    let origin = origin();
    for algorithm in ALGORITHMS {
        let policy = format!(
            "{{ key: header:x-key, {algorithm}, cost: {{ response_header: x-tokens-used, reserve: 100, max: 500 }} }}"
        );
        let gateway = behind(&origin, &policy);
        let address = gateway.address();
        let left = |path: &str| left(&get(address, path));
        assert_eq!(left("/used/30"), 900, "reserved");
        assert_eq!(left("/used/0"), 870, "30 were used, 70 came back");
        assert_eq!(left("/used/400"), 870, "nothing was used");
        assert_eq!(left("/used/9999"), 470, "400 were, more than were reserved");
        let refused = get(address, "/used/1");
        assert_eq!(refused.status, 429, "{algorithm}");
        assert_eq!(left("/"), 70, "500 were used, which is the most");
    }
}

#[test]
fn a_response_without_a_cost_keeps_the_estimate() {
    let origin = origin();
    let gateway = behind(
        &origin,
        "{ quota: 1000/300d, cost: { response_header: x-tokens-used, reserve: 100, max: 500 } }",
    );
    let address = gateway.address();
    assert_eq!(left(&get(address, "/")), 900, "no field");
    assert_eq!(left(&get(address, "/used/few")), 800, "no number");
    assert_eq!(left(&get(address, "/reset")), 700, "no response, but 502");
    let mut leaves = Connection::open(address);
    leaves.send("GET /hang HTTP/1.1\r\nHost: a\r\n\r\n");
    wait_for("the request", || {
        let series =
            "sluicegate_limit_decisions_total{policy=\"p\",route=\"a\",decision=\"allowed\"}";
        (gateway.metric(series) == Some(4.0)).then_some(())
    });
    leaves.reset();
    wait_for("its end", || {
        let series = "sluicegate_http_requests_total{code=\"499\",method=\"GET\"}";
        (gateway.metric(series) == Some(1.0)).then_some(())
    });
    assert_eq!(left(&get(address, "/used/0")), 500, "four have kept it");
    assert_eq!(left(&get(address, "/used/0")), 500, "that one has not");
}

#[test]
fn the_bytes_of_the_body_settle_the_cost() {
    let origin = origin();
    let gateway = behind(
        &origin,
        "{ quota: 1000/300d, cost: { response_bytes: 1KiB, reserve: 10, max: 200 } }",
    );
    let address = gateway.address();
    assert_eq!(left(&get(address, "/bytes/3000")), 990);
    wait_until_left(address, "/bytes/0", 987);
    get(address, "/bytes/102401");
    wait_until_left(address, "/bytes/0", 886);
    get(address, "/bytes/1000000");
    wait_until_left(address, "/bytes/0", 686);
    let mut head = Connection::open(address);
    assert_eq!(
        head.exchange("HEAD /bytes/9000 HTTP/1.1\r\nHost: a\r\n\r\n")
            .status,
        200
    );
    wait_until_left(address, "/bytes/0", 686);
}

/// The first bytes of a longer body, then the end of the connection.
fn broken(bytes: usize) -> Vec<Step> {
    let head = "HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n";
    let sent = raw(&format!("{head}{}", "a".repeat(bytes)));
    [sent, vec![Step::Close]].concat()
}

/// A truncated body is charged the estimate, or its bytes if they are more.
#[test]
fn a_truncated_body_and_a_response_of_the_proxy_keep_the_estimate() {
    let origin = Origin::start(|request| match request.target.as_str() {
        "/none" => vec![Step::Close],
        "/little" => broken(100),
        "/much" => broken(50_000),
        _ => ok(""),
    });
    let gateway = behind(
        &origin,
        "{ quota: 1000/300d, cost: { response_bytes: 1KiB, reserve: 10, max: 200 } }",
    );
    let address = gateway.address();
    assert_eq!(get(address, "/none").status, 502);
    wait_until_left(address, "/", 980);
    for (path, expected) in [("/little", 970), ("/much", 921)] {
        let mut client = Connection::open(address);
        client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
        client.receive_head();
        wait_until_left(address, "/", expected);
    }
    let series = "sluicegate_limit_settlements_total{policy=\"p\",result=\"no_response\"}";
    assert_eq!(gateway.metric(series), Some(3.0));
}

#[test]
fn a_status_class_counts_as_each_of_its_statuses() {
    let origin = origin();
    let gateway = behind(
        &origin,
        "{ key: constant, quota: 5/300d, count: [4xx, 503] }",
    );
    let status = |path: &str| get(gateway.address(), path).status;
    for free in [200, 204, 301, 399, 500, 502] {
        let path = format!("/status/{free}");
        assert_eq!([0; 6].map(|_| status(&path)), [free; 6]);
    }
    for charged in [400, 404, 451, 499, 503] {
        assert_eq!(status(&format!("/status/{charged}")), charged);
    }
    assert_eq!(status("/status/200"), 429);
}

#[test]
fn only_listed_statuses_are_charged() {
    let origin = origin();
    for algorithm in ["gcra", "token_bucket", "fixed_window", "sliding_window"] {
        let gateway = behind(
            &origin,
            &format!("{{ algorithm: {algorithm}, quota: 3/300d, count: [401, 403] }}"),
        );
        let address = gateway.address();
        let status = |path: &str| get(address, path).status;
        assert_eq!(
            [0; 20].map(|_| status("/status/200")),
            [200; 20],
            "{algorithm}"
        );
        assert_eq!(status("/status/401"), 401);
        assert_eq!([0; 5].map(|_| status("/status/200")), [200; 5]);
        assert_eq!(status("/status/403"), 403);
        assert_eq!(status("/reset"), 502, "not the upstream's");
        assert_eq!(status("/status/401"), 401);
        assert_eq!(
            [status("/status/200"), status("/status/401")],
            [429; 2],
            "{algorithm}"
        );
    }
}

#[test]
fn errors_of_the_proxy_are_charged_where_configured() {
    let origin = origin();
    for (own, expected) in [("true", [502, 502, 429]), ("false", [502, 502, 502])] {
        let gateway = behind(
            &origin,
            &format!("{{ quota: 2/300d, count: [502], count_own: {own} }}"),
        );
        let address = gateway.address();
        assert_eq!([0; 3].map(|_| get(address, "/reset").status), expected);
    }
    let gateway = behind(&origin, "{ quota: 2/300d, count: [502] }");
    let address = gateway.address();
    assert_eq!(
        [0; 3].map(|_| get(address, "/status/502").status),
        [502, 502, 429]
    );
}

#[test]
fn parallel_password_guesses_get_no_more_than_the_quota() {
    let together = Arc::new(Barrier::new(5));
    let waiting = Arc::clone(&together);
    let origin = Origin::start(move |_| {
        waiting.wait();
        answer(401, "wrong")
    });
    let gateway = behind(&origin, "{ key: constant, quota: 5/300d, count: [401] }");
    let address = gateway.address();
    let guesses: Vec<_> = (0..60)
        .map(|_| thread::spawn(move || get(address, "/").status))
        .collect();
    let mut statuses: Vec<_> = guesses
        .into_iter()
        .map(|guess| guess.join().expect("a status"))
        .collect();
    statuses.sort_unstable();
    assert_eq!(statuses[..5], [401; 5]);
    assert_eq!(statuses[5..], [429; 55]);
}

#[test]
fn a_client_that_leaves_before_the_response_is_charged_for_its_guess() {
    let origin = origin();
    let gateway = behind(&origin, "{ quota: 2/300d, count: [401] }");
    let address = gateway.address();
    for number in 1..=2 {
        let mut guess = Connection::open(address);
        guess.send("GET /hang HTTP/1.1\r\nHost: a\r\n\r\n");
        let series =
            "sluicegate_limit_decisions_total{policy=\"p\",route=\"a\",decision=\"allowed\"}";
        wait_for("the guess", || {
            (gateway.metric(series) == Some(f64::from(number))).then_some(())
        });
        guess.reset();
    }
    wait_for("their ends", || {
        let series = "sluicegate_http_requests_total{code=\"499\",method=\"GET\"}";
        (gateway.metric(series) == Some(2.0)).then_some(())
    });
    assert_eq!(get(address, "/status/200").status, 429);
}

#[test]
fn tagging_and_shadowed_policies_settle_too_and_a_reload_between_loses_nothing() {
    let gate = Arc::new(Barrier::new(2));
    let held = Arc::clone(&gate);
    let origin = Origin::start(move |request| {
        if request.target == "/late" {
            held.wait();
        }
        let used = request.target.len();
        raw(&format!(
            "HTTP/1.1 200 OK\r\nx-used: {used}\r\nContent-Length: 2\r\n\r\nok"
        ))
    });
    let config = |quota: u32| {
        let cost = "cost: { response_header: x-used, reserve: 3, max: 100 }";
        format!(
            "policies:
  told: {{ quota: {quota}/300d, {cost}, on_limit: {{ action: tag, tag_header: x-over }} }}
  seen: {{ quota: {quota}/300d, {cost}, mode: shadow }}
  hard: {{ quota: {quota}/300d, {cost} }}
routes: [{{ name: a, upstream: '{}', limits: [told, seen, hard] }}]
",
            origin.url()
        )
    };
    let gateway = Gateway::start(&config(12));
    let address = gateway.address();
    let counted = |policy: &str, decision: &str| {
        gateway.metric(&format!(
            "sluicegate_limit_decisions_total{{policy=\"{policy}\",route=\"a\",decision=\"{decision}\"}}"
        ))
    };
    for _ in 0..9 {
        assert_eq!(get(address, "/").status, 200, "a unit each");
    }
    let late = thread::spawn(move || get(address, "/late").status);
    wait_for("it", || {
        (counted("hard", "allowed") == Some(10.0)).then_some(())
    });
    gateway.reload(&config(20));
    gate.wait();
    assert_eq!(late.join().expect("a status"), 200);
    // 9 + 5 of 20 are used; 3 are reserved.
    let next = get(address, "/");
    let state = next.expect_header("ratelimit");
    assert!(state.starts_with("\"hard\";r=3;"), "{state}");
    assert_eq!(get(address, "/four").status, 200, "15 + 3");
    assert_eq!(get(address, "/").status, 429);
    assert_eq!(counted("seen", "shadowed"), Some(0.0), "refused anyway");
    assert_eq!(
        counted("told", "tagged"),
        Some(0.0),
        "it is asked after the others"
    );
}

#[test]
fn a_settled_cost_works_beside_a_limit_that_overflows() {
    let config = "policies:
  guesses: { quota: 2/1h, count: [401] }
  work: { quota: 1/1h, overflow: { quota: 2/1h } }
routes:
  - { upstream: echo, limits: [guesses, work] }
";
    let line = |status: u16| {
        format!(
            "{{\"time\":0,\"client_ip\":\"192.0.2.7\",\"method\":\"GET\",\"path\":\"/\",\"status\":{status}}}\n"
        )
    };
    let replay = Replay::new(config, [401, 200, 401, 200].map(line).concat());
    let decided = replay.decisions(&[]);
    let told = |key: &str| -> Vec<String> {
        let decided = decided.iter();
        decided.map(|decision| decision[key].to_string()).collect()
    };
    let [allowed, limited] = ["\"allowed\"", "\"limited\""];
    assert_eq!(told("decision"), [allowed, allowed, allowed, limited]);
    assert_eq!(told("policy")[3], "\"guesses\"");
    let [first, further] = ["null", "[\"work\"]"];
    assert_eq!(told("overflowed"), [first, further, further, first]);
}

#[test]
fn explain_and_replay_show_settlements() {
    let config = "policies:
  tokens: { quota: 100/1h, cost: { response_header: x-used, reserve: 10, max: 60 } }
  guesses: { quota: 2/1h, count: [401] }
  traffic: { quota: 10/1h, cost: { response_bytes: 1KiB, max: 100 } }
routes:
  - { match: { path: /tokens }, upstream: echo, limits: [tokens] }
  - { match: { path: /login }, upstream: echo, limits: [guesses] }
  - { match: { path: /files }, upstream: echo, limits: [traffic] }
";
    let line = |time: u32, path: &str, more: &str| {
        format!(
            "{{\"time\":{time},\"client_ip\":\"192.0.2.7\",\"method\":\"GET\",\"path\":\"{path}\"{more}}}\n"
        )
    };
    let used =
        |units: &str| format!(",\"status\":200,\"response_headers\":{{\"X-Used\":\"{units}\"}}");
    let log = [
        line(0, "/tokens", &used("60")),
        line(0, "/tokens", &used("1")),
        line(0, "/tokens", &used("few")),
        line(0, "/tokens", ""),
        line(0, "/login", ",\"status\":200"),
        line(0, "/login", ",\"status\":401"),
        line(0, "/login", ",\"status\":200"),
        line(0, "/login", ",\"status\":401"),
        line(0, "/login", ",\"status\":200"),
        line(0, "/files", ",\"status\":200,\"bytes\":9000"),
        line(0, "/files", ",\"status\":200,\"bytes\":1"),
        line(0, "/files", ""),
    ];
    let replay = Replay::new(config, log.concat());
    let decisions = replay.decisions(&[]);
    let told: Vec<_> = decisions
        .iter()
        .map(|one| (one["decision"].clone(), one["remaining"].clone()))
        .collect();
    let allowed = |remaining: u32| (json!("allowed"), json!(remaining));
    let limited = |remaining: u32| (json!("limited"), json!(remaining));
    assert_eq!(
        told,
        [
            allowed(90),
            allowed(30),
            allowed(29),
            allowed(19),
            allowed(1),
            allowed(1),
            allowed(0),
            allowed(0),
            limited(0),
            allowed(9),
            allowed(0),
            limited(0),
        ]
    );
    let combined = "192.0.2.7 - - [01/Jan/2026:00:00:00 +0000] \"GET /login HTTP/1.1\" STATUS 12 \"-\" \"-\"\n";
    let log: String = ["200", "401", "200", "401", "200"]
        .map(|status| combined.replace("STATUS", status))
        .concat();
    let replay = Replay::new(config, log);
    let refused = replay.report(&[])["limited"].clone();
    assert_eq!(refused, json!(1));

    let explained = command(["explain", "GET", "http://a/tokens", "--config"])
        .arg(replay.dir.path().join("sluicegate.yaml"))
        .output()
        .expect("the binary starts");
    let text = String::from_utf8(explained.stdout).expect("text");
    assert!(
        text.contains("  cost    10, until the response settles it\n"),
        "{text}"
    );
    assert!(text.contains("  says    allowed: 90 left"), "{text}");
}

#[test]
fn parallel_requests_settle_to_the_units_that_they_used() {
    let origin = origin();
    let gateway = behind(
        &origin,
        "{ key: constant, quota: 100000/300d, burst: 100000, cost: { response_header: x-tokens-used, reserve: 50, max: 500 } }",
    );
    let address = gateway.address();
    thread::scope(|scope| {
        for thread in 0..8 {
            scope.spawn(move || {
                let mut connection = Connection::open(address);
                for step in 0..50 {
                    let used = (thread * 50 + step) % 101;
                    let request = format!("GET /used/{used} HTTP/1.1\r\nHost: a\r\n\r\n");
                    assert_eq!(connection.exchange(&request).status, 200);
                }
            });
        }
    });
    let used: usize = (0..400).map(|number| number % 101).sum();
    let last = get_with(address, "/used/0", "");
    // What comes back at once is what has not come back with time: less, by as much as that took.
    let expected = 100_000 - used - 50;
    assert!((expected - 1..=expected).contains(&left(&last)));
}
