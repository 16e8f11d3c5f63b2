//! More requests at once than calls may be under way: they wait for their turn, and the quota holds.

use std::fmt::Write;
use std::thread;

use crate::support::client::{Connection, get, run};
use crate::support::gateway::Gateway;
use crate::support::redis::RedisServer;
use crate::support::shared::{store, wait_up};

/// The requests of a list.
const LISTED: usize = 1_000;

fn lists(quota: usize, on_store_error: &str) -> String {
    format!(
        "workers: 1
client_ip: {{ trusted_proxies: [127.0.0.1] }}
policies:
  keys:
    key: header:x-key
    quota: {quota}/30d
    algorithm: fixed_window
    store: redis
    on_store_error: {on_store_error}
  slots: {{ key: header:x-key, algorithm: concurrency, max: 4000, store: redis, on_store_error: {on_store_error} }}
routes:
  - {{ match: {{ path: /ask }}, upstream: decide_batch }}
  - {{ upstream: decide, limits: [keys, slots] }}
"
    )
}

/// Asks about a request of each of these keys, and returns how many are allowed.
fn allowed(gateway: &Gateway, key: impl Fn(usize) -> String) -> usize {
    let mut list = String::from("[");
    for place in 0..LISTED {
        let comma = if place > 0 { "," } else { "" };
        let key = key(place);
        let item = write!(
            list,
            r#"{comma}{{"path":"/","headers":{{"x-key":"{key}"}}}}"#
        );
        item.expect("text");
    }
    list += "]";
    let length = list.len();
    let post = format!("POST /ask HTTP/1.1\r\nhost: a\r\ncontent-length: {length}\r\n\r\n{list}");
    let answer = Connection::open(gateway.address()).exchange(&post);
    answer.text().matches(r#""status":200"#).count()
}

/// Two lists at once: more requests than calls of a connection may be under way.
fn two(gateway: &Gateway) -> usize {
    let key = |place| format!("{place}");
    thread::scope(|scope| {
        let other = scope.spawn(|| allowed(gateway, key));
        allowed(gateway, key) + other.join().expect("an answer")
    })
}

#[test]
fn lists_within_their_quota_are_admitted_and_none_beyond_it() {
    let redis = RedisServer::start();
    for (on_store_error, quota) in [("refuse", 2), ("local", 1)] {
        let prefix = format!("prefix: \"{on_store_error}:\", timeout");
        let store = store(redis.address).replace("timeout", &prefix);
        let gateway = Gateway::start(&format!("{store}{}", lists(quota, on_store_error)));
        wait_up(&gateway);
        assert_eq!(two(&gateway), quota * LISTED, "{on_store_error}");
        assert!(!get(gateway.admin, "/readyz").text().contains("crowded"));
    }
}

#[test]
fn a_burst_of_one_client_is_admitted_up_to_the_quota_by_a_healthy_server() {
    let redis = RedisServer::start();
    for on_store_error in ["local", "refuse"] {
        let prefix = format!("prefix: \"{on_store_error}:\", timeout");
        let store = store(redis.address).replace("timeout", &prefix);
        let gateway = Gateway::start(&format!(
            "{store}policies: {{ p: {{ quota: 1000/30d, store: redis, on_store_error: {on_store_error} }} }}
routes: [{{ upstream: echo, limits: [p] }}]
"
        ));
        wait_up(&gateway);
        let load = [
            "--clients=30",
            "--max-concurrent-streams=100",
            "--requests=3000",
        ];
        let output = run("h2load", &[&load[..], &[&gateway.url("/")]].concat());
        let statuses = "status codes: 1000 2xx, 0 3xx, 2000 4xx, 0 5xx";
        assert!(
            output.stdout.contains(statuses),
            "{on_store_error}: {output}"
        );
    }
}
