//! Requests that wait for permits, through the binary: first in first out, bounded, cancelled by
//! clients that leave, never stuck.

use std::fs;
use std::thread;
use std::time::Duration;

use crate::support::client::{Connection, get, get_with};
use crate::support::frames::{CANCEL, Http2, RST_STREAM, frame, get_block, request};
use crate::support::gateway::Gateway;
use crate::support::slow::{ALL, Slow};
use crate::support::{now, wait_for};
use rustix::process::Signal;
use serde_json::{Value, json};

fn behind(slow: &Slow, policies: &str, limits: &str) -> Gateway {
    Gateway::start(&config(slow, policies, limits))
}

fn config(slow: &Slow, policies: &str, limits: &str) -> String {
    format!(
        "access_log: {{ path: access.log }}
shutdown: {{ delay: 0s, deadline: 20s }}
policies: {{ {policies} }}
routes: [{{ name: a, upstream: '{}', limits: [{limits}] }}]
",
        slow.origin.url()
    )
}

fn ask(gateway: &Gateway, path: &str) -> Connection {
    ask_with(gateway, path, "")
}

fn ask_with(gateway: &Gateway, path: &str, fields: &str) -> Connection {
    let mut connection = Connection::open(gateway.address());
    connection.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n{fields}\r\n"));
    connection
}

fn figure(gateway: &Gateway, name: &str, policy: &str) -> u64 {
    let series = format!("sluicegate_limit_{name}{{policy=\"{policy}\"}}");
    gateway.metric(&series).unwrap_or(0.0) as u64
}

fn decided(gateway: &Gateway, policy: &str, decision: &str) -> u64 {
    let labels = format!("policy=\"{policy}\",route=\"a\",decision=\"{decision}\"");
    let series = format!("sluicegate_limit_decisions_total{{{labels}}}");
    gateway.metric(&series).unwrap_or(0.0) as u64
}

#[track_caller]
fn wait_until(gateway: &Gateway, name: &str, policy: &str, expected: u64) {
    wait_for(&format!("{name} of {policy}: {expected}"), || {
        (figure(gateway, name, policy) == expected).then_some(())
    });
}

/// Sends a request, and waits until `expected` requests wait.
fn join(gateway: &Gateway, path: &str, expected: u64) -> Connection {
    let client = ask(gateway, path);
    wait_until(gateway, "waiting", "slots", expected);
    client
}

const SLOTS: &str =
    "slots: { key: constant, algorithm: concurrency, max: 1, queue: 3, max_wait: 1m }";

#[test]
fn of_sixty_parallel_requests_five_are_served_ten_wait_and_the_others_are_refused_at_once() {
    let slow = Slow::start();
    let gateway = behind(
        &slow,
        "slots: { key: constant, algorithm: concurrency, max: 5, queue: 10, max_wait: 1m }",
        "slots",
    );
    let address = gateway.address();
    let clients: Vec<_> = (0..60)
        .map(|_| thread::spawn(move || get(address, "/").status))
        .collect();
    wait_for("45 refusals", || {
        (decided(&gateway, "slots", "limited") == 45).then_some(())
    });
    wait_until(&gateway, "waiting", "slots", 10);
    assert_eq!(figure(&gateway, "in_use", "slots"), 5);
    wait_for("five requests at the origin", || {
        (slow.gate.seen().len() == 5).then_some(())
    });
    slow.gate.let_pass(ALL);
    let mut statuses: Vec<_> = clients
        .into_iter()
        .map(|client| client.join().expect("a status"))
        .collect();
    statuses.sort_unstable();
    assert_eq!(statuses[..15], [200; 15]);
    assert_eq!(statuses[15..], [429; 45]);
    assert_eq!(slow.gate.most(), 5);
    wait_until(&gateway, "in_use", "slots", 0);
    let counts = ["allowed", "delayed", "limited"].map(|what| decided(&gateway, "slots", what));
    assert_eq!(counts, [5, 10, 45]);
    assert_eq!(figure(&gateway, "wait_seconds_count", "slots"), 10);
    assert_eq!(figure(&gateway, "waiting", "slots"), 0);
}

#[test]
fn permits_go_to_waiting_requests_in_order_and_a_client_that_leaves_blocks_none() {
    let slow = Slow::start();
    let gateway = behind(&slow, SLOTS, "slots");
    let mut first = ask(&gateway, "/first");
    wait_until(&gateway, "in_use", "slots", 1);
    let leaves_first = join(&gateway, "/0", 1);
    let mut second = join(&gateway, "/second", 2);
    let leaves_last = join(&gateway, "/1", 3);
    assert_eq!(get(gateway.address(), "/full").status, 429);
    leaves_first.reset();
    wait_until(&gateway, "waiting", "slots", 2);
    let mut third = join(&gateway, "/third", 3);
    drop(leaves_last);
    wait_until(&gateway, "waiting", "slots", 2);
    let mut client = Http2::open(gateway.address());
    client.send(&request(1, &get_block()));
    wait_until(&gateway, "waiting", "slots", 3);
    client.send(&frame(RST_STREAM, 0, 1, &CANCEL.to_be_bytes()));
    wait_until(&gateway, "waiting", "slots", 2);
    for served in [&mut first, &mut second, &mut third] {
        slow.gate.let_pass(1);
        assert_eq!(served.receive().status, 200);
    }
    assert_eq!(slow.gate.seen(), ["/first", "/second", "/third"]);
    assert_eq!(slow.gate.most(), 1);
    wait_until(&gateway, "in_use", "slots", 0);
    let path = gateway.dir().join("access.log");
    let left = wait_for("a line of who left", || {
        let text = fs::read_to_string(&path).ok()?;
        let lines = text
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok());
        let mut left = lines.filter(|line: &Value| line["status"] == 499);
        left.find(|line| line["path"] == "/0")
    });
    assert_eq!(
        (&left["policy"], &left["decision"]),
        (&json!("slots"), &json!("delayed"))
    );
    assert!(left["delay_ms"].as_f64() > Some(0.0), "{left}");
}

#[test]
fn a_request_that_has_waited_for_max_wait_is_refused_by_that_policy() {
    const WAIT: Duration = Duration::from_millis(300);
    let slow = Slow::start();
    let gateway = behind(
        &slow,
        "slots: { key: constant, algorithm: concurrency, max: 1, queue: 3, max_wait: 300ms, retry_after: 7s }",
        "slots",
    );
    let mut held = ask(&gateway, "/held");
    wait_until(&gateway, "in_use", "slots", 1);
    let started = now();
    let refused = get(gateway.address(), "/");
    assert!(started.elapsed() >= WAIT, "{:?}", started.elapsed());
    assert_eq!(refused.status, 429);
    assert_eq!(refused.expect_header("retry-after"), "7");
    assert_eq!(refused.expect_header("ratelimit"), "\"slots\";r=0");
    assert_eq!(figure(&gateway, "waiting", "slots"), 0);
    assert_eq!(decided(&gateway, "slots", "limited"), 1);
    slow.gate.let_pass(2);
    assert_eq!(held.receive().status, 200);
    assert_eq!(get(gateway.address(), "/").status, 200);
}

#[test]
fn other_policies_are_charged_once_the_permit_is_acquired() {
    let slow = Slow::start();
    let gateway = behind(
        &slow,
        &format!("{SLOTS}, few: {{ key: constant, algorithm: fixed_window, quota: 2/300d }}"),
        "few, slots",
    );
    let mut first = ask(&gateway, "/");
    wait_until(&gateway, "in_use", "slots", 1);
    let mut second = join(&gateway, "/", 1);
    let mut third = join(&gateway, "/", 2);
    assert_eq!(
        decided(&gateway, "few", "allowed"),
        1,
        "who waits owes nothing yet"
    );
    slow.gate.let_pass(2);
    assert_eq!(first.receive().status, 200);
    assert_eq!(second.receive().status, 200);
    let refused = third.receive();
    assert_eq!(refused.status, 429);
    assert!(refused.text().contains("few"), "{}", refused.text());
    wait_until(&gateway, "in_use", "slots", 0);
    assert_eq!(decided(&gateway, "few", "allowed"), 2);
}

#[test]
fn a_delayed_request_keeps_the_permit_that_it_waited_for() {
    let slow = Slow::start();
    slow.gate.let_pass(ALL);
    let gateway = behind(
        &slow,
        &format!(
            "{SLOTS}, calm: {{ key: constant, algorithm: leaky_bucket, quota: 1/1h, queue: 9, max_wait: 1h }}"
        ),
        "slots, calm",
    );
    assert_eq!(get(gateway.address(), "/").status, 200);
    let delayed = ask(&gateway, "/");
    wait_until(&gateway, "waiting", "calm", 1);
    assert_eq!(figure(&gateway, "in_use", "slots"), 1);
    let next = join(&gateway, "/", 1);
    assert_eq!(
        figure(&gateway, "waiting", "calm"),
        1,
        "it has not come so far"
    );
    drop(delayed);
    wait_until(&gateway, "waiting", "slots", 0);
    wait_until(&gateway, "waiting", "calm", 1);
    assert_eq!(figure(&gateway, "in_use", "slots"), 1);
    drop(next);
    wait_until(&gateway, "in_use", "slots", 0);
}

#[test]
fn a_reload_with_more_permits_admits_waiting_requests_and_loses_none() {
    let slow = Slow::start();
    let at_most = |max: u32| {
        let policy = format!(
            "slots: {{ key: constant, algorithm: concurrency, max: {max}, queue: 9, max_wait: 1m }}"
        );
        config(&slow, &policy, "slots")
    };
    let gateway = Gateway::start(&at_most(1));
    let mut clients = vec![ask(&gateway, "/")];
    wait_until(&gateway, "in_use", "slots", 1);
    for waiting in 1..=5 {
        clients.push(join(&gateway, "/", waiting));
    }
    gateway.reload(&at_most(3));
    wait_until(&gateway, "waiting", "slots", 3);
    assert_eq!(figure(&gateway, "in_use", "slots"), 3);
    gateway.reload(&at_most(2));
    slow.gate.let_pass(1);
    wait_until(&gateway, "in_use", "slots", 2);
    assert_eq!(figure(&gateway, "waiting", "slots"), 3);
    gateway.reload(&config(&slow, "others: { quota: 9/1h }", "others"));
    assert_eq!(figure(&gateway, "waiting", "slots"), 3);
    slow.gate.let_pass(ALL);
    for client in &mut clients {
        assert_eq!(client.receive().status, 200);
    }
    assert_eq!(slow.gate.most(), 3);
}

#[test]
fn waiting_requests_are_served_while_the_proxy_shuts_down() {
    let slow = Slow::start();
    let mut gateway = behind(&slow, SLOTS, "slots");
    let mut first = ask(&gateway, "/");
    wait_until(&gateway, "in_use", "slots", 1);
    let mut second = join(&gateway, "/", 1);
    gateway.signal(Signal::TERM);
    slow.gate.let_pass(1);
    assert_eq!(first.receive().status, 200);
    slow.gate.let_pass(1);
    assert_eq!(second.receive().status, 200);
    assert!(gateway.wait().success());
}

#[test]
fn two_queues_in_either_order_do_not_deadlock() {
    let slow = Slow::start();
    slow.gate.let_pass(ALL);
    let gateway = Gateway::start(&format!(
        "workers: 2
policies:
  one: {{ key: constant, algorithm: concurrency, max: 2, queue: 1000, max_wait: 1m }}
  two: {{ key: constant, algorithm: concurrency, max: 1, queue: 1000, max_wait: 1m }}
routes:
  - {{ name: a, match: {{ path: /a }}, upstream: '{0}', limits: [one, two] }}
  - {{ name: b, match: {{ path: /b }}, upstream: '{0}', limits: [two, one] }}
",
        slow.origin.url()
    ));
    let address = gateway.address();
    let clients: Vec<_> = (0..20)
        .map(|number| {
            let path = ["/a", "/b"][number % 2];
            thread::spawn(move || (0..25).all(|_| get(address, path).status == 200))
        })
        .collect();
    for client in clients {
        assert!(client.join().expect("answers"));
    }
    assert_eq!(slow.gate.most(), 1);
    for policy in ["one", "two"] {
        wait_until(&gateway, "in_use", policy, 0);
        assert_eq!(figure(&gateway, "waiting", policy), 0);
    }
}

#[test]
fn expensive_requests_keep_their_turn_and_each_key_has_its_own_queue() {
    let slow = Slow::start();
    let gateway = behind(
        &slow,
        "slots: { key: header:x-key, algorithm: concurrency, max: 3, queue: 2, max_wait: 1m, cost: { header: x-cost, max: 9 } }",
        "slots",
    );
    let asks = |path: &str, key: &str, cost: u32| {
        ask_with(
            &gateway,
            path,
            &format!("x-key: {key}\r\nx-cost: {cost}\r\n"),
        )
    };
    let mut small = asks("/small", "a", 1);
    wait_until(&gateway, "in_use", "slots", 1);
    let mut dear = asks("/dear", "a", 3);
    wait_until(&gateway, "waiting", "slots", 1);
    let mut late = asks("/late", "a", 1);
    wait_until(&gateway, "waiting", "slots", 2);
    let never = get_with(gateway.address(), "/", "x-key: a\r\nx-cost: 4\r\n");
    assert_eq!((never.status, never.header("retry-after")), (429, None));
    let mut other = asks("/other", "b", 3);
    wait_until(&gateway, "in_use", "slots", 4);
    // Who is there late would be overtaken by whom the first lets go on.
    crate::support::wait_for("both to be at the origin", || {
        (slow.gate.seen().len() == 2).then_some(())
    });
    slow.gate.let_pass(2);
    for client in [&mut small, &mut other] {
        assert_eq!(client.receive().status, 200);
    }
    // For a moment the other alone has three.
    wait_until(&gateway, "waiting", "slots", 1);
    wait_until(&gateway, "in_use", "slots", 3);
    slow.gate.let_pass(2);
    for client in [&mut dear, &mut late] {
        assert_eq!(client.receive().status, 200);
    }
    assert_eq!(slow.gate.seen()[2..], ["/dear", "/late"]);
}

/// The next number of a pseudo-random series, the same in every run.
fn next(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
    *seed >> 33
}

#[test]
fn clients_that_leave_at_any_time_leave_no_request_waiting_and_no_permit_in_use() {
    let slow = Slow::start();
    slow.gate.let_pass(ALL);
    let gateway = behind(
        &slow,
        "slots: { key: constant, algorithm: concurrency, max: 2, queue: 4, max_wait: 5ms }",
        "slots",
    );
    thread::scope(|scope| {
        for thread in 0..10 {
            let gateway = &gateway;
            scope.spawn(move || {
                let mut seed = thread;
                for _ in 0..60 {
                    let mut client = ask(gateway, "/");
                    match next(&mut seed) % 3 {
                        0 => client.reset(),
                        1 => thread::sleep(Duration::from_micros(next(&mut seed) % 3_000)),
                        _ => assert!([200, 429].contains(&client.receive().status)),
                    }
                }
            });
        }
    });
    wait_until(&gateway, "in_use", "slots", 0);
    wait_until(&gateway, "waiting", "slots", 0);
    for _ in 0..5 {
        assert_eq!(get(gateway.address(), "/").status, 200);
        wait_until(&gateway, "in_use", "slots", 0);
    }
}
