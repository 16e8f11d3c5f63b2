//! Proxies whose policies are synchronised through one redis-server.

use std::net::SocketAddr;

use super::client::get;
use super::gateway::Gateway;
use super::wait_for;

/// A proxy that echoes, with a store at this address. Requests to `/0` meet the first of the policies, with the bucket of the
/// field `x-key`, and so on.
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

/// Waits until it has spoken to Redis.
pub fn wait_up(gateway: &Gateway) {
    wait_for("the store to be up", || {
        let ready = get(gateway.admin, "/readyz").text();
        ready.contains("redis: up").then_some(())
    });
    after_rounds(gateway, 1);
}

/// How many rounds ended so: `ok`, `cut` or `failed`.
pub fn rounds(gateway: &Gateway, result: &str) -> u64 {
    let series = format!("sluicegate_sync_rounds_total{{result=\"{result}\"}}");
    gateway.metric(&series).unwrap_or_default() as u64
}

/// Waits until so many rounds were made from now on.
pub fn after_rounds(gateway: &Gateway, count: u64) {
    let before = rounds(gateway, "ok");
    wait_for("rounds", || {
        (rounds(gateway, "ok") >= before + count).then_some(())
    });
}
