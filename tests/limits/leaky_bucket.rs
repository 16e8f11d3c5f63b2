//! Requests that a leaky bucket delays, through the binary: paced, bounded, all or nothing,
//! cancelled by clients that leave.

use std::fs;
use std::thread;
use std::time::Duration;

use crate::support::client::{Connection, Response, get, run};
use crate::support::frames::{CANCEL, Http2, RST_STREAM, frame, get_block, request};
use crate::support::gateway::Gateway;
use crate::support::replay::{Replay, line};
use crate::support::{now, wait_for};
use rustix::process::Signal;
use serde_json::{Value, json};

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

fn gateway(policy: &str) -> Gateway {
    Gateway::start(&format!(
        "shutdown: {{ delay: 0s, deadline: 20s }}
policies: {{ line: {{ key: constant, algorithm: leaky_bucket, {policy} }} }}
routes: [{{ name: all, upstream: echo, limits: [line] }}]
"
    ))
}

/// A queue that releases no request while a test lasts: one is forwarded at once, and two may wait.
fn still() -> Gateway {
    gateway("quota: 2/1h, queue: 2, max_wait: 1h")
}

fn waiting(gateway: &Gateway) -> u64 {
    let waiting = gateway.metric("sluicegate_limit_waiting{policy=\"line\"}");
    waiting.expect("there from the start") as u64
}

fn decided(gateway: &Gateway, decision: &str) -> Option<f64> {
    gateway.metric(&format!(
        "sluicegate_limit_decisions_total{{policy=\"line\",route=\"all\",decision=\"{decision}\"}}"
    ))
}

fn ask(gateway: &Gateway) -> Connection {
    let mut client = Connection::open(gateway.address());
    client.send(GET);
    client
}

/// Sends a request, and waits until `expected` requests wait.
fn join(gateway: &Gateway, expected: u64) -> Connection {
    let client = ask(gateway);
    wait_for("a place in line", || {
        (waiting(gateway) == expected).then_some(())
    });
    client
}

#[test]
fn parallel_requests_leave_one_by_one_and_those_beyond_the_queue_are_refused_at_once() {
    const TURN: Duration = Duration::from_secs(2);
    let gateway = gateway("quota: 1/2s, queue: 6, max_wait: 20s");
    let mut clients: Vec<_> = (0..60)
        .map(|_| Connection::open(gateway.address()))
        .collect();
    let started = now();
    clients.iter_mut().for_each(|client| client.send(GET));
    let answers: Vec<(Response, Duration)> = thread::scope(|scope| {
        let receive = |mut client: Connection| {
            scope.spawn(move || {
                let answer = client.receive();
                (answer, started.elapsed())
            })
        };
        let threads: Vec<_> = clients.into_iter().map(receive).collect();
        let each = threads.into_iter();
        each.map(|thread| thread.join().expect("an answer"))
            .collect()
    });
    let (admitted, refused): (Vec<_>, Vec<_>) = answers
        .into_iter()
        .partition(|(answer, _)| answer.status == 200);
    assert_eq!((admitted.len(), refused.len()), (7, 53));
    for (answer, _) in &refused {
        assert_eq!(answer.status, 429);
        let seconds = answer.expect_header("retry-after");
        assert!(matches!(seconds, "1" | "2"), "{seconds}");
    }
    let mut times: Vec<_> = admitted.iter().map(|(_, time)| *time).collect();
    times.sort_unstable();
    for (turn, time) in (0..).zip(&times) {
        assert!(*time >= TURN * turn, "{times:?}");
        assert!(*time < TURN * (turn + 4), "{times:?}");
    }
    let counts = ["allowed", "delayed", "limited"].map(|what| decided(&gateway, what));
    assert_eq!(counts, [Some(1.0), Some(6.0), Some(53.0)]);
    let waits = "sluicegate_limit_wait_seconds";
    let figures =
        ["count", "sum"].map(|what| gateway.metric(&format!("{waits}_{what}{{policy=\"line\"}}")));
    assert_eq!(figures[0], Some(6.0));
    let sum = figures[1].expect("a sum");
    // 2 + 4 + .. + 12, less what they came after the first.
    assert!((30.0..=42.0).contains(&sum), "{sum}");
    assert_eq!(waiting(&gateway), 0);
}

#[test]
fn the_last_queued_client_that_leaves_returns_its_place() {
    let gateway = still();
    assert_eq!(get(gateway.address(), "/").status, 200);
    let first = join(&gateway, 1);
    for _ in 0..2 {
        let last = join(&gateway, 2);
        assert_eq!(get(gateway.address(), "/").status, 429, "the queue is full");
        last.reset();
        wait_for("his leaving", || (waiting(&gateway) == 1).then_some(()));
    }
    let mut client = Http2::open(gateway.address());
    client.send(&request(1, &get_block()));
    wait_for("a stream", || (waiting(&gateway) == 2).then_some(()));
    client.send(&frame(RST_STREAM, 0, 1, &CANCEL.to_be_bytes()));
    wait_for("its end", || (waiting(&gateway) == 1).then_some(()));

    let _last = join(&gateway, 2);
    first.reset();
    wait_for("his leaving", || (waiting(&gateway) == 1).then_some(()));
    let refusal = get(gateway.address(), "/");
    assert_eq!(refusal.status, 429, "others had come after him");
    let status = "sluicegate_http_requests_total{code=\"499\",method=\"GET\"}";
    assert_eq!(gateway.metric(status), Some(4.0));
}

#[test]
fn a_request_that_has_gone_on_gives_nothing_back() {
    let gateway = gateway("quota: 1/8s, queue: 5, max_wait: 30s");
    for _ in 0..2 {
        assert_eq!(get(gateway.address(), "/").status, 200);
    }
    let _next = join(&gateway, 1);
}

#[test]
fn a_delayed_response_has_the_limit_fields_of_its_departure() {
    let gateway = gateway("quota: 1/3s, queue: 9");
    assert_eq!(get(gateway.address(), "/").status, 200);
    let answer = get(gateway.address(), "/");
    assert_eq!(
        answer.expect_header("ratelimit-policy"),
        "\"line\";q=10;w=30"
    );
    assert_eq!(answer.expect_header("ratelimit"), "\"line\";r=8");
}

#[test]
fn delay_after_forwards_part_of_a_burst_at_once() {
    // Without a `max_wait` nobody waits for more than 30 s, which the fourth in line would.
    for (more, passing) in [("", 4), (", max_wait: 1h", 2)] {
        let gateway = gateway(&format!("quota: 1/1h, queue: 4, delay_after: 3{more}"));
        for _ in 0..passing {
            assert_eq!(get(gateway.address(), "/").status, 200);
        }
        assert_eq!(get(gateway.address(), "/").status, 429);
    }
}

#[test]
fn a_request_whose_turn_comes_within_the_grace_is_served_at_shutdown() {
    let mut gateway = gateway("quota: 1/4s, queue: 5, max_wait: 9s");
    assert_eq!(get(gateway.address(), "/").status, 200);
    let mut client = join(&gateway, 1);
    gateway.signal(Signal::TERM);
    assert_eq!(client.receive().status, 200);
    client.expect_closed();
    assert!(gateway.wait().success());
}

#[test]
fn a_request_delayed_beyond_the_grace_gets_503_at_shutdown() {
    let mut gateway = Gateway::start(
        "shutdown: { delay: 0s, deadline: 500ms }
policies: { line: { algorithm: leaky_bucket, quota: 1/1h, queue: 1, max_wait: 1h } }
routes: [{ upstream: echo, limits: [line] }]
",
    );
    assert_eq!(get(gateway.address(), "/").status, 200);
    let mut client = join(&gateway, 1);
    let told = now();
    gateway.signal(Signal::TERM);
    assert_eq!(client.receive().status, 503);
    client.expect_closed();
    gateway.wait();
    assert!(told.elapsed() < Duration::from_secs(10));
}

#[test]
fn a_delayed_request_keeps_its_place_through_a_reload() {
    let config = |queue: u32| {
        format!(
            "policies: {{ line: {{ key: constant, algorithm: leaky_bucket, quota: 1/5s, queue: {queue}, max_wait: 1m }} }}
routes: [{{ name: all, upstream: echo, limits: [line] }}]
"
        )
    };
    let gateway = Gateway::start(&config(1));
    assert_eq!(get(gateway.address(), "/").status, 200);
    let mut first = join(&gateway, 1);
    gateway.reload(&config(2));
    let second = join(&gateway, 2);
    assert_eq!(get(gateway.address(), "/").status, 429, "both are in line");
    second.reset();
    wait_for("his leaving", || (waiting(&gateway) == 1).then_some(()));
    let _third = join(&gateway, 2);
    assert_eq!(first.receive().status, 200);
}

#[test]
fn the_access_log_has_delayed_requests_and_their_delays() {
    let gateway = Gateway::start(
        "access_log: { path: access.log }
policies: { line: { algorithm: leaky_bucket, quota: 1/1s, queue: 5 }, wide: { quota: 9/1h, burst: 2 } }
routes: [{ name: all, upstream: echo, limits: [line, wide] }]
",
    );
    let mut client = Connection::open(gateway.address());
    client.send(GET.repeat(2));
    assert_eq!(
        [client.receive().status, client.receive().status],
        [200, 200]
    );
    let path = gateway.dir().join("access.log");
    let lines: Vec<Value> = wait_for("two lines", || {
        let text = fs::read_to_string(&path).ok()?;
        let lines: Vec<_> = text.lines().map(serde_json::from_str).collect();
        let lines: Result<Vec<Value>, _> = lines.into_iter().collect();
        lines.ok().filter(|lines| lines.len() == 2)
    });
    let said = |line: &Value| (line["policy"].clone(), line["decision"].clone());
    assert_eq!(said(&lines[0]), (json!("wide"), json!("allowed")));
    assert_eq!(lines[0].get("delay_ms"), None);
    assert_eq!(said(&lines[1]), (json!("line"), json!("delayed")));
    let ms = |key: &str| lines[1][key].as_f64().expect("a number");
    assert!((1.0..=1_000.0).contains(&ms("delay_ms")), "{}", lines[1]);
    assert!(ms("duration_ms") >= ms("delay_ms"), "{}", lines[1]);
}

#[test]
fn explain_shows_the_delay_of_a_request() {
    let gateway = gateway("quota: 10/1s, queue: 5, cost: 3");
    let config = gateway.config_path();
    let config = config.to_str().expect("a path of ours");
    let output = run(
        env!("CARGO_BIN_EXE_sluicegate"),
        &["explain", "GET", "http://a/", "--config", config],
    );
    for said in [
        "limit     line (leaky_bucket, 10/1s)\n",
        "  says    delayed: for 200ms, 3 left\n",
        "answer    delayed, and forwarded to echo after 200ms\n",
    ] {
        assert!(output.stdout.contains(said), "{output}");
    }
}

/// A replay of requests at these milliseconds to a route with these limits.
fn replay(limits: &str, times: &[u64]) -> Replay {
    let config = format!("routes: [{{ name: a, upstream: echo, limits: [{limits}] }}]\n");
    let log: String = times
        .iter()
        .map(|time| line(&(1_000 + time).to_string(), "/", ""))
        .collect();
    Replay::new(&config, log)
}

#[test]
fn replay_reports_delays() {
    let limit = "{ algorithm: leaky_bucket, quota: 3/1s, queue: 2 }";
    let replay = replay(limit, &[0, 0, 100, 100, 2_000]);
    assert_eq!(
        replay.decisions(&[]),
        [
            json!({ "line": 1, "decision": "allowed", "policy": "a#0", "remaining": 2 }),
            json!({ "line": 2, "decision": "delayed", "policy": "a#0", "remaining": 1, "delay_ms": 333.334 }),
            json!({ "line": 3, "decision": "delayed", "policy": "a#0", "remaining": 0, "delay_ms": 566.667 }),
            json!({ "line": 4, "decision": "limited", "policy": "a#0", "remaining": 0, "retry_after_ms": 233.334 }),
            json!({ "line": 5, "decision": "allowed", "policy": "a#0", "remaining": 2 }),
        ]
    );
    let report = replay.report(&[]);
    let all = ["requests", "allowed", "delayed", "limited"].map(|what| report[what].clone());
    assert_eq!(all, [5, 2, 2, 1].map(|count| json!(count)));
    assert_eq!(
        report["routes"][0]["limits"][0],
        json!({ "policy": "a#0", "allowed": 2, "limited": 1, "delayed": 2 })
    );
    let text = replay.text();
    assert!(
        text.contains("           2  allowed\n           2  delayed\n"),
        "{text}"
    );
}

#[test]
fn the_longest_of_several_delays_holds_and_a_refusal_occupies_no_queue() {
    let limits = "{ algorithm: leaky_bucket, quota: 10/1s, queue: 9 },
        { algorithm: leaky_bucket, quota: 2/1s, queue: 9 }, { quota: 3/1h }";
    let decided = replay(limits, &[0, 0, 0, 0, 0]).decisions(&[]);
    let told: Vec<_> = decided
        .iter()
        .map(|one| {
            (
                one["decision"].as_str().unwrap(),
                &one["policy"],
                &one["delay_ms"],
            )
        })
        .collect();
    let (longest, hourly) = (json!("a#1"), json!("a#2"));
    assert_eq!(
        told,
        [
            ("allowed", &hourly, &Value::Null),
            ("delayed", &longest, &json!(500)),
            ("delayed", &longest, &json!(1_000)),
            ("limited", &hourly, &Value::Null),
            ("limited", &hourly, &Value::Null),
        ]
    );
    // What was refused is in neither line: two more places than requests that were admitted.
    let limits = limits.replace("quota: 3/1h", "quota: 3/1h, when: { method: [GET] }");
    let config = format!("routes: [{{ name: a, upstream: echo, limits: [{limits}] }}]\n");
    let post = line("1000", "/", "").replace("GET", "POST");
    let log = line("1000", "/", "").repeat(5) + &post;
    let last = Replay::new(&config, log).decisions(&[]).pop();
    assert_eq!(last.expect("six")["delay_ms"], json!(1_500));
}

#[test]
fn a_shadowed_policy_delays_no_request() {
    let limit = "{ algorithm: leaky_bucket, quota: 1/1s, queue: 1, mode: shadow }";
    let decided = replay(limit, &[0, 0, 0]).decisions(&[]);
    let told: Vec<_> = decided
        .iter()
        .map(|one| (&one["decision"], one["shadowed_by"].is_array()))
        .collect();
    let allowed = json!("allowed");
    assert_eq!(
        told,
        [(&allowed, false), (&allowed, true), (&allowed, true)]
    );
}
