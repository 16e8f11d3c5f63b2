//! `connections` of an upstream: how many there may be, how many requests wait for one, and how long
//! and how often they are used again.

use crate::config::sections::prelude::*;
use crate::upstream::{ConnectionBound, ConnectionLimits};

/// `connections` of an upstream.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
pub struct UpstreamConnections {
    /// The most requests in flight at each address, over all workers; over HTTP/1.1 also the most
    /// connections to it. Further requests wait. 1 to 1000000. Unless given, the upstream has its share of
    /// the open files.
    pub max: Option<Located<ConnectionCount>>,
    /// The most requests that wait, 0 to 100000; the next is answered 503 at once. Needs `max`.
    pub max_pending: Located<PendingCount>,
    /// How long a request may wait, `1ms` to `1h`; 503 beyond. `timeouts.connect` unless given. Needs
    /// `max`.
    pub max_wait: Option<Located<PendingWait>>,
    /// The age from which a connection is not used again, give or take 10 %, `1s` to `1w`.
    pub max_lifetime: Located<ConnectionLifetime>,
    /// The most requests over one connection, 1 to 4294967295.
    pub max_requests: Located<ConnectionRequests>,
}

/// Requests in flight at an address.
pub type ConnectionCount = Whole<1, 1_000_000>;
/// Requests that wait.
pub type PendingCount = Whole<0, 100_000, 1_024>;
/// The wait of a request.
pub type PendingWait = Duration<1, HOUR, SECOND>;
/// The life of a connection to an endpoint.
pub type ConnectionLifetime = Duration<SECOND, { 7 * DAY }, HOUR>;
/// Requests over a connection to an endpoint.
pub type ConnectionRequests = Whole<1, { u32::MAX as u64 }, 100_000>;

pub(super) fn check(upstream: &Upstream, findings: &Findings<'_>) {
    let connections = &upstream.connections;
    if connections.max.is_some() {
        return findings.extend(idle_wait(upstream));
    }
    for (key, node) in given(options!(connections, max_pending, max_wait)) {
        let finding = no_effect(node, format!("`{key}` without `max`: no request waits")).at_key();
        let help = "add `max`, the most requests in flight at each address, or remove";
        findings.add(finding.help(format!("{help} `{key}`")));
    }
}

/// The finding on a wait that nothing can follow.
fn idle_wait(upstream: &Upstream) -> Option<Finding> {
    let connections = &upstream.connections;
    let (pending, given) = (&connections.max_pending, connections.max_wait.given());
    if let Some(node) = given.filter(|_| pending.get() == 0) {
        let finding = warn_no_effect(node, "`max_wait` where no request may wait").at_key();
        let finding = finding.related(pending.node, "no request waits");
        return Some(finding.help("remove it, or raise `max_pending`"));
    }
    let whole = upstream.timeouts.request.as_ref()?;
    let wait = longest_wait(upstream);
    let node = given.unwrap_or(connections.node);
    let message = format!("a request that waits for {wait:?} has no time left");
    let finding = warn_no_effect(node, message).at_key();
    let finding = finding.related(whole.node, "the time for the whole request");
    let help = "write a shorter `max_wait`, or raise `timeouts.request`";
    (wait >= whole.get()).then(|| finding.help(help))
}

fn longest_wait(upstream: &Upstream) -> std::time::Duration {
    let given = upstream.connections.max_wait.as_ref();
    given.map_or(upstream.timeouts.connect.get(), |wait| wait.get())
}

pub(super) fn compile(connections: &UpstreamConnections) -> ConnectionLimits {
    ConnectionLimits {
        max_lifetime: connections.max_lifetime.get(),
        max_requests: connections.max_requests.get(),
    }
}

pub(super) fn compile_bound(upstream: &Upstream) -> Option<ConnectionBound> {
    let connections = &upstream.connections;
    Some(ConnectionBound {
        max: connections.max.as_ref()?.get(),
        max_pending: connections.max_pending.get(),
        max_wait: longest_wait(upstream),
    })
}
