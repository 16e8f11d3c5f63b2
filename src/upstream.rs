//! Upstreams: named groups of endpoints, with a connection pool for each endpoint and worker.
//! Speaks HTTP/1.1 to them. Knows no routes and no limits.

mod balance;
mod body;
mod connect;
mod endpoint;
mod error;
mod failure_log;
mod http1;
mod pool;
mod tls;

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use http::header::HOST;
use http::uri::Authority;

pub use crate::net::dial::Dscp;
pub use balance::{Balance, Balancer, RoundRobin};
pub use body::{BodyError, UpstreamBody};
pub use endpoint::Endpoint;
pub use error::{Error, Fault};
pub use http1::InvalidMessage;
pub use tls::{ClientTls, ClientTlsError, Roots, client_config};

use crate::http::body::RequestBody;
use crate::http::informational::InformationalQueue;
use crate::http::message::{Request, Response};
use crate::telemetry::metrics::EndpointMetrics;
use crate::telemetry::registry::Registry;

/// The settings of an upstream.
#[derive(Clone, Debug)]
pub struct Spec {
    /// Its name in the configuration, or its URL if a route gives that.
    pub name: String,
    /// The target of its requests.
    pub target: TargetSpec,
}

/// The target of an upstream's requests.
#[derive(Clone, Debug)]
pub enum TargetSpec {
    /// The built-in origin, which responds with the request.
    Echo,
    /// Servers.
    Endpoints(EndpointsSpec),
}

/// The servers of an upstream.
#[derive(Clone, Debug)]
pub struct EndpointsSpec {
    /// The load-balancing algorithm.
    pub balance: Balance,
    /// At least one, with its weight from 1 to 256.
    pub endpoints: Vec<(EndpointSpec, u16)>,
    /// The Host of forwarded requests.
    pub host: HostHeader,
    /// Time-outs for the servers.
    pub timeouts: Timeouts,
}

/// The identity of an endpoint. Equal endpoints of an upstream share their connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointSpec {
    /// Host and port; the scheme's port by default.
    pub authority: Authority,
    /// Set if the URL's scheme is `https`.
    pub tls: Option<ClientTls>,
}

/// The Host of forwarded requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostHeader {
    /// The request's own.
    Preserve,
    /// The endpoint's own.
    Endpoint,
}

/// Time-outs of an exchange with an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// For name resolution, TCP and TLS together.
    pub connect: Duration,
    /// From the request's head to the response's.
    pub response: Duration,
    /// Between two parts of a response's body, or of a tunnel with one direction open; and how long
    /// an unused connection is kept.
    pub idle: Duration,
    /// Without a byte in either direction of a tunnel.
    pub tunnel: Duration,
}

/// A request to be sent, with the context that an upstream needs.
///
/// Passed by one reference: a field that a future owns enlarges every future around it.
#[derive(Debug)]
pub struct OutboundRequest<'a> {
    /// The request, whose body is taken.
    pub request: &'a mut Request<RequestBody>,
    /// The queue for informational responses.
    pub informational: Option<&'a InformationalQueue>,
    /// The index of the worker, whose connections it uses.
    pub worker: usize,
    /// The DSCP of its packets. Requests with one use connections of that code point only.
    pub dscp: Option<Dscp>,
    /// The index of the endpoint that was tried last.
    pub endpoint: &'a Cell<Option<usize>>,
}

/// A running upstream.
#[derive(Debug)]
pub struct Upstream {
    name: Arc<str>,
    target: RunningTarget,
}

/// The running target of an upstream.
#[derive(Debug)]
pub enum RunningTarget {
    /// The built-in origin.
    Echo,
    /// Servers.
    Endpoints(Endpoints),
}

/// The running servers of an upstream.
#[derive(Debug)]
pub struct Endpoints {
    list: Vec<Arc<Endpoint>>,
    balancer: Balancer,
    host: HostHeader,
    timeouts: Timeouts,
}

impl Upstream {
    /// Starts an upstream for `workers` runtimes. Endpoints that `find` returns, from before a
    /// reload, keep their connections.
    pub fn new(
        spec: Spec,
        workers: usize,
        registry: &Registry,
        mut find: impl FnMut(&EndpointSpec) -> Option<Arc<Endpoint>>,
    ) -> Self {
        let name = Arc::from(spec.name);
        let target = match spec.target {
            TargetSpec::Echo => RunningTarget::Echo,
            TargetSpec::Endpoints(spec) => {
                let weights: Vec<u16> = spec.endpoints.iter().map(|(_, weight)| *weight).collect();
                let list = spec.endpoints.into_iter().map(|(endpoint, _)| {
                    find(&endpoint).unwrap_or_else(|| {
                        let label = endpoint.authority.as_str();
                        let metrics = EndpointMetrics::new(registry, &name, label);
                        Arc::new(Endpoint::new(endpoint, workers, metrics))
                    })
                });
                RunningTarget::Endpoints(Endpoints {
                    list: list.collect(),
                    balancer: Balancer::new(spec.balance, &weights),
                    host: spec.host,
                    timeouts: spec.timeouts,
                })
            }
        };
        Upstream { name, target }
    }

    /// Its name in the configuration.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// The target of its requests.
    pub fn target(&self) -> &RunningTarget {
        &self.target
    }

    /// Its endpoints; none for the built-in origin.
    pub fn endpoints(&self) -> &[Arc<Endpoint>] {
        match &self.target {
            RunningTarget::Echo => &[],
            RunningTarget::Endpoints(endpoints) => &endpoints.list,
        }
    }

    /// Closes connections that were unused for too long. Must be called once a second.
    pub fn sweep(&self) {
        if let RunningTarget::Endpoints(endpoints) = &self.target {
            let idle = endpoints.timeouts.idle;
            endpoints
                .list
                .iter()
                .for_each(|endpoint| endpoint.sweep(idle));
        }
    }
}

impl Endpoints {
    /// Sends a request to the next endpoint, and waits for the head of the response. If no
    /// connection can be made it tries the other endpoints, each at most once.
    ///
    /// # Errors
    /// The last endpoint's error. No request is retried that an endpoint may have processed.
    pub async fn send(
        &self,
        outbound: &mut OutboundRequest<'_>,
    ) -> Result<Response<UpstreamBody>, Error> {
        let first = self.balancer.first();
        // A client of HTTP/1.0 may send no Host, which HTTP/1.1 requires.
        let own_host =
            self.host == HostHeader::Endpoint || !outbound.request.headers().contains(HOST);
        let mut tried = 0;
        loop {
            let number = (first + tried) % self.list.len();
            let endpoint = &self.list[number];
            outbound.endpoint.set(Some(number));
            if own_host {
                let host = endpoint.host_header();
                outbound.request.headers_mut().insert(HOST, host);
            }
            tried += 1;
            match endpoint.send(outbound, &self.timeouts).await {
                Ok(done) => return Ok(done),
                // The endpoint has logged and counted it.
                Err(failure) if failure.unsent && tried < self.list.len() => {}
                Err(failure) => return Err(failure.error),
            }
        }
    }

    /// The time-outs.
    pub fn timeouts(&self) -> &Timeouts {
        &self.timeouts
    }
}
