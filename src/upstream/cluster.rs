//! The endpoints of an upstream: each request goes to the one that the balancer picks, and to
//! others as far as the retry policy lets it.

use std::sync::Arc;

use http::header::HOST;
use smallvec::SmallVec;

use super::balance::{Balancer, Pick};
use super::retry;
use super::{
    ClusterSpec, ClusterTimeouts, Endpoint, EndpointSpec, HostHeader, OutboundRequest,
    UpstreamBody, UpstreamError,
};
use crate::http::message::Response;

/// The running servers of an upstream.
#[derive(Debug)]
pub struct Cluster {
    endpoints: Vec<Arc<Endpoint>>,
    balancer: Balancer,
    host: HostHeader,
    timeouts: ClusterTimeouts,
}

impl Cluster {
    /// A cluster of these endpoints, each as `endpoint` finds or starts it.
    pub(super) fn new(spec: ClusterSpec, endpoint: impl Fn(EndpointSpec) -> Arc<Endpoint>) -> Self {
        let (endpoints, weights): (Vec<_>, Vec<_>) = spec.endpoints.into_iter().unzip();
        Cluster {
            endpoints: endpoints.into_iter().map(endpoint).collect(),
            balancer: Balancer::new(spec.balance, &weights),
            host: spec.host,
            timeouts: spec.timeouts,
        }
    }

    pub(super) fn endpoints(&self) -> &[Arc<Endpoint>] {
        &self.endpoints
    }

    /// Sends a request, and waits for the head of the response. Tries each endpoint at most once.
    ///
    /// # Errors
    /// The last endpoint's error.
    pub async fn send(
        &self,
        outbound: &mut OutboundRequest<'_>,
    ) -> Result<Response<UpstreamBody>, UpstreamError> {
        // A client of HTTP/1.0 may send no Host, which HTTP/1.1 requires.
        let own_host =
            self.host == HostHeader::Endpoint || !outbound.request.headers().contains(HOST);
        let mut tried = SmallVec::<[usize; 2]>::new();
        loop {
            let number = self.balancer.pick(&Pick {
                endpoints: &self.endpoints,
                tried: &tried,
            });
            let endpoint = &self.endpoints[number];
            outbound.endpoint.set(Some(number));
            if own_host {
                let host = endpoint.host_header();
                outbound.request.headers_mut().insert(HOST, host);
            }
            tried.push(number);
            let attempt = endpoint.send(outbound, &self.timeouts).await;
            if tried.len() == self.endpoints.len() || !retry::is_retried_elsewhere(&attempt) {
                return attempt.into_result();
            }
        }
    }

    /// Closes connections that were unused for too long. Must be called once a second.
    pub(super) fn sweep(&self) {
        for endpoint in &self.endpoints {
            endpoint.sweep(self.timeouts.idle);
        }
    }
}
