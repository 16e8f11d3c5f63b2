//! The endpoints that drain and the hosts whose health checks fail, for a process that takes over.

use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::{HostState, Upstream};

/// An endpoint that drains, or an unhealthy host of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LeftOut {
    upstream: String,
    endpoint: String,
    /// The host's address.
    unhealthy: Option<String>,
}

impl Upstream {
    /// What gets no requests.
    pub fn left_out(&self) -> Vec<LeftOut> {
        let endpoints = self.status().into_iter();
        let left_out = endpoints.flat_map(|endpoint| {
            let unhealthy = endpoint.hosts.into_iter();
            let unhealthy = unhealthy.filter(|host| host.state == HostState::Unhealthy);
            let unhealthy = unhealthy.map(|host| Some(host.address));
            let drains = endpoint.is_draining.then_some(None);
            let found = drains.into_iter().chain(unhealthy);
            found.map(move |unhealthy| LeftOut {
                upstream: self.name().to_string(),
                endpoint: endpoint.label.to_string(),
                unhealthy,
            })
        });
        left_out.collect()
    }

    /// Gives no requests to what another process has left out, until an operator, or health checks as
    /// often as configured, say otherwise.
    pub fn leave_out(&self, left_out: &[LeftOut]) {
        for one in left_out.iter().filter(|one| *one.upstream == **self.name()) {
            let Some(cluster) = self.cluster() else {
                return;
            };
            match &one.unhealthy {
                None => drop(cluster.set_draining(&one.endpoint, true)),
                Some(host) => cluster.fail_checks(&one.endpoint, host, Instant::now()),
            }
        }
    }
}
