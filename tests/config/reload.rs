//! Reloads: every way to change the file is noticed, a bad file changes nothing, buckets survive,
//! and clients notice nothing.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, mpsc};
use std::thread;

use crate::support::admin::{AdminClient, TOKENS};
use crate::support::client::{Connection, get};
use crate::support::gateway::{Gateway, with_free_ports};
use crate::support::origin::{Origin, Step, ok};
use crate::support::steering;
use crate::support::{DEADLINE, origin, wait_for};
use rustix::process::Signal;
use serde_json::{Value, json};

/// A configuration that differs only in its quota.
fn with_quota(quota: &str) -> String {
    format!(
        "policies: {{ all: {{ key: constant, quota: {quota} }} }}\n\
         routes: [{{ upstream: echo, limits: [all] }}]\n"
    )
}

/// A configuration with as many routes, each with a policy of its own, after the route `first`.
fn with_policies(routes: usize, quota: usize, first: &str) -> String {
    let policy =
        |place| format!("  p{place}: {{ key: client_ip, quota: {quota}/1h, max_keys: 1024 }}\n");
    let route = |place| {
        format!("  - {{ match: {{ path: /{place} }}, upstream: echo, limits: [p{place}] }}\n")
    };
    format!(
        "policies:\n{}routes:\n{first}{}",
        (0..routes).map(policy).collect::<String>(),
        (0..routes).map(route).collect::<String>()
    )
}

/// The number of admitted requests before the first refusal.
fn admitted(gateway: &Gateway) -> usize {
    let statuses = (0..100).map(|_| get(gateway.address(), "/").status);
    statuses.take_while(|status| *status == 200).count()
}

#[test]
fn a_changed_quota_takes_effect_at_once_and_keeps_used_units() {
    let gateway = Gateway::start(&with_quota("2/300d"));
    assert_eq!(admitted(&gateway), 2);
    gateway.reload(&with_quota("5/300d"));
    assert_eq!(admitted(&gateway), 3, "two of five were used");
    gateway.reload(&with_quota("4/300d"));
    assert_eq!(admitted(&gateway), 0);
    gateway.reload(&with_quota("6/300d"));
    assert_eq!(
        admitted(&gateway),
        1,
        "a lowered quota forgets nothing that was used: five were"
    );
}

/// Changes every form of an algorithm to its other forms, with two more units each time.
#[test]
fn used_units_survive_every_change_of_an_algorithms_options() {
    let families: [&[&str]; 5] = [
        &[
            "quota: L/300d, algorithm: gcra",
            "quota: 1/200d, burst: L, algorithm: gcra",
            "quota: L/366d, algorithm: gcra",
        ],
        &[
            "quota: L/300d, algorithm: token_bucket",
            "capacity: L, refill: 5 per 100d, algorithm: token_bucket",
            "capacity: L, refill: 3 per 200d, algorithm: token_bucket",
            "quota: 5/100d, burst: L, algorithm: token_bucket",
        ],
        &[
            "quota: L/300d, algorithm: fixed_window",
            "quota: L/200d, algorithm: fixed_window, start: staggered",
            "quota: L/300d, algorithm: fixed_window, start: first_request",
            "quota: L/1y, algorithm: fixed_window, time_zone: Europe/Berlin",
            "quota: L/1y, algorithm: fixed_window, time_zone: Asia/Tokyo",
            "quota: L/1mo, algorithm: fixed_window, anchor: 31",
            "quota: L/1mo, algorithm: fixed_window, anchor: 10",
            "quota: L/366d, algorithm: fixed_window, start: staggered",
            "quota: L/1y, algorithm: fixed_window",
        ],
        &[
            "quota: L/300d, algorithm: sliding_window",
            "quota: L/300d, algorithm: sliding_window, precision: 10",
            "quota: L/300d, algorithm: sliding_window, precision: 10, oldest: whole",
            "quota: L/200d, algorithm: sliding_window, precision: 3600, oldest: ignored",
            "quota: L/366d, algorithm: sliding_window, precision: 6, oldest: whole",
            "quota: L/300d, algorithm: sliding_window, oldest: whole",
        ],
        &[
            "quota: L/300d, algorithm: sliding_log",
            "quota: L/1h, algorithm: sliding_log",
            "quota: L/366d, algorithm: sliding_log",
        ],
    ];
    for forms in families {
        let config = |form: &str, limit: usize| {
            let policy = form.replace('L', &limit.to_string());
            format!(
                "policies: {{ all: {{ key: constant, {policy} }} }}\n\
                 routes: [{{ upstream: echo, limits: [all] }}]\n"
            )
        };
        let gateway = Gateway::start(&config(forms[0], 5));
        assert_eq!(admitted(&gateway), 5);
        let changed = forms.iter().cycle().take(2 * forms.len()).skip(1);
        for (limit, form) in (7..).step_by(2).zip(changed) {
            gateway.reload(&config(form, limit));
            assert_eq!(admitted(&gateway), 2, "{form}, {limit}");
        }
    }
}

#[test]
fn a_file_written_in_place_is_noticed() {
    let gateway = Gateway::start(&with_quota("1/300d"));
    assert_eq!(admitted(&gateway), 1);
    fs::write(
        gateway.config_path(),
        with_free_ports(&with_quota("3/300d")),
    )
    .expect("the file is writable");
    wait_for("the reload", || {
        (gateway.reloads("success") == 1).then_some(())
    });
    assert_eq!(admitted(&gateway), 2);
}

#[test]
fn the_link_swap_of_a_config_map_is_noticed() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    // The kubelet's layout: the file links into `..data`, which links to a version.
    let version = |name: &str, quota: &str| {
        fs::create_dir(dir.path().join(name)).expect("the directory is writable");
        let file = dir.path().join(name).join("sluicegate.yaml");
        fs::write(file, with_free_ports(&with_quota(quota))).expect("the directory is writable");
    };
    version("..1", "1/300d");
    version("..2", "3/300d");
    symlink("..1", dir.path().join("..data")).expect("the directory is writable");
    symlink("..data/sluicegate.yaml", dir.path().join("sluicegate.yaml"))
        .expect("the directory is writable");

    let gateway = Gateway::start_with(dir, ["run", "--config", "sluicegate.yaml"]);
    assert_eq!(admitted(&gateway), 1);
    swap_data_link(gateway.dir());
    wait_for("the reload", || {
        (gateway.reloads("success") == 1).then_some(())
    });
    assert_eq!(admitted(&gateway), 2);
}

/// A reload reads the file, then waits for a silent Redis, and only then watches the file.
#[test]
fn a_new_file_that_changes_while_a_reload_waits_is_noticed() {
    let gateway = Gateway::start(&with_quota("1/300d"));
    let keys = gateway.dir().join("keys.json");
    let set = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/jwt/jwks.json");
    fs::copy(set, &keys).expect("the directory is writable");
    let silent = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    let port = silent.local_addr().expect("it is bound").port();
    gateway.replace_config(&format!(
        "store: {{ redis: {{ url: 'redis://127.0.0.1:{port}', startup_timeout: 3s }} }}
jwt: {{ keys: [{{ jwks_file: keys.json }}] }}
policies: {{ all: {{ key: jwt:sub, store: redis, quota: 1/1h }} }}
routes: [{{ upstream: echo, limits: [all] }}]
"
    ));
    let _connected = silent.accept().expect("the reload connects to Redis");
    fs::write(&keys, "{}").expect("the directory is writable");
    gateway.wait_for_log("keys.json: it isn't a JSON Web Key Set");
}

fn swap_data_link(dir: &Path) {
    symlink("..2", dir.join("..data_tmp")).expect("the directory is writable");
    fs::rename(dir.join("..data_tmp"), dir.join("..data")).expect("the directory is writable");
    fs::remove_dir_all(dir.join("..1")).expect("the directory is writable");
}

#[test]
fn sighup_reloads() {
    let gateway = Gateway::start(&with_quota("1/300d"));
    gateway.signal(Signal::HUP);
    wait_for("the reload", || {
        (gateway.reloads("success") >= 1).then_some(())
    });
    assert_eq!(admitted(&gateway), 1);
    gateway.signal(Signal::HUP);
    wait_for("the second reload", || {
        (gateway.reloads("success") >= 2).then_some(())
    });
    assert_eq!(admitted(&gateway), 0, "the bucket is still spent");
}

#[test]
fn a_bad_file_changes_nothing_and_is_reported() {
    let gateway = Gateway::start(&with_quota("2/300d"));
    assert_eq!(get(gateway.address(), "/").status, 200);
    for (number, bad) in [
        "routes: [{ upstream: nowhere }]\n",
        "routes: [\n",
        "rotues: []\n",
        "policies: { all: { quota: 5 } }\nroutes: [{ upstream: echo, limits: [all] }]\n",
        "",
        " \r\r#\r\r\r\r",
    ]
    .iter()
    .enumerate()
    {
        gateway.replace_config(bad);
        wait_for("the failure", || {
            (gateway.reloads("failure") > number as u64).then_some(())
        });
        assert_eq!(
            gateway.metric("sluicegate_config_last_reload_successful"),
            Some(0.0)
        );
    }
    gateway.wait_for_log("nowhere");
    assert_eq!(
        admitted(&gateway),
        1,
        "the old rules serve on, with their buckets"
    );

    gateway.reload(&with_quota("3/300d"));
    assert_eq!(
        gateway.metric("sluicegate_config_last_reload_successful"),
        Some(1.0)
    );
    assert_eq!(admitted(&gateway), 1);
}

#[test]
fn a_file_that_is_gone_changes_nothing() {
    let gateway = Gateway::start(&with_quota("2/300d"));
    fs::remove_file(gateway.config_path()).expect("the directory is writable");
    gateway.signal(Signal::HUP);
    wait_for("the failure", || {
        (gateway.reloads("failure") >= 1).then_some(())
    });
    assert_eq!(admitted(&gateway), 2);
}

#[test]
fn a_request_in_flight_ends_as_it_began() {
    let origin = Origin::start(|_| {
        let mut steps = vec![Step::Pause(std::time::Duration::from_millis(600))];
        steps.extend(ok("late"));
        steps
    });
    let with_upstream = |url: &str| format!("routes: [{{ upstream: \"{url}\" }}]\n");
    let gateway = Gateway::start(&with_upstream(&origin.url()));
    let mut connection = Connection::open(gateway.address());
    connection.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    wait_for("the request", || {
        (!origin.requests().is_empty()).then_some(())
    });
    let refusing = origin::refusing_address();
    gateway.reload(&with_upstream(&format!("http://{refusing}")));
    assert_eq!(connection.receive().text(), "late");
    let next = connection.exchange("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(
        next.status, 502,
        "the connection is served by the new rules"
    );
}

/// The first request of a route ends under a replaced ruleset.
#[test]
fn requests_that_end_after_a_reload_are_counted_without_their_ruleset() {
    let (release, held) = mpsc::channel::<()>();
    let held = Mutex::new(held);
    let origin = Origin::start(move |_| {
        let released = held.lock().expect("no holder panics");
        released.recv_timeout(DEADLINE).expect("the test goes on");
        ok("late")
    });
    let config = |more: &str| {
        format!(
            "upstreams: {{ origin: {{ endpoints: ['{}'] }} }}\n\
             routes:\n  - {{ name: slow, match: {{ path: /slow }}, upstream: origin }}\n{more}",
            origin.url()
        )
    };
    // The series of a removed route end with the last ruleset that has it.
    let removed = "  - { name: removed, match: { path: /removed }, upstream: echo }\n";
    let gateway = Gateway::start(&config(removed));
    assert_eq!(get(gateway.address(), "/removed").status, 200);
    let mut slow = Connection::open(gateway.address());
    slow.send("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n");
    wait_for("the request", || {
        (!origin.requests().is_empty()).then_some(())
    });
    gateway.reload(&config(""));
    release.send(()).expect("the origin waits");
    assert_eq!(slow.receive().text(), "late");
    wait_for("the first ruleset to go", || {
        let class = "{route=\"removed\",class=\"2xx\"}";
        let series = gateway.metric(&format!("sluicegate_route_requests_total{class}"));
        series.is_none().then_some(())
    });
    let counts = || {
        [
            "sluicegate_route_requests_total{route=\"slow\",class=\"2xx\"}",
            "sluicegate_http_request_duration_seconds_count{route=\"slow\"}",
        ]
        .map(|series| gateway.metric(series))
    };
    assert_eq!(counts(), [Some(1.0); 2]);
    gateway.reload(&config(removed));
    release.send(()).expect("the origin waits");
    assert_eq!(get(gateway.address(), "/slow").text(), "late");
    wait_for("the second count", || {
        (counts() == [Some(2.0); 2]).then_some(())
    });
}

/// 200 reloads during requests: every response comes from one of both versions, and a quota that
/// neither changes is spent exactly once.
#[test]
fn many_reloads_under_load_fail_no_request_and_lose_no_charge() {
    const QUOTA: usize = 300;
    let origin = Origin::plain();
    let config = |tier: usize| {
        format!(
            "upstreams: {{ origin: {{ endpoints: [\"{url}\"] }} }}
policies:
  counted: {{ key: constant, quota: {QUOTA}/300d }}
  ample: {{ key: client_ip, quota: 100000000/1s }}
routes:
  - match: {{ path: /counted }}
    upstream: origin
    limits: [ample, counted]
    request: {{ set_headers: {{ x-tier: \"{tier}\" }} }}
  - match: {{ path: \"/**\" }}
    upstream: origin
    limits: [ample]
",
            url = origin.url()
        )
    };
    let gateway = Gateway::start(&config(0));
    let (done, served, counted) = (
        AtomicBool::new(false),
        AtomicUsize::new(0),
        AtomicUsize::new(0),
    );
    thread::scope(|scope| {
        for client in 0..4 {
            let (gateway, done, served, counted) = (&gateway, &done, &served, &counted);
            scope.spawn(move || {
                let mut connection = Connection::open(gateway.address());
                let mut asked = 0_usize;
                while !done.load(Ordering::Relaxed) {
                    asked += 1;
                    let path = if asked % 4 == client {
                        "/counted"
                    } else {
                        "/free"
                    };
                    let answer =
                        connection.exchange(&format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
                    match (path, answer.status) {
                        ("/counted", 200) => _ = counted.fetch_add(1, Ordering::Relaxed),
                        ("/counted", 429) | ("/free", 200) => {}
                        _ => panic!("{path}: {answer:?}"),
                    }
                    served.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let reloading =
            scope.spawn(|| (1..=200).for_each(|number| gateway.reload(&config(number))));
        let reloaded = reloading.join();
        done.store(true, Ordering::Relaxed);
        reloaded.expect("every reload succeeds");
    });
    assert!(served.into_inner() > 4 * QUOTA, "there was load");
    assert_eq!(counted.into_inner(), QUOTA);
    assert!(origin.malformed().is_empty());
}

/// A replaced ruleset is dropped outside the workers, within about a second.
#[test]
fn a_replaced_ruleset_is_dropped() {
    const ROUTES: usize = 1_000;
    const RELOADS: usize = 30;
    let config = |quota| with_policies(ROUTES, quota, "");
    let gateway = Gateway::start(&config(1));
    let reload = |quota| {
        gateway.reload(&config(quota));
        // The worker now has the newest ruleset. On a busy machine a reload outlasts the time that
        // a client may keep a connection without a request.
        assert!([200, 429].contains(&get(gateway.address(), "/7").status));
    };
    (2..5).for_each(reload);
    let before = gateway.resident();
    (5..5 + RELOADS).for_each(reload);
    // Thirty rulesets would take two and a half times as much. The last ones live a moment longer,
    // and the allocator keeps some freed memory.
    wait_for("what ran before to be given back", || {
        let grown = gateway.resident().saturating_sub(before);
        (grown < before).then_some(())
    });
}

/// A WebSocket keeps only the parts of its ruleset that its end needs.
#[test]
fn a_websocket_does_not_keep_a_replaced_ruleset() {
    const ROUTES: usize = 1_000;
    const RELOADS: usize = 20;
    let origin = Origin::raw(|mut stream| {
        let mut bytes = [0; 4096];
        let _ = stream.read(&mut bytes);
        let switched = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\
            Connection: upgrade\r\nSec-WebSocket-Accept: x\r\n\r\n";
        let _ = stream.write_all(switched.as_bytes());
        while let Ok(length @ 1..) = stream.read(&mut bytes) {
            let _ = stream.write_all(&bytes[..length]);
        }
    });
    let chat = format!(
        "  - {{ name: chat, match: {{ path: /chat }}, upstream: '{}' }}\n",
        origin.url()
    );
    let config = |quota| with_policies(ROUTES, quota, &chat);
    let gateway = Gateway::start(&config(1));
    let open = || {
        let mut tunnel = Connection::open(gateway.address());
        tunnel.send(
            "GET /chat HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
        );
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.extend(tunnel.read_exactly(1));
        }
        tunnel
    };
    let series = "sluicegate_route_requests_total{route=\"chat\",class=\"1xx\"}";
    let ended = |count: usize| {
        wait_for("the ends to be counted", || {
            gateway
                .metric(series)
                .filter(|ended| *ended == count as f64)
        })
    };
    // Series pass from route to route.
    drop(open());
    ended(1);
    let mut tunnels = Vec::new();
    let mut reload = |quota| {
        gateway.reload(&config(quota));
        tunnels.push(open());
    };
    (2..5).for_each(&mut reload);
    let before = gateway.resident();
    (5..5 + RELOADS).for_each(&mut reload);
    wait_for("what ran before to be given back", || {
        let grown = gateway.resident().saturating_sub(before);
        (grown < before).then_some(())
    });
    let count = tunnels.len();
    for mut tunnel in tunnels {
        tunnel.send("still open");
        assert_eq!(tunnel.read_exactly(10), b"still open");
    }
    ended(1 + count);
}

/// A configuration with an access log in this format at `path`, and a route that answers itself.
fn with_log(format: &str, path: &str) -> String {
    format!(
        "access_log: {{ format: {format}, path: {path} }}\nroutes: [{{ upstream: echo }}]\nshutdown: {{ delay: 0s }}\n"
    )
}

/// Requests `path`, and waits for its line in that file.
fn logged(gateway: &Gateway, path: &str, file: &str) -> String {
    get(gateway.address(), path);
    wait_for(path, || line_of(gateway, path, file))
}

fn line_of(gateway: &Gateway, path: &str, file: &str) -> Option<String> {
    let text = fs::read_to_string(gateway.dir().join(file)).unwrap_or_default();
    let mut lines = text.lines().filter(|line| line.contains(path));
    let line = lines.next()?.to_owned();
    assert_eq!(lines.next(), None, "{path} is logged once");
    Some(line)
}

#[test]
fn the_access_log_is_exchanged_for_another() {
    let mut gateway = Gateway::start("routes: [{ upstream: echo }]\nshutdown: { delay: 0s }\n");
    get(gateway.address(), "/unlogged");
    for (number, (format, file)) in [
        ("json", "one.log"),
        ("combined", "one.log"),
        ("combined", "two.log"),
        ("json", "one.log"),
    ]
    .iter()
    .enumerate()
    {
        gateway.reload(&with_log(format, file));
        let line = logged(&gateway, &format!("/request-{number}"), file);
        assert_eq!(line.starts_with('{'), *format == "json", "{line}");
    }
    gateway.reload(&with_log("disabled", "one.log"));
    get(gateway.address(), "/unlogged");
    gateway.signal(Signal::TERM);
    assert!(gateway.wait().success());
    let read = |file| fs::read_to_string(gateway.dir().join(file)).expect("the log is there");
    assert_eq!(read("one.log").lines().count(), 3);
    assert_eq!(read("two.log").lines().count(), 1);
}

#[test]
fn an_access_log_that_cannot_be_opened_changes_nothing() {
    let gateway = Gateway::start(&with_log("json", "one.log"));
    gateway.replace_config(
        &with_log("json", "nowhere/two.log").replace("echo", "\"http://127.0.0.1:1\""),
    );
    wait_for("the failure", || {
        (gateway.reloads("failure") == 1).then_some(())
    });
    gateway.wait_for_log("nowhere/two.log");
    let line = logged(&gateway, "/still-here", "one.log");
    assert!(line.contains("200"), "the old route serves on: {line}");
}

/// A response begins under one access log and ends under another, after SIGTERM: its line is in the
/// first log.
#[test]
fn a_request_in_flight_is_logged_in_the_log_it_began_with() {
    let origin = Origin::start(|_| {
        let mut steps = vec![Step::Pause(std::time::Duration::from_millis(600))];
        steps.extend(ok("late"));
        steps
    });
    let with_log = |file| with_log("json", file).replace("echo", &format!("\"{}\"", origin.url()));
    let mut gateway = Gateway::start(&with_log("one.log"));
    let mut connection = Connection::open(gateway.address());
    connection.send("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n");
    wait_for("the request", || {
        (!origin.requests().is_empty()).then_some(())
    });
    gateway.reload(&with_log("two.log"));
    gateway.signal(Signal::TERM);
    assert_eq!(connection.receive().text(), "late");
    assert!(gateway.wait().success());
    let found = ["one.log", "two.log"].map(|file| line_of(&gateway, "/slow", file).is_some());
    assert_eq!(found, [true, false]);
}

/// A policy with dots in its name beside an inline limit, and a route with the former owner of
/// top-level limits as its name. These limits once shared a name.
#[test]
fn limits_in_place_share_no_bucket_with_others_after_a_reload() {
    let beside_a_policy = |quota: &str| {
        format!(
            "policies: {{ api.0: {{ key: client_ip, quota: {quota} }} }}\n\
             routes: [{{ name: api, upstream: echo, limits: [{{ key: client_ip, quota: 3/300d }}, api.0] }}]\n"
        )
    };
    let beside_the_top_level = |quota: &str| {
        format!(
            "limits: [{{ key: client_ip, quota: {quota} }}]\n\
             routes: [{{ name: limits, upstream: echo, limits: [{{ key: client_ip, quota: 3/300d }}] }}]\n"
        )
    };
    let both: [&dyn Fn(&str) -> String; 2] = [&beside_a_policy, &beside_the_top_level];
    for config in both {
        let gateway = Gateway::start(&config("5/300d"));
        assert_eq!(get(gateway.address(), "/").status, 200);
        // One table stays, the other is replaced.
        gateway.reload(&config("4/300d"));
        assert_eq!(admitted(&gateway), 2, "one of three was used");
        gateway.reload(&config("6/300d"));
        assert_eq!(admitted(&gateway), 0);
        assert_eq!(get(gateway.address(), "/").status, 429);
    }
}

#[test]
fn a_reload_logs_the_buckets_that_it_changes_and_the_warnings() {
    let limits = |policies: &str, limits: &str| {
        format!("policies: {{ {policies} }}\nroutes: [{{ upstream: echo, limits: [{limits}] }}]\n")
    };
    let old = limits(
        "a: { quota: 5/1h, on_full: strict }, b: { quota: 5/1h, on_full: strict }, c: { quota: 5/1h }",
        "a, b, c",
    );
    let gateway = Gateway::start(&old);
    gateway.reload(&limits(
        "a: { quota: 9/1h }, b: { quota: 5/1h, key: route, on_full: strict }",
        "a, b",
    ));
    for line in [
        "the reload changes buckets policy=\"a\" key=\"client_ip\" outcome=\"rescaled\" reason=\"5/1h becomes 9/1h\"",
        "the reload changes buckets policy=\"b\" key=\"client_ip\" outcome=\"reset\" reason=\"the key becomes route or client_ip\"",
        "the reload changes buckets policy=\"c\" key=\"client_ip\" outcome=\"ends\"",
        "code=\"small-quota\" key=\"policies.a.quota\"",
    ] {
        gateway.wait_for_log(line);
    }
    assert!(
        !gateway.log().contains("outcome=\"new\""),
        "{}",
        gateway.log()
    );
}

#[test]
fn a_start_logs_the_warnings() {
    let gateway = Gateway::start("routes: [{ upstream: echo, limits: [{ quota: 5/15m }] }]\n");
    gateway.wait_for_log("code=\"small-quota\"");
}

/// Also if a reload because of that file brings the key.
#[test]
fn each_key_for_tokens_that_is_not_used_is_logged() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/config/lints/jwks");
    let gateway = Gateway::start(&with_quota("1/300d"));
    let keys = gateway.dir().join("keys.json");
    fs::copy(fixtures.join("sound.json"), &keys).expect("the directory is writable");
    gateway.reload(
        "jwt: { keys: [{ jwks_file: keys.json }] }
limits: [{ key: jwt:sub, quota: 100/1m }]
routes: [{ upstream: echo }]
",
    );
    assert!(!gateway.log().contains("unusable-key"), "{}", gateway.log());
    fs::copy(fixtures.join("some.json"), &keys).expect("the directory is writable");
    gateway.wait_for_log("key `enc-1`: its `use` is `enc`: expected sig");
    gateway.wait_for_log("key 4: its `crv` is `P-384`: expected P-256");
}

#[test]
fn a_warning_that_stays_is_logged_once() {
    let config = |comment: &str, other: &str| {
        format!("{comment}routes:\n  - {{ upstream: echo, limits: [{{ quota: 5/15m }}{other}] }}\n")
    };
    let warning =
        |limit: usize| format!("code=\"small-quota\" key=\"routes[0].limits[{limit}].quota\"");
    let gateway = Gateway::start(&config("", ""));
    gateway.wait_for_log(&warning(0));
    gateway.reload(&config("# moved\n", ", { quota: 4/15m }"));
    gateway.wait_for_log(&warning(1));
    let log = gateway.log();
    assert_eq!(log.matches(&warning(0)).count(), 1, "{log}");
    assert!(
        log.matches("the limit of open files is low").count() <= 1,
        "{log}"
    );
}

#[test]
fn each_reason_of_a_failed_reload_is_a_log_line_with_time_and_level() {
    let gateway = Gateway::start(&with_quota("2/300d"));
    let wrong = "policies: { all: { key: constant, quota: soon } }\nroutes: [{ upstreem: echo }]\n";
    gateway.replace_config(wrong);
    gateway.wait_for_log("the configuration is not reloaded");
    let log = gateway.log();
    let errors: Vec<_> = log.lines().filter(|line| line.contains("ERROR")).collect();
    let names = |text: &str| errors.iter().filter(|line| line.contains(text)).count();
    assert_eq!(names("key=\"policies.all.quota\" line="), 1, "{log}");
    assert_eq!(names("upstreem"), 1, "{log}");
    assert!(
        log.lines()
            .all(|line| line.starts_with("20") && line.contains("Z ")),
        "{log}"
    );
}

/// The last reload, as `/v1/reloads` has it.
fn last_reload(gateway: &Gateway) -> Value {
    AdminClient::writer(gateway).read("/v1/reloads")["reloads"][0].take()
}

#[test]
fn a_policy_that_comes_back_has_its_buckets_bans_and_grants() {
    let config = |quota: &str, key: &str| {
        let penalised = "quota: 1/1h, penalty: { strikes: 1, within: 1h, for: [1d] }".to_owned();
        let text = steering::config(&[penalised, format!("quota: {quota}")]);
        text.replace("p1: { key: \"header:x-key\"", &format!("p1: {{ key: {key}"))
    };
    let (few, without) = (
        config("3/300d", "header:x-key"),
        format!("{TOKENS}routes: [{{ upstream: echo }}]\n"),
    );
    let gateway = Gateway::start(&few);
    let status = |path: &str, key: &str| steering::ask(&gateway, path, key).status;
    assert_eq!(["/0", "/0"].map(|path| status(path, "c")), [200, 429]);
    steering::steer(&gateway, "ban", "p1", json!({ "for": "1d" }));
    assert_eq!([status("/1", "a"), status("/1", "b")], [429, 200]);
    let returned = || {
        let wait = steering::ask(&gateway, "/0", "c");
        let wait = wait.header("retry-after").expect("a wait").to_owned();
        assert!(
            (3_600..=86_400).contains(&wait.parse::<u64>().expect("seconds")),
            "a ban: {wait}"
        );
        assert_eq!(status("/1", "a"), 429);
    };
    gateway.reload(&without);
    assert_eq!(["/0", "/1"].map(|path| status(path, "a")), [200, 200]);
    let series = "sluicegate_limit_buckets{policy=\"p1\"}";
    wait_for("its series to go", || {
        gateway.metric(series).is_none().then_some(())
    });
    gateway.reload(&few);
    assert_eq!(last_reload(&gateway)["buckets"], json!([]), "all survive");
    returned();
    assert_eq!(status("/1", "b"), 200);
    // A quota that has changed meanwhile keeps used units.
    gateway.reload(&without);
    gateway.reload(&config("4/300d", "header:x-key"));
    assert_eq!(last_reload(&gateway)["buckets"][0]["outcome"], "rescaled");
    returned();
    assert_eq!(steering::admitted(&gateway, "/1", "b"), 2);
    // Another key has other buckets.
    gateway.reload(&config("4/300d", "constant"));
    assert_eq!(status("/1", "b"), 200);
    gateway.reload(&config("4/300d", "header:x-key"));
    assert_eq!(status("/1", "b"), 429);
    returned();
}

#[test]
fn files_of_clients_are_named_like_lists() {
    let gateway = Gateway::start(&format!("{TOKENS}routes: [{{ upstream: echo }}]\n"));
    let path = gateway.dir().join("clients.csv");
    fs::write(&path, "key,name\nk-a,a\nk-b,b\n").expect("written");
    let config = "clients: { identify_by: bearer, files: [clients.csv], unknown: anonymous }
routes: [{ upstream: echo, limits: [{ key: client, quota: 9/1h }] }]
";
    gateway.reload(&format!("{TOKENS}{config}"));
    assert_eq!(last_reload(&gateway)["lists"], json!([]), "new ones");
    let warning = "the list clients.csv is empty now, and had 3 entries";
    for (text, warnings) in [
        ("key,name\nk-a,a\nk-c,c\nk-d,d\n", json!([])),
        ("key,name\n", json!([warning])),
    ] {
        let before = gateway.reloads("success");
        fs::write(&path, text).expect("written");
        wait_for("the reload", || {
            (gateway.reloads("success") > before).then_some(())
        });
        let reload = last_reload(&gateway);
        let found = (&reload["lists"], &reload["warnings"]);
        assert_eq!(found, (&json!(["clients.csv"]), &warnings));
    }
}

#[test]
fn a_list_that_changes_is_named_and_an_emptied_one_is_a_warning() {
    let gateway = Gateway::start(&format!("{TOKENS}routes: [{{ upstream: echo }}]\n"));
    let [deny, keys] = ["deny.txt", "keys.txt"].map(|name| gateway.dir().join(name));
    let write = |path: &Path, text: &str| fs::write(path, text).expect("written");
    write(&deny, "# nobody\n127.0.0.0/8\n::1\n");
    write(&keys, "one\n");
    gateway.reload(&format!(
        "{TOKENS}routes:
  - {{ match: {{ path: /a, headers: {{ x-key: {{ file: keys.txt }} }} }}, upstream: echo }}
  - {{ access: {{ deny: [{{ cidr: [{{ file: deny.txt }}] }}] }}, upstream: echo }}
"
    ));
    assert_eq!(last_reload(&gateway)["lists"], json!([]), "new ones");
    assert_eq!(get(gateway.address(), "/").status, 403);
    let reloaded = |path: &Path, text: &str| {
        let before = gateway.reloads("success");
        write(path, text);
        wait_for("the reload", || {
            (gateway.reloads("success") > before).then_some(())
        });
        last_reload(&gateway)
    };
    let reload = reloaded(&keys, "two\nthree\n");
    assert_eq!(
        (&reload["lists"], &reload["warnings"]),
        (&json!(["keys.txt"]), &json!([]))
    );
    let reload = reloaded(&deny, "# nobody\n");
    assert_eq!(reload["lists"], json!(["deny.txt"]));
    let warning = "the list deny.txt is empty now, and had 2 entries";
    assert_eq!(reload["warnings"], json!([warning]));
    assert!(gateway.wait_for_log(warning).contains("WARN"));
}
