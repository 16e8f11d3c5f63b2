//! Proxies whose policies are synchronised through one redis-server.

use std::net::SocketAddr;
use std::time::Duration;

use super::client::get;
use super::gateway::Gateway;
use super::wait_for;

/// An echo proxy with a store at this address. Requests to `/0` meet the first policy, with the
/// bucket of the field `x-key`, and so on.
pub fn config(address: SocketAddr, policies: &[&str]) -> String {
    let all = || policies.iter().enumerate();
    let written = all().map(|(place, policy)| {
        format!("  p{place}: {{ key: \"header:x-key\", on_missing_key: shared, store: redis, {policy} }}\n")
    });
    let routes = all().map(|(place, _)| {
        format!("  - {{ match: {{ path: /{place} }}, upstream: echo, limits: [p{place}] }}\n")
    });
    format!(
        "store: {{ redis: {{ url: \"redis://{address}\", timeout: 1s, secret: sixteen-characters }} }}
policies:
{}routes:
{}",
        written.collect::<String>(),
        routes.collect::<String>()
    )
}

/// Waits until the proxy has a connection to Redis.
pub fn wait_up(gateway: &Gateway) {
    wait_for("the store to be up", || {
        let ready = get(gateway.admin, "/readyz").text();
        ready.contains("redis: up").then_some(())
    });
    after_rounds(gateway, 1);
}

/// The number of rounds with this result: `ok`, `cut` or `failed`.
pub fn rounds(gateway: &Gateway, result: &str) -> u64 {
    let series = format!("sluicegate_sync_rounds_total{{result=\"{result}\"}}");
    gateway.metric(&series).unwrap_or_default() as u64
}

/// Waits for this many further rounds.
pub fn after_rounds(gateway: &Gateway, count: u64) {
    let before = rounds(gateway, "ok");
    wait_for("rounds", || {
        (rounds(gateway, "ok") >= before + count).then_some(())
    });
}

/// An upper bound of the longest round so far, from the histogram's bounds.
pub fn longest_round(gateway: &Gateway) -> Duration {
    const NAME: &str = "sluicegate_sync_round_duration_seconds";
    let metrics = get(gateway.admin, "/metrics").text();
    let value = |line: &str| line.rsplit(' ').next()?.parse::<f64>().ok();
    let count = metrics
        .lines()
        .find(|line| line.starts_with(&format!("{NAME}_count")));
    let all = count.and_then(value).expect("rounds are counted");
    let bounds = metrics.lines().filter_map(|line| {
        let rest = line.strip_prefix(NAME)?.strip_prefix("_bucket{le=\"")?;
        let (bound, _) = rest.split_once('"')?;
        (value(line)? >= all).then(|| bound.parse::<f64>().ok())?
    });
    Duration::from_secs_f64(bounds.fold(f64::INFINITY, f64::min))
}

/// The largest number of these instants within `span` of one another.
pub fn most_within(instants: &[Duration], span: Duration) -> usize {
    let from = |first: &Duration| {
        let until = *first + span;
        let inside = instants.iter().filter(|at| *at >= first && **at < until);
        inside.count()
    };
    instants.iter().map(from).max().unwrap_or(0)
}
