//! What clients, operators and the log see of a proxy whose Redis may fail.

use std::time::Duration;

use super::client::{Connection, get};
use super::gateway::Gateway;
use super::{now, wait_for};

/// The deadline of a call is 100 ms; this is what a busy machine makes of it, and far below what a client would notice
/// as a failure.
const PATIENCE: Duration = Duration::from_secs(1);

/// A policy in Redis with a deadline and an `on_store_error` as they are by default.
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

/// Whether it says that Redis is out of use: in `/readyz`, and in the metrics.
pub fn is_down(gateway: &Gateway) -> bool {
    readyz(gateway).contains("redis: down: ") && gateway.metric("sluicegate_store_up") == Some(0.0)
}

/// How often Redis was asked, or was not, with this result.
pub fn count(gateway: &Gateway, op: &str, result: &str) -> f64 {
    let series = format!("sluicegate_store_requests_total{{op=\"{op}\",result=\"{result}\"}}");
    gateway.metric(&series).unwrap_or_default()
}

/// How many lines warn of the store.
pub fn warnings(gateway: &Gateway) -> usize {
    let log = gateway.log();
    let of_the_store = |line: &&str| line.contains(" WARN ") && line.contains("tore");
    log.lines().filter(of_the_store).count()
}

/// How many lines say so.
pub fn lines(gateway: &Gateway, text: &str) -> usize {
    gateway.log().matches(text).count()
}

/// Asks once, and sees that there is a decision in time.
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

/// Waits until `/readyz` and the metrics say that all is well, and Redis decides again.
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
