//! The endpoints that drain and the hosts whose health checks fail, for a process that takes over.

use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::{EndpointStatus, HostCondition, Upstream};

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
    pub fn left_out(&self) -> impl Iterator<Item = LeftOut> {
        let status = self.status().into_iter();
        status.flat_map(|endpoint| self.left_out_of(endpoint))
    }

    fn left_out_of(&self, endpoint: EndpointStatus) -> impl Iterator<Item = LeftOut> + use<> {
        let (upstream, label) = (self.name().to_string(), endpoint.label.to_string());
        let unhealthy = endpoint.hosts.into_iter();
        let unhealthy = unhealthy.filter(|host| host.condition == HostCondition::Unhealthy);
        let unhealthy = unhealthy.map(|host| Some(host.address));
        let found = endpoint
            .is_draining
            .then_some(None)
            .into_iter()
            .chain(unhealthy);
        found.map(move |unhealthy| LeftOut {
            upstream: upstream.clone(),
            endpoint: label.clone(),
            unhealthy,
        })
    }

    /// Gives no requests to what another process has left out, until an operator, or health checks as
    /// often as configured, say otherwise.
    pub fn leave_out(&self, left_out: &[LeftOut]) {
        for one in left_out.iter().filter(|one| *one.upstream == **self.name()) {
            match (&one.unhealthy, self.cluster()) {
                (None, _) => drop(self.set_draining(&one.endpoint, true)),
                (Some(host), Some(cluster)) => {
                    cluster.fail_checks(&one.endpoint, host, Instant::now())
                }
                (Some(_), None) => {}
            }
        }
    }
}
