//! Requests that wait for units (`action: wait`): in order, exactly the quota, bounded, and gone with
//! their clients.

use std::fs;
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use crate::support::admin::{AdminClient, READER, TOKENS, json as answer_of};
use crate::support::client::{Connection, Response, get, get_with};
use crate::support::frames::{CANCEL, Http2, RST_STREAM, frame, get_block, request};
use crate::support::gateway::Gateway;
use crate::support::slow::{ALL, Slow};
use crate::support::{now, wait_for};
use rustix::process::Signal;
use serde_json::{Value, json};

/// An origin that answers at once, and the order of its requests.
fn open() -> Slow {
    let slow = Slow::start();
    slow.gate.let_pass(ALL);
    slow
}

fn config(slow: &Slow, policies: &str, limits: &str) -> String {
    format!(
        "{TOKENS}access_log: {{ path: access.log }}
shutdown: {{ delay: 0s, deadline: 3s }}
policies:
{policies}
routes: [{{ name: a, upstream: '{}', limits: [{limits}] }}]
",
        slow.origin.url()
    )
}

fn start(slow: &Slow, policies: &str, limits: &str) -> Gateway {
    Gateway::start(&config(slow, policies, limits))
}

fn ask(gateway: &Gateway, path: &str) -> Connection {
    let mut connection = Connection::open(gateway.address());
    connection.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
    connection
}

fn waiting(gateway: &Gateway, expected: u64) {
    let series = "sluicegate_limit_waiting{policy=\"calls\"}";
    wait_for(&format!("{expected} waiting"), || {
        (gateway.metric(series) == Some(expected as f64)).then_some(())
    });
}

/// Sends a request, and waits until `expected` requests wait.
fn join(gateway: &Gateway, path: &str, expected: u64) -> Connection {
    let client = ask(gateway, path);
    waiting(gateway, expected);
    client
}

fn decided(gateway: &Gateway, policy: &str, decision: &str) -> u64 {
    let labels = format!("policy=\"{policy}\",route=\"a\",decision=\"{decision}\"");
    let series = format!("sluicegate_limit_decisions_total{{{labels}}}");
    gateway.metric(&series).unwrap_or_default() as u64
}

/// The statuses of so many requests at once, and how long they took.
fn at_once(addresses: &[SocketAddr], number: usize) -> Vec<(Duration, u16)> {
    let begun = now();
    let clients = (0..number).map(|place| {
        let address = addresses[place % addresses.len()];
        thread::spawn(move || {
            let status = get_with(address, "/", "x-key: a\r\n").status;
            (begun.elapsed(), status)
        })
    });
    let clients: Vec<_> = clients.collect();
    let mut all: Vec<_> = clients
        .into_iter()
        .map(|one| one.join().expect("a status"))
        .collect();
    all.sort_unstable();
    all
}

/// Checks that the answers never exceed a bucket of `burst` that gets a unit in each `interval`, and
/// that none of its units is left unused for long.
fn check_pace(answers: &[(Duration, u16)], burst: u32, interval: Duration) {
    for ((took, status), number) in answers.iter().zip(1_u32..) {
        assert_eq!(*status, 200, "{answers:?}");
        let earliest = interval * number.saturating_sub(burst);
        assert!(
            *took >= earliest,
            "the {number}th after {took:?}: {answers:?}"
        );
        let latest = earliest + Duration::from_secs(2);
        assert!(
            *took <= latest,
            "the {number}th after {took:?}: {answers:?}"
        );
    }
}

#[test]
fn fifty_clients_at_once_get_exactly_the_quota() {
    let slow = open();
    let gateway = start(
        &slow,
        "  calls: { key: constant, quota: 20/1s, burst: 5, on_limit: { action: wait, max_wait: 20s } }",
        "calls",
    );
    let answers = at_once(&[gateway.address()], 50);
    check_pace(&answers, 5, Duration::from_millis(50));
    assert_eq!(
        [
            decided(&gateway, "calls", "allowed"),
            decided(&gateway, "calls", "delayed")
        ],
        [5, 45]
    );
    assert_eq!(decided(&gateway, "calls", "limited"), 0);
    waiting(&gateway, 0);
    let waits = "sluicegate_limit_wait_seconds_count{policy=\"calls\"}";
    assert_eq!(gateway.metric(waits), Some(45.0));
}

/// Of all algorithms that know when units come, one after the other.
#[test]
fn each_algorithm_is_waited_for() {
    let slow = open();
    for algorithm in [
        "algorithm: token_bucket, capacity: 2, refill: 2 per 1s",
        "algorithm: fixed_window, quota: 2/1s",
        "algorithm: fixed_window, quota: 2/1s, start: first_request",
        "algorithm: sliding_window, quota: 2/1s",
        "algorithm: sliding_window, quota: 2/1s, precision: 4, oldest: whole",
        "algorithm: sliding_log, quota: 2/1s",
    ] {
        let policy =
            format!("  calls: {{ key: constant, {algorithm}, on_limit: {{ action: wait }} }}");
        let gateway = start(&slow, &policy, "calls");
        let answers = at_once(&[gateway.address()], 6);
        assert!(
            answers.iter().all(|(_, status)| *status == 200),
            "{algorithm}: {answers:?}"
        );
        let delayed = decided(&gateway, "calls", "delayed");
        assert!((2..=4).contains(&delayed), "{algorithm}: {delayed}");
        // Windows of the clock may end in between.
        assert!(
            answers[5].0 > Duration::from_secs(1),
            "{algorithm}: {answers:?}"
        );
    }
}

const SLOW_CALLS: &str = "  calls: { key: constant, quota: 60/1m, burst: 1, on_limit: { action: wait, queue: 3, max_wait: 20s } }";

#[test]
fn requests_are_admitted_in_order_before_newcomers_and_places_of_clients_that_leave_are_free() {
    let slow = open();
    let gateway = start(&slow, SLOW_CALLS, "calls");
    assert_eq!(ask(&gateway, "/first").receive().status, 200);
    let mut second = join(&gateway, "/second", 1);
    let leaves = join(&gateway, "/leaves", 2);
    let mut client = Http2::open(gateway.address());
    client.send(&request(1, &get_block()));
    waiting(&gateway, 3);
    let begun = now();
    let full = get(gateway.address(), "/full");
    assert_eq!(full.status, 429);
    assert!(full.header("retry-after").is_some() && begun.elapsed() < Duration::from_millis(500));
    leaves.reset();
    waiting(&gateway, 2);
    client.send(&frame(RST_STREAM, 0, 1, &CANCEL.to_be_bytes()));
    waiting(&gateway, 1);
    let mut third = join(&gateway, "/third", 2);
    let mut fourth = join(&gateway, "/fourth", 3);
    // Newcomers find the queue full also at the instants at which units come.
    let end = now() + Duration::from_millis(2_500);
    let address = gateway.address();
    let flood = thread::spawn(move || flood(address, end));
    for served in [&mut second, &mut third, &mut fourth] {
        assert_eq!(served.receive().status, 200);
    }
    let order = slow.gate.seen();
    assert_eq!(order[..2], ["/first", "/second"]);
    let place = |path: &str| {
        order
            .iter()
            .position(|one| one == path)
            .expect("it was served")
    };
    assert!(place("/third") < place("/fourth"), "{order:?}");
    let statuses = flood.join().expect("statuses");
    assert!(
        statuses.iter().filter(|status| **status == 429).count() > 20,
        "{statuses:?}"
    );
    // Whoever got a place behind them waits as they did.
    let before = order[..place("/fourth")]
        .iter()
        .filter(|one| *one == "/flood");
    assert_eq!(before.count(), 0, "{order:?}");
    let left = wait_for("a line of who left", || {
        let text = fs::read_to_string(gateway.dir().join("access.log")).ok()?;
        let lines = text
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok());
        let lines: Vec<Value> = lines.collect();
        let find = |path: &str| lines.iter().find(|line| line["path"] == path).cloned();
        find("/leaves").zip(find("/second"))
    });
    let facts = |line: &Value| json!([line["status"], line["policy"], line["decision"]]);
    assert_eq!(facts(&left.0), json!([499, "calls", "delayed"]));
    assert_eq!(facts(&left.1), json!([200, "calls", "delayed"]));
    assert!(left.1["delay_ms"].as_f64() > Some(500.0), "{}", left.1);
}

fn flood(address: SocketAddr, end: Instant) -> Vec<u16> {
    let mut statuses = Vec::new();
    while now() < end {
        let mut connection = Connection::open(address);
        connection.send("GET /flood HTTP/1.1\r\nHost: a\r\n\r\n");
        let timeout = Some(Duration::from_millis(100));
        connection
            .writer()
            .set_read_timeout(timeout)
            .expect("a socket");
        statuses.push(
            connection
                .try_receive()
                .ok()
                .flatten()
                .map_or(0, |one| one.status),
        );
    }
    statuses
}

#[test]
fn none_waits_longer_than_max_wait_nor_for_another_limit_or_for_nothing() {
    let slow = open();
    let gateway = start(
        &slow,
        "  calls: { key: constant, quota: 60/1m, burst: 1, on_limit: { action: wait, max_wait: 1500ms } }
  rare: { key: constant, quota: 1/300d, when: { path: /rare }, on_limit: { action: wait, max_wait: 5m } }
  none: { key: constant, quota: 1/300d, when: { path: /none } }
  never: { key: constant, quota: 0/1s, when: { path: /never }, on_limit: { action: wait } }",
        "calls, rare, none, never",
    );
    let timed = |path: &str| {
        let begun = now();
        (get(gateway.address(), path), begun)
    };
    let soon = |(answer, begun): (Response, Instant)| {
        assert!(begun.elapsed() < Duration::from_millis(500), "{answer:?}");
        answer.status
    };
    assert_eq!(soon(timed("/never")), 429);
    assert_eq!(timed("/rare").0.status, 200);
    let refused = timed("/rare");
    assert!(refused.0.header("retry-after").is_some());
    assert_eq!(soon(refused), 429, "its units come in 300 days");
    assert_eq!(timed("/none").0.status, 200);
    assert_eq!(
        soon(timed("/none")),
        429,
        "one of its limits lets none wait"
    );
    // The unit of the second comes in time; within 1.5 s there can't be three.
    let begun = now();
    let mut second = join(&gateway, "/second", 1);
    let mut others = [join(&gateway, "/third", 2), join(&gateway, "/fourth", 3)];
    assert_eq!(soon(timed("/none")), 429, "also behind others");
    assert_eq!(second.receive().status, 200);
    let others = others.each_mut().map(|other| other.receive().status);
    assert!(others.contains(&429), "{others:?}");
    assert!(begun.elapsed() < Duration::from_millis(2_500));
    waiting(&gateway, 0);
}

/// Each key has a queue of its own, and a request waits for several limits.
#[test]
fn keys_wait_apart_and_a_request_for_all_of_its_limits() {
    let slow = open();
    let gateway = start(
        &slow,
        "  calls: { key: 'header:x-key', quota: 2/1s, burst: 1, on_limit: { action: wait } }
  all: { key: constant, quota: 10/1s, burst: 2, on_limit: { action: wait } }",
        "calls, all",
    );
    let address = gateway.address();
    let begun = now();
    let clients = ["a", "a", "a", "b", "b", "b"].map(|key| {
        thread::spawn(move || {
            let status = get_with(address, "/", &format!("x-key: {key}\r\n")).status;
            (status, begun.elapsed())
        })
    });
    let ended = clients.map(|client| client.join().expect("a status"));
    assert!(ended.iter().all(|(status, _)| *status == 200), "{ended:?}");
    let last = ended
        .iter()
        .map(|(_, took)| *took)
        .max()
        .expect("six of them");
    assert!(
        (Duration::from_secs(1)..Duration::from_secs(2)).contains(&last),
        "{ended:?}"
    );
    waiting(&gateway, 0);
}

#[test]
fn a_reload_and_an_operator_end_a_wait_and_a_drain_answers_who_waits() {
    let slow = open();
    let policy = |quota: &str| {
        format!(
            "  calls: {{ key: constant, quota: {quota}, burst: 1, on_limit: {{ action: wait, max_wait: 5m }} }}"
        )
    };
    let mut gateway = start(&slow, &policy("1/2m"), "calls");
    assert_eq!(ask(&gateway, "/first").receive().status, 200);
    let mut second = join(&gateway, "/second", 1);
    let begun = now();
    gateway.reload(&config(&slow, &policy("100/1m"), "calls"));
    assert_eq!(second.receive().status, 200);
    assert!(begun.elapsed() < Duration::from_secs(20));
    gateway.reload(&config(&slow, &policy("1/2m"), "calls"));
    let mut third = join(&gateway, "/third", 1);
    let explained = json!({ "method": "GET", "url": "http://a/", "from": "203.0.113.7" });
    let explained = answer_of(&AdminClient::new(&gateway, READER).post("/v1/explain", &explained));
    assert_eq!(explained["answer"]["decision"], "delayed", "{explained}");
    assert_eq!(explained["limits"][0]["decision"], "delayed", "{explained}");
    gateway.signal(Signal::TERM);
    let drained = third.receive();
    assert_eq!(drained.status, 503);
    assert!(gateway.wait().success());
}
