//! Hosts for tests of balancers.

use http::uri::Authority;

use super::*;
use crate::net::socket::StreamAddress;
use crate::telemetry::metrics::EndpointMetrics;
use crate::telemetry::registry::Registry;
use crate::upstream::connector::Connector;
use crate::upstream::pending::PendingQueue;
use crate::upstream::{EndpointSpec, UpstreamProtocol};

/// Hosts with these weights.
pub(in crate::upstream) fn hosts(weights: &[u16]) -> Vec<WeightedHost> {
    let registry = Registry::default();
    let metrics = Arc::new(EndpointMetrics::new(&registry, "upstream", "endpoint"));
    let spec = EndpointSpec {
        authority: Authority::from_static("endpoint"),
        socket: None,
        tls: None,
        protocol: UpstreamProtocol::Http1,
        sends_proxy_header: false,
    };
    let host = |(endpoint, &weight): (usize, &u16)| {
        let address = StreamAddress::Tcp(([10, 0, 0, 1], endpoint as u16).into());
        let connector = Connector::new(address, &spec);
        WeightedHost {
            host: Arc::new(Host::new(
                connector,
                1,
                Arc::clone(&metrics),
                Arc::new(PendingQueue::new()),
            )),
            weight,
            endpoint,
        }
    };
    weights.iter().enumerate().map(host).collect()
}
