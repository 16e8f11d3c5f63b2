//! Where requests go: named upstreams, each with endpoints that take turns, their connections kept
//! alive a pool for each worker. Speaks HTTP/1.1 to them. Nothing here knows of routes or limits.

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

/// What an upstream is.
#[derive(Clone, Debug)]
pub struct Spec {
    /// Its name in the configuration, or its URL where it was given in place.
    pub name: String,
    /// What answers.
    pub target: TargetSpec,
}

/// What answers the requests of an upstream.
#[derive(Clone, Debug)]
pub enum TargetSpec {
    /// The built-in origin, which answers with the request it received.
    Echo,
    /// Servers.
    Endpoints(EndpointsSpec),
}

/// The servers of an upstream.
#[derive(Clone, Debug)]
pub struct EndpointsSpec {
    /// The way in which they share requests.
    pub balance: Balance,
    /// At least one, with its weight from 1 to 256.
    pub endpoints: Vec<(EndpointSpec, u16)>,
    /// Whether they are sent the Host that the client asked for, or their own.
    pub host: HostHeader,
    /// How long to wait for them.
    pub timeouts: Timeouts,
}

/// What identifies an endpoint of an upstream. Two that are equal share their connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointSpec {
    /// Host and port; without a port, that of the scheme.
    pub authority: Authority,
    /// Set where the URL says `https`.
    pub tls: Option<ClientTls>,
}

/// Which Host an upstream is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostHeader {
    /// The one in the request.
    Preserve,
    /// The endpoint's own.
    Endpoint,
}

/// The waits of an exchange with an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// For name, TCP and TLS together.
    pub connect: Duration,
    /// From the request's head to the response's.
    pub response: Duration,
    /// Between two parts of a response's body, or of a tunnel with one direction open; and how long an unused
    /// connection is kept.
    pub idle: Duration,
    /// Without a byte in either direction, once a connection has gone on with another protocol.
    pub tunnel: Duration,
}

/// A request on its way, and what else an upstream needs to know of it.
///
/// Lent as one: what each future takes for itself has room in all around it.
#[derive(Debug)]
pub struct OutboundRequest<'a> {
    /// The request, whose body is taken.
    pub request: &'a mut Request<RequestBody>,
    /// Where interim responses go.
    pub informational: Option<&'a InformationalQueue>,
    /// The runtime that sends it, whose connections it uses.
    pub worker: usize,
    /// The code point of the packets that carry it. With one it goes over connections of that alone.
    pub dscp: Option<Dscp>,
    /// The number of the endpoint that it was sent to last.
    pub endpoint: &'a Cell<Option<usize>>,
}

/// A running upstream.
#[derive(Debug)]
pub struct Upstream {
    name: Arc<str>,
    target: RunningTarget,
}

/// What a request to an upstream meets.
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
    /// Starts what `spec` says, for `workers` runtimes. Endpoints that `find` still knows from
    /// before a reload keep their connections.
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

    /// What a request meets.
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

    /// Closes connections that were unused for too long. To be called once a second.
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
    /// Sends a request to the endpoint whose turn it is, and waits for the head of the response. Where no connection can
    /// be had the next endpoint is asked, each at most once.
    ///
    /// # Errors
    /// The last endpoint's; none that would let a request be processed twice is retried.
    pub async fn send(
        &self,
        outbound: &mut OutboundRequest<'_>,
    ) -> Result<Response<UpstreamBody>, Error> {
        let first = self.balancer.first();
        // HTTP/1.0 may come without a Host, and HTTP/1.1 may not go without.
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

    /// The waits.
    pub fn timeouts(&self) -> &Timeouts {
        &self.timeouts
    }
}
