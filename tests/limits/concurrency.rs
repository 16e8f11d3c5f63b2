//! Limits on requests in flight, over real sockets: exact, and permits return however a request
//! ends.

use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use crate::support::client::{Connection, get, get_with};
use crate::support::frames::{self, Http2};
use crate::support::gateway::Gateway;
use crate::support::origin::{Origin, Step};
use crate::support::replay::{Replay, command, line};
use crate::support::slow::{ALL, Slow};
use crate::support::wait_for;
use rustix::process::Signal;

/// A proxy in front of the origin with one limit, called `slots`.
fn behind(slow: &Slow, policy: &str) -> Gateway {
    Gateway::start(&config(slow, policy))
}

fn config(slow: &Slow, policy: &str) -> String {
    format!(
        "policies: {{ slots: {policy} }}\nroutes: [{{ name: a, upstream: '{}', limits: [slots] }}]\n",
        slow.origin.url()
    )
}

const REQUEST: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

/// A request whose response has begun and not ended.
fn begun(address: SocketAddr) -> Connection {
    let mut connection = Connection::open(address);
    connection.send(REQUEST);
    assert_eq!(connection.receive_head().status, 200);
    connection
}

fn in_use(gateway: &Gateway) -> Option<u64> {
    let units = gateway.metric("sluicegate_limit_in_use{policy=\"slots\"}");
    units.map(|units| units as u64)
}

#[track_caller]
fn wait_until_in_use(gateway: &Gateway, units: u64) {
    let what = format!("{units} in use");
    wait_for(&what, || (in_use(gateway) == Some(units)).then_some(()));
}

fn decided(gateway: &Gateway, policy: &str, decision: &str) -> u64 {
    let series = format!(
        "sluicegate_limit_decisions_total{{policy=\"{policy}\",route=\"a\",decision=\"{decision}\"}}"
    );
    gateway.metric(&series).unwrap_or(0.0) as u64
}

#[test]
fn parallel_requests_are_served_up_to_max_requests() {
    let slow = Slow::halfway();
    let gateway = behind(&slow, "{ key: constant, algorithm: concurrency, max: 20 }");
    let address = gateway.address();
    let clients: Vec<_> = (0..60)
        .map(|_| thread::spawn(move || get(address, "/").status))
        .collect();
    wait_for("every decision", || {
        (decided(&gateway, "slots", "limited") == 40).then_some(())
    });
    assert_eq!(in_use(&gateway), Some(20));
    slow.gate.let_pass(ALL);
    let mut statuses: Vec<_> = clients
        .into_iter()
        .map(|client| client.join().expect("a status"))
        .collect();
    statuses.sort_unstable();
    assert_eq!(statuses[..20], [200; 20]);
    assert_eq!(statuses[20..], [429; 40]);
    wait_until_in_use(&gateway, 0);
    assert_eq!(get(address, "/").status, 200);
}

#[test]
fn a_permit_is_held_to_the_last_byte_and_a_refusal_estimates_retry_after() {
    let slow = Slow::halfway();
    let gateway = behind(
        &slow,
        "{ algorithm: concurrency, max: 1, retry_after: 2500ms }",
    );
    let mut first = Connection::open(gateway.address());
    first.send(REQUEST);
    let head = first.receive_head();
    let policy = "\"slots\";q=1;qu=\"concurrent-requests\"";
    assert_eq!(head.expect_header("ratelimit-policy"), policy);
    assert_eq!(head.expect_header("ratelimit"), "\"slots\";r=0");

    let refused = get_with(gateway.address(), "/", "accept: text/plain\r\n");
    assert_eq!(refused.status, 429);
    assert_eq!(refused.expect_header("retry-after"), "3");
    assert_eq!(refused.expect_header("ratelimit"), "\"slots\";r=0");
    let text = refused.text();
    assert!(
        text.contains("\"slots\" of 1 at a time is used up."),
        "{text}"
    );

    slow.gate.let_pass(ALL);
    assert_eq!(first.read_exactly(2), b"ab");
    wait_until_in_use(&gateway, 0);
    assert_eq!(
        first.exchange(REQUEST).status,
        200,
        "the connection goes on"
    );
}

#[test]
fn a_client_that_leaves_before_or_within_the_response_returns_its_permit() {
    let hanging = Origin::start(|_| vec![Step::Hang]);
    let slow = Slow::halfway();
    for (origin, answers) in [(hanging.url(), false), (slow.origin.url(), true)] {
        let gateway = Gateway::start(&format!(
            "policies: {{ slots: {{ algorithm: concurrency, max: 2 }} }}
routes: [{{ name: a, upstream: '{origin}', limits: [slots] }}]\n"
        ));
        let address = gateway.address();
        for leave in [Connection::reset as fn(Connection), drop::<Connection>] {
            let held = [0; 2].map(|_| {
                let mut connection = Connection::open(address);
                connection.send(REQUEST);
                if answers {
                    assert_eq!(connection.receive_head().status, 200);
                }
                connection
            });
            wait_until_in_use(&gateway, 2);
            assert_eq!(get(address, "/").status, 429);
            held.into_iter().for_each(leave);
            wait_until_in_use(&gateway, 0);
        }
        let mut client = Http2::open(address);
        for stream in [1, 3] {
            client.send(&frames::request(stream, &frames::get_block()));
        }
        wait_until_in_use(&gateway, 2);
        const CANCEL: [u8; 4] = [0, 0, 0, 8];
        for stream in [1, 3] {
            client.send(&frames::frame(3, 0, stream, &CANCEL));
        }
        wait_until_in_use(&gateway, 0);
    }
}

#[test]
fn a_dead_or_silent_upstream_returns_the_permit() {
    let origin = Origin::start(|request| match request.target.as_str() {
        "/before" => vec![Step::Reset],
        "/within" => {
            let mut steps =
                crate::support::origin::raw("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\na");
            steps.push(Step::Reset);
            steps
        }
        "/silent" => vec![Step::Hang],
        _ => crate::support::origin::ok("ok"),
    });
    let gateway = Gateway::start(&format!(
        "upstreams:
  o: {{ endpoints: ['{}'], timeouts: {{ response: 200ms, idle: 200ms }} }}
policies: {{ slots: {{ algorithm: concurrency, max: 1 }} }}
routes: [{{ name: a, upstream: o, limits: [slots] }}]
",
        origin.url()
    ));
    let address = gateway.address();
    for _ in 0..3 {
        assert_eq!(get(address, "/before").status, 502);
        wait_until_in_use(&gateway, 0);
        let mut broken = Connection::open(address);
        broken.send("GET /within HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(broken.try_receive().is_err(), "it ends before its end");
        wait_until_in_use(&gateway, 0);
        assert_eq!(get(address, "/silent").status, 504);
        wait_until_in_use(&gateway, 0);
    }
    assert_eq!(get(address, "/ok").status, 200);
    assert_eq!(decided(&gateway, "slots", "limited"), 0);
}

#[test]
fn a_client_that_reads_too_slowly_returns_its_permit() {
    let origin = Origin::start(|_| {
        let megabytes = "x".repeat(32 << 20);
        crate::support::origin::ok(&megabytes)
    });
    let gateway = Gateway::start(&format!(
        "client: {{ timeouts: {{ body: 300ms }} }}
policies: {{ slots: {{ algorithm: concurrency, max: 2 }} }}
routes: [{{ name: a, upstream: '{}', limits: [slots] }}]
",
        origin.url()
    ));
    let address = gateway.address();
    let _reads_nothing = begun(address);
    let mut sends_nothing = Connection::open(address);
    sends_nothing.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\na");
    wait_for("both", || {
        (decided(&gateway, "slots", "allowed") == 2).then_some(())
    });
    wait_until_in_use(&gateway, 0);
}

/// The next number of a pseudo-random series, the same in every run.
fn next(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
    *seed >> 33
}

/// A client that leaves at some point of its request.
fn leave_somewhere(address: SocketAddr, seed: &mut u64) {
    let mut connection = Connection::open(address);
    let request = match next(seed) % 4 {
        0 => "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nhalf",
        1 => "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n",
        _ => REQUEST,
    };
    let whole = next(seed) % 4 < 3;
    let cut = next(seed) as usize % request.len();
    let bytes = if whole { request } else { &request[..cut] };
    _ = connection.try_send(bytes);
    match next(seed) % 4 {
        0 if whole && !request.ends_with("half") => _ = connection.try_receive_head(),
        1 => thread::sleep(Duration::from_micros(next(seed) % 3_000)),
        2 if whole && request == REQUEST => {
            connection.send(REQUEST);
            _ = connection.try_receive_head();
        }
        _ => {}
    }
    match next(seed) % 2 {
        0 => connection.reset(),
        _ => drop(connection),
    }
}

#[test]
fn a_thousand_random_aborts_leave_no_permit_in_use() {
    let origin = Origin::start(|request| match request.body.len() % 2 {
        0 => vec![
            Step::Send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\na".to_vec()),
            Step::Pause(Duration::from_millis(2)),
            Step::Send(b"b".to_vec()),
        ],
        _ => vec![Step::Reset],
    });
    let gateway = Gateway::start(&format!(
        "policies: {{ slots: {{ key: constant, algorithm: concurrency, max: 6 }}, all: {{ key: constant, quota: 0/1h, mode: shadow }} }}
routes: [{{ name: a, upstream: '{}', limits: [slots, all] }}]
",
        origin.url()
    ));
    let address = gateway.address();
    thread::scope(|scope| {
        for thread in 0..10 {
            scope.spawn(move || {
                let mut seed = thread;
                (0..100).for_each(|_| leave_somewhere(address, &mut seed));
            });
        }
    });
    wait_until_in_use(&gateway, 0);
    let (allowed, limited) = (
        decided(&gateway, "slots", "allowed"),
        decided(&gateway, "slots", "limited"),
    );
    assert!(allowed > 100 && limited > 10, "{allowed} and {limited}");
    for _ in 0..7 {
        assert_eq!(get(address, "/").status, 200);
    }
}

#[test]
fn a_reload_changes_or_removes_the_bound_for_requests_in_flight() {
    let slow = Slow::halfway();
    let policy = |max: u32| format!("{{ algorithm: concurrency, max: {max} }}");
    let gateway = behind(&slow, &policy(1));
    let address = gateway.address();
    let first = begun(address);
    assert_eq!(get(address, "/").status, 429);

    gateway.reload(&config(&slow, &policy(2)));
    assert_eq!(in_use(&gateway), Some(1), "what is in flight is known");
    let second = begun(address);
    assert_eq!(get(address, "/").status, 429);

    gateway.reload(&config(&slow, &policy(1)));
    assert_eq!(in_use(&gateway), Some(2));
    drop(first);
    wait_until_in_use(&gateway, 1);
    assert_eq!(get(address, "/").status, 429, "one is left, which is all");
    drop(second);
    wait_until_in_use(&gateway, 0);
    let last = begun(address);

    gateway.reload(&config(&slow, "{ quota: 9/1h }"));
    assert_eq!(in_use(&gateway), Some(1), "it is still in flight");
    let other = begun(address);
    slow.gate.let_pass(ALL);
    for mut held in [last, other] {
        assert_eq!(held.read_exactly(2), b"ab");
        assert_eq!(held.exchange(REQUEST).status, 200);
    }
    wait_for("the end of the old limit", || {
        in_use(&gateway).is_none().then_some(())
    });
    gateway.reload(&config(&slow, &policy(1)));
    assert_eq!(in_use(&gateway), Some(0));
    assert_eq!(get(address, "/").status, 200);
}

#[test]
fn a_permit_and_a_quota_are_charged_together_or_not_at_all() {
    let slow = Slow::halfway();
    let gateway = Gateway::start(&format!(
        "policies:
  slots: {{ key: constant, algorithm: concurrency, max: 1 }}
  wide: {{ key: header:x-key, algorithm: concurrency, max: 9 }}
  daily: {{ key: constant, algorithm: fixed_window, quota: 3/300d }}
routes: [{{ name: a, upstream: '{}', limits: [daily, slots, wide] }}]
",
        slow.origin.url()
    ));
    let address = gateway.address();
    let held = begun(address);
    let refused = get(address, "/");
    assert_eq!(refused.status, 429);
    let told = refused.expect_header("ratelimit");
    assert!(
        told.contains("\"daily\";r=2") && told.contains("\"wide\";r=8"),
        "{told}"
    );
    drop(held);
    wait_until_in_use(&gateway, 0);
    slow.gate.let_pass(ALL);
    for status in [200, 200, 429] {
        assert_eq!(get(address, "/").status, status);
        wait_until_in_use(&gateway, 0);
    }
    let by_quota = get(address, "/");
    let told = by_quota.expect_header("ratelimit");
    assert!(
        told.contains("\"slots\";r=1") && told.contains("\"wide\";r=9"),
        "{told}"
    );
    wait_until_in_use(&gateway, 0);
    assert_eq!(decided(&gateway, "slots", "limited"), 1);
    assert_eq!(decided(&gateway, "daily", "limited"), 2);
}

#[test]
fn costs_exceptions_and_modes_apply_to_permits_too() {
    let slow = Slow::halfway();
    let gateway = Gateway::start(&format!(
        "policies:
  slots:
    key: header:x-key
    algorithm: concurrency
    max: 4
    cost: {{ header: x-cost, max: 5 }}
    exempt: [{{ value: free }}]
    overrides: [{{ value: big, max: 10 }}, {{ value: none, max: 0 }}]
    candidate: {{ max: 3 }}
  watched: {{ key: constant, algorithm: concurrency, max: 2, mode: shadow }}
  told: {{ key: constant, algorithm: concurrency, max: 2, on_limit: {{ action: tag, tag_header: x-over }} }}
routes: [{{ name: a, upstream: '{}', limits: [slots, watched, told] }}]
",
        slow.origin.url()
    ));
    let address = gateway.address();
    let begin = |fields: &str| {
        let mut connection = Connection::open(address);
        connection.send(format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n"));
        (connection.receive_head(), connection)
    };
    let (head, three) = begin("x-key: a\r\nx-cost: 3\r\n");
    assert_eq!(head.status, 200);
    let refused = get_with(address, "/", "x-key: a\r\nx-cost: 2\r\n");
    assert_eq!(
        (refused.status, refused.header("retry-after")),
        (429, Some("1"))
    );
    let never = get_with(address, "/", "x-key: a\r\nx-cost: 5\r\n");
    assert_eq!((never.status, never.header("retry-after")), (429, None));
    let zero = get_with(address, "/", "x-key: none\r\n");
    assert_eq!((zero.status, zero.header("retry-after")), (429, None));
    let others: Vec<_> = [
        "x-key: a\r\n",
        "x-key: big\r\nx-cost: 5\r\n",
        "x-key: free\r\n",
    ]
    .map(begin)
    .into_iter()
    .map(|(head, connection)| {
        assert_eq!(head.status, 200);
        connection
    })
    .collect();
    assert_eq!(in_use(&gateway), Some(9), "3 + 1 + 5");
    let units =
        |policy: &str| gateway.metric(&format!("sluicegate_limit_in_use{{policy=\"{policy}\"}}"));
    assert_eq!(units("slots/candidate"), Some(3.0), "3 + 1 would be beyond");
    assert_eq!(decided(&gateway, "slots/candidate", "shadowed"), 1);
    assert_eq!((units("watched"), units("told")), (Some(2.0), Some(2.0)));
    assert_eq!(decided(&gateway, "watched", "shadowed"), 2);
    assert_eq!(decided(&gateway, "told", "tagged"), 2);
    drop((three, others));
    wait_until_in_use(&gateway, 0);
    for policy in ["slots/candidate", "watched", "told"] {
        wait_for(policy, || (units(policy) == Some(0.0)).then_some(()));
    }
}

#[test]
fn permits_return_while_the_proxy_shuts_down() {
    let slow = Slow::halfway();
    let policy = config(&slow, "{ algorithm: concurrency, max: 1 }");
    let mut gateway = Gateway::start(&format!(
        "shutdown: {{ delay: 3s, deadline: 20s }}\n{policy}"
    ));
    let mut held = begun(gateway.address());
    gateway.signal(Signal::TERM);
    wait_for("unreadiness", || {
        (get(gateway.admin, "/readyz").status == 503).then_some(())
    });
    assert_eq!(get(gateway.address(), "/").status, 429);
    slow.gate.let_pass(ALL);
    assert_eq!(held.read_exactly(2), b"ab");
    wait_until_in_use(&gateway, 0);
    assert_eq!(get(gateway.address(), "/").status, 200);
    assert!(gateway.wait().success());
}

#[test]
fn explain_shows_permits_and_replay_skips_them() {
    let config = "policies:
  slots: { key: constant, algorithm: concurrency, max: 2 }
  none: { key: constant, algorithm: concurrency, max: 0, mode: shadow }
  line: { key: constant, algorithm: concurrency, max: 4, queue: 3, max_wait: 90s }
  hourly: { key: constant, quota: 1/1h }
routes: [{ name: a, upstream: echo, limits: [slots, none, line, hourly] }]
";
    let replay = Replay::new(config, [line("0", "/", ""), line("1", "/", "")].concat());
    let explained = command(["explain", "GET", "http://a/", "--config"])
        .arg(replay.dir.path().join("sluicegate.yaml"))
        .output()
        .expect("the binary starts");
    let text = String::from_utf8(explained.stdout).expect("text");
    assert!(
        text.contains("limit     slots (concurrency, 2 at a time)\n"),
        "{text}"
    );
    assert!(
        text.contains("  says    allowed: 1 left while it is served\n"),
        "{text}"
    );
    assert!(
        text.contains("  says    shadowed: it can never be allowed\n"),
        "{text}"
    );
    let line =
        "  queue   where none is left it waits in line, one of 3 at most, for 1m 30s at most\n";
    assert_eq!(text.matches("  queue ").count(), 1, "{text}");
    assert!(text.contains(line), "{text}");
    assert!(text.contains("answer    allowed"), "{text}");

    let report = replay.report(&[]);
    assert_eq!(
        report["not_replayed"],
        serde_json::json!(["slots", "none", "line"])
    );
    assert_eq!(
        (&report["allowed"], &report["limited"]),
        (&1.into(), &1.into())
    );
    let text = replay.text();
    let remark = "not replayed, since a log does not say when requests end: slots, none, line\n";
    assert!(text.contains(remark), "{text}");
    let decisions = replay.run(&["--decisions"]);
    let remarks = String::from_utf8(decisions.stderr).expect("text");
    assert!(remarks.contains(remark), "{remarks}");
}
