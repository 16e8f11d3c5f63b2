//! A proxy whose Redis may fail: responses, metrics and log.

use std::time::Duration;

use super::client::{Connection, get};
use super::gateway::Gateway;
use super::{now, wait_for};

/// A bound for calls with the deadline of 100 ms on a busy machine, below that of the tests.
const PATIENCE: Duration = Duration::from_secs(10);

/// A policy in Redis with the default deadline and `on_store_error`.
pub fn config(url: &str) -> String {
    format!(
        "store: {{ redis: {{ url: \"{url}\", readable_keys: true }} }}
policies: {{ shared: {{ store: redis, key: constant, quota: 20/1s }} }}
routes: [{{ upstream: echo, limits: [shared] }}]
"
    )
}

pub fn readyz(gateway: &Gateway) -> String {
    let answer = get(gateway.admin, "/readyz");
    assert_eq!(answer.status, 200, "it serves whatever Redis does");
    answer.text()
}

/// Returns true if `/readyz` and the metrics report that Redis is out of use.
pub fn is_down(gateway: &Gateway) -> bool {
    readyz(gateway).contains("redis: down: ") && gateway.metric("sluicegate_store_up") == Some(0.0)
}

/// The number of Redis calls with this result.
pub fn count(gateway: &Gateway, op: &str, result: &str) -> f64 {
    let series = format!("sluicegate_store_requests_total{{op=\"{op}\",result=\"{result}\"}}");
    gateway.metric(&series).unwrap_or_default()
}

/// The number of warnings about the store.
pub fn warnings(gateway: &Gateway) -> usize {
    let log = gateway.log();
    let of_the_store = |line: &&str| line.contains(" WARN ") && line.contains("tore");
    log.lines().filter(of_the_store).count()
}

/// The number of log lines with this text.
pub fn lines(gateway: &Gateway, text: &str) -> usize {
    gateway.log().matches(text).count()
}

/// Sends a request, and asserts a decision in time.
pub fn ask(connection: &mut Connection) -> (u16, Duration) {
    let started = now();
    let status = connection
        .exchange("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        .status;
    let took = started.elapsed();
    assert!([200, 429].contains(&status), "{status}");
    assert!(took < PATIENCE, "an answer took {took:?}");
    (status, took)
}

/// Waits until `/readyz` and the metrics report no fault, and Redis decides again.
pub fn wait_well(gateway: &Gateway) {
    let mut connection = Connection::open(gateway.address());
    wait_for("the store to be up", || {
        ask(&mut connection);
        let is_up = gateway.metric("sluicegate_store_up") == Some(1.0);
        (is_up && readyz(gateway).contains("redis: up")).then_some(())
    });
    let before = count(gateway, "call", "ok");
    wait_for("a call that is answered", || {
        ask(&mut connection);
        (count(gateway, "call", "ok") > before).then_some(())
    });
}
