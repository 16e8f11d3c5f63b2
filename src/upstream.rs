//! Upstreams: named clusters of endpoints, and the sessions with these. Knows no routes and no
//! limits.
//!
//! An endpoint has a host for each address of its name. [`Cluster::send`] picks hosts until one
//! responds. A host makes an attempt over a session of its pool, and `retry` decides if a failed
//! attempt is followed by another.

mod attempt;
mod balance;
mod cluster;
mod connector;
mod ejection;
mod endpoint;
mod error;
mod health;
mod host;
mod host_set;
mod left_out;
mod outliers;
mod pending;
mod pool;
mod proxy_header;
mod retry;
mod session;
mod spec;
mod stall;
mod tls;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use tokio::time::Instant;

pub use crate::net::dial::Dscp;
use attempt::ConnectionWish;
pub use attempt::{BodyReplay, OutboundRequest};
pub use balance::BALANCE_SECRET;
pub use cluster::Cluster;
pub use endpoint::{Endpoint, EndpointStatus};
pub use error::{UpstreamError, UpstreamErrorKind};
pub use host::{HostState, HostStatus};
pub use left_out::LeftOut;
pub use session::{UpstreamBody, UpstreamBodyError};
pub use spec::{
    Balance, ClusterSpec, ClusterTimeouts, ConnectionBound, ConnectionLimits, EjectionSpec,
    EndpointSpec, HealthRequest, HealthSpec, MAX_GRPC_SERVICE, RetryCondition, RetrySpec,
    UpstreamProtocol, UpstreamSpec,
};
pub use tls::{ClientTls, Roots, client_config, pinned_config, secure};

use crate::clock::Timestamp;
use crate::net::resolve;
use crate::telemetry::log_throttle::LogThrottle;
use crate::telemetry::metrics::{UpstreamMetrics, UpstreamRefusal};
use crate::telemetry::registry::Registry;
use endpoint::EndpointContext;

/// The time between two looks at the hosts of an upstream.
pub const TICK: Duration = Duration::from_millis(100);

/// A running upstream.
#[derive(Debug)]
pub struct Upstream {
    name: Arc<str>,
    cluster: Option<Arc<Cluster>>,
    metrics: UpstreamMetrics,
    /// Bounds the log lines about requests without a response.
    failure_log: LogThrottle,
}

impl Upstream {
    /// Starts an upstream for `workers` runtimes. Equal endpoints of `previous`, from before a
    /// reload, keep their hosts with connections and state; others of the same address go on
    /// draining. The retry budget goes on.
    pub fn new(
        spec: UpstreamSpec,
        workers: usize,
        registry: &Registry,
        previous: Option<&Self>,
    ) -> Self {
        let name = Arc::from(spec.name);
        let known = previous.map_or(&[][..], Self::endpoints).iter();
        let known: HashMap<_, _> = known.map(|one| (one.spec().origin(), one)).collect();
        let previous = previous.and_then(Self::cluster).map(Arc::as_ref);
        let context = EndpointContext {
            upstream: &name,
            workers,
            registry,
            resolver: &resolve::SYSTEM,
            pending: Cluster::pending_queue(previous),
        };
        let endpoint = |spec: EndpointSpec| match known.get(&spec.origin()) {
            Some(known) if *known.spec() == spec => Arc::clone(known),
            Some(known) => {
                let endpoint = Endpoint::new(spec, &context);
                endpoint.set_draining(known.is_draining());
                Arc::new(endpoint)
            }
            None => Arc::new(Endpoint::new(spec, &context)),
        };
        let cluster = spec.cluster;
        let cluster = cluster.map(|spec| Cluster::new(spec, &context, endpoint, previous).into());
        Upstream {
            metrics: UpstreamMetrics::new(registry, &name),
            failure_log: LogThrottle::new(Duration::from_secs(1)),
            cluster,
            name,
        }
    }

    /// The counts of its responses.
    pub fn metrics(&self) -> &UpstreamMetrics {
        &self.metrics
    }

    /// Its name in the configuration.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Its servers; `None` for the built-in `echo`, and where nothing is forwarded.
    pub fn cluster(&self) -> Option<&Arc<Cluster>> {
        self.cluster.as_ref()
    }

    /// The state of its endpoints; none for a built-in one.
    pub fn status(&self) -> Vec<EndpointStatus> {
        let status = |cluster: &Arc<Cluster>| cluster.status(Instant::now());
        self.cluster().map_or_else(Vec::new, status)
    }

    /// Its endpoints; none for the built-in origin.
    pub fn endpoints(&self) -> &[Arc<Endpoint>] {
        self.cluster().map_or(&[], |cluster| &cluster.endpoints)
    }

    /// Counts a request that is not sent.
    pub fn refuse(&self, refusal: UpstreamRefusal) {
        self.metrics.refused.record(refusal);
    }

    /// Counts a response whose head took `elapsed`.
    pub fn record_response(&self, status: StatusCode, elapsed: Duration) {
        self.metrics.record(status, elapsed);
    }

    /// Counts a request that got no response, and logs it: at most once a second.
    pub fn record_failure(&self, error: &UpstreamError, now: Timestamp) {
        let cause = error as &dyn std::error::Error;
        let (cause, what) = if error.is_own() {
            self.refuse(UpstreamRefusal::Shortage);
            let what = "no connection, for lack of resources of this machine";
            (cause.source(), what)
        } else {
            self.metrics.unanswered.increment();
            (Some(cause), "no response from the upstream")
        };
        if let Some(omitted) = self.failure_log.admit(now) {
            tracing::warn!(upstream = &*self.name, error = cause, omitted, "{what}");
        }
    }
}
