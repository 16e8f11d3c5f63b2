//! The memory that an idle or waiting connection takes in the real binary.

use std::net::TcpStream;

use crate::support::client::Connection;
use crate::support::gateway::Gateway;
use crate::support::wait_for;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

const CONFIG: &str = "workers: 1\nroutes: [{ upstream: echo }]\n";

/// The number of connections, which open files allow. There are many of them because huge pages let
/// memory grow by 2 MiB at a time. Raises the limit of this process and its children.
fn many() -> usize {
    let files = getrlimit(Resource::Nofile);
    let more = Rlimit {
        current: files.maximum,
        ..files
    };
    setrlimit(Resource::Nofile, more).expect("a soft limit may be raised");
    files
        .maximum
        .map_or(4_000, |most| (most / 4).min(4_000) as usize)
}

/// The growth in bytes for each of these connections, which `open` opens.
fn growth<T>(connections: usize, gateway: &Gateway, open: impl Fn() -> T) -> usize {
    let series = format!(
        "sluicegate_connections{{listener=\"{}\"}}",
        gateway.address()
    );
    // What is needed once, whatever the connections.
    drop(open());
    wait_for("the end of the first", || {
        (gateway.metric(&series) == Some(0.0)).then_some(())
    });
    let before = gateway.resident();
    let _open: Vec<T> = (0..connections).map(|_| open()).collect();
    wait_for("the connections", || {
        (gateway.metric(&series) == Some(connections as f64)).then_some(())
    });
    gateway.resident().saturating_sub(before) / connections
}

/// One key in a thousand may find no room, by chance some more.
#[test]
fn a_table_keeps_as_many_keys_as_max_keys_says() {
    const KEYS: usize = 10_000;
    let gateway = Gateway::start(&format!(
        "policies: {{ keys: {{ key: header:x-key, quota: 2/300d, max_keys: {KEYS} }} }}
routes: [{{ upstream: echo, limits: [keys] }}]
"
    ));
    let mut connection = Connection::open(gateway.address());
    for key in 0..KEYS {
        let request = format!("GET / HTTP/1.1\r\nHost: a\r\nx-key: {key}\r\n\r\n");
        assert_eq!(connection.exchange(&request).status, 200);
    }
    let kept = gateway.metric("sluicegate_limit_buckets{policy=\"keys\"}");
    let kept = kept.expect("the policy has buckets");
    assert!(kept >= 0.998 * KEYS as f64, "{kept}");
}

/// The connection once held a buffer of 8 KiB, and room for every protocol.
#[test]
fn a_silent_connection_takes_little_memory() {
    let connections = many();
    let gateway = Gateway::start(CONFIG);
    let bytes = growth(connections, &gateway, || {
        TcpStream::connect(gateway.address()).expect("it listens")
    });
    assert!(bytes < 6 * 1024, "{bytes}");
}

/// The connection once held two buffers, and room for a request in progress.
#[test]
fn a_connection_between_requests_takes_little_memory() {
    let connections = many();
    let gateway = Gateway::start(CONFIG);
    let bytes = growth(connections, &gateway, || {
        let mut connection = Connection::open(gateway.address());
        assert_eq!(
            connection
                .exchange("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
                .status,
            200
        );
        connection
    });
    assert!(bytes < 7 * 1024, "{bytes}");
}

/// Waiting requests keep only their connections and heads.
#[test]
fn a_delayed_request_takes_little_memory() {
    waiting_costs_little(
        "line",
        "policies: { line: { algorithm: leaky_bucket, quota: 10000/1h, queue: 10000, max_wait: 1h } }
routes: [{ upstream: echo, limits: [line] }]
",
    );
}

/// The second request holds the only permit for an hour.
#[test]
fn a_request_that_waits_for_a_permit_takes_little_memory() {
    waiting_costs_little(
        "slots",
        "policies:
  slots: { algorithm: concurrency, max: 1, queue: 10000, max_wait: 1h }
  calm: { algorithm: leaky_bucket, quota: 1/1h, queue: 10000, max_wait: 1h }
routes: [{ upstream: echo, limits: [slots, calm] }]
",
    );
}

fn waiting_costs_little(policy: &str, config: &str) {
    let connections = many();
    let gateway = Gateway::start(&format!("workers: 1\n{config}"));
    let bytes = growth(connections, &gateway, || {
        let mut connection = Connection::open(gateway.address());
        connection
            .send("GET / HTTP/1.1\r\nHost: a\r\nUser-Agent: curl/8.5.0\r\nAccept: */*\r\n\r\n");
        connection
    });
    let waiting = format!("sluicegate_limit_waiting{{policy=\"{policy}\"}}");
    wait_for("all but few to wait", || {
        (gateway.metric(&waiting)? > 0.9 * connections as f64).then_some(())
    });
    println!("{bytes} bytes for each of {connections} requests that wait");
    assert!(bytes < 20 * 1024, "{bytes}");
}
