//! The state of an upstream, for operators.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::{Balance, RunningTarget, Upstream, UpstreamProtocol};
use crate::telemetry::metrics::EjectionReason;

/// The state of an endpoint.
#[derive(Clone, Debug)]
pub struct EndpointStatus {
    /// Its host and port or its socket, as the configuration writes it.
    pub label: Arc<str>,
    /// Its share of the requests, 1 to 256.
    pub weight: u16,
    /// The version of HTTP, as configured.
    pub protocol: UpstreamProtocol,
    /// It gets no new requests.
    pub is_draining: bool,
    /// The reason why its name does not resolve now.
    pub unresolved: Option<String>,
    /// Its hosts; none before its name has resolved.
    pub hosts: Vec<HostStatus>,
}

/// The state of a host.
#[derive(Clone, Debug)]
pub struct HostStatus {
    /// Its address or socket.
    pub address: String,
    /// Its availability.
    pub condition: HostCondition,
    /// Requests in flight.
    pub in_flight: usize,
    /// Failures in a row.
    pub failures: u32,
}

/// The availability of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostCondition {
    /// In use.
    Available,
    /// Left out for its failures.
    Ejected {
        /// The reason.
        reason: EjectionReason,
        /// The rest of the ejection.
        left: Duration,
    },
    /// Left out while its health checks fail.
    Unhealthy,
    /// In use although it fails, for this reason: the others are no better, or too many are ejected.
    Failing(EjectionReason),
    /// Back from an ejection, without a good answer so far.
    Probation,
    /// Left out because its endpoint drains.
    Draining,
}

impl HostCondition {
    /// True if the host takes requests, and does not fail them.
    pub fn works(self) -> bool {
        matches!(self, Self::Available | Self::Probation)
    }
}

impl Upstream {
    /// The load-balancing algorithm; `None` for a built-in one.
    pub fn balance(&self) -> Option<Balance> {
        match &self.target {
            RunningTarget::Echo | RunningTarget::Status => None,
            RunningTarget::Cluster(cluster) => Some(cluster.balance()),
        }
    }

    /// The state of its endpoints; none for a built-in one.
    pub fn status(&self) -> Vec<EndpointStatus> {
        match &self.target {
            RunningTarget::Echo | RunningTarget::Status => Vec::new(),
            RunningTarget::Cluster(cluster) => cluster.status(Instant::now()),
        }
    }

    /// Begins or ends the draining of an endpoint. Returns true if that changes anything, and `None`
    /// if no endpoint has this label. New requests go elsewhere; requests in flight end.
    pub fn set_draining(&self, label: &str, is_draining: bool) -> Option<bool> {
        match &self.target {
            RunningTarget::Echo | RunningTarget::Status => None,
            RunningTarget::Cluster(cluster) => cluster.set_draining(label, is_draining),
        }
    }

    /// Ends the ejections of an endpoint's addresses, which take their whole share at once. Returns
    /// these addresses, and `None` if no endpoint has this label.
    pub fn readmit(&self, label: &str) -> Option<Vec<String>> {
        match &self.target {
            RunningTarget::Echo | RunningTarget::Status => None,
            RunningTarget::Cluster(cluster) => cluster.readmit(label),
        }
    }
}
