//! A configured server of an upstream, and its hosts: the addresses that its name resolves to, or
//! its Unix socket. It outlives reloads: a new ruleset finds the endpoint by its [`EndpointSpec`].

mod resolved;
mod lookups;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use http::HeaderValue;
use parking_lot::Mutex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::VariantArray;
use tokio::time::Instant;

use super::connector::Connector;
use super::error::{UpstreamError, UpstreamErrorKind};
use super::host::{Host, HostStatus};
use super::pending::PendingQueue;
use super::spec::{EndpointSpec, UpstreamProtocol};
use crate::net::resolve::Resolver;
use crate::net::socket::StreamAddress;
use crate::telemetry::metrics::{EndpointFailure, EndpointMetrics};
use crate::telemetry::registry::{GaugeGuard, Registry};
use lookups::Lookups;
use resolved::ResolvedAddresses;

/// A configured server of an upstream.
#[derive(Debug)]
pub struct Endpoint {
    spec: EndpointSpec,
    /// The Host of the endpoint itself.
    pub(super) host_header: HeaderValue,
    workers: usize,
    metrics: Arc<EndpointMetrics>,
    pending: Arc<PendingQueue>,
    current: Mutex<Current>,
    /// `None` for an address, which needs no lookup.
    pub(super) lookups: Option<Lookups>,
    /// It gets no new requests.
    is_draining: AtomicBool,
}

/// An endpoint of an upstream.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Endpoint")]
pub struct EndpointStatus {
    /// Its host and port, or its socket.
    #[serde(rename = "endpoint")]
    pub label: Arc<str>,
    /// Its share of the requests, among all weights.
    #[schemars(range(min = 1, max = 256))]
    weight: u16,
    /// True if it gets no new requests.
    #[serde(rename = "draining")]
    pub is_draining: bool,
    /// The addresses of its name; none before it has resolved.
    pub hosts: Vec<HostStatus>,
    /// Requests that it didn't answer, or not to the end, since the start, by reasons as in
    /// `sluicegate_upstream_failures_total`; only those of which there are any.
    #[serde(default)]
    failures: BTreeMap<Cow<'static, str>, u64>,
    /// The version of HTTP, as configured.
    #[serde(skip)]
    pub protocol: UpstreamProtocol,
    /// The reason why its name does not resolve now.
    #[serde(skip)]
    pub unresolved: Option<String>,
}

impl EndpointStatus {
    /// Returns true if one of its addresses works.
    pub fn works(&self) -> bool {
        self.hosts.iter().any(|host| host.state.works())
    }
}

/// The surroundings of a new endpoint.
#[derive(Clone, Debug)]
pub(super) struct EndpointContext<'a> {
    /// The upstream's name.
    pub upstream: &'a Arc<str>,
    /// The number of runtimes that use it.
    pub workers: usize,
    pub registry: &'a Registry,
    pub resolver: &'static Resolver,
    /// The queue of the upstream, which outlives reloads.
    pub pending: Arc<PendingQueue>,
}

/// The last usable answer about a name, and its hosts.
#[derive(Debug)]
struct Current {
    answer: ResolvedAddresses,
    hosts: Arc<[Arc<Host>]>,
    _counted: GaugeGuard,
}

impl Endpoint {
    /// An endpoint without connections, whose name is not looked up yet.
    pub(super) fn new(spec: EndpointSpec, context: &EndpointContext<'_>) -> Self {
        let (label, _) = spec.origin();
        let metrics = EndpointMetrics::new(context.registry, context.upstream, &label);
        let (name, port) = spec.name_and_port();
        let address = name
            .parse()
            .ok()
            .map(|ip: IpAddr| SocketAddr::new(ip, port));
        let lookups = match (address, &spec.socket) {
            (None, None) => Some(Lookups::new(context.resolver, name, port)),
            _ => None,
        };
        let endpoint = Endpoint {
            host_header: HeaderValue::from_str(spec.authority.as_str())
                .expect("an authority has only characters that a field value may have"),
            workers: context.workers,
            current: Mutex::new(Current {
                answer: ResolvedAddresses::default(),
                hosts: Arc::default(),
                _counted: metrics.hosts.hold(0),
            }),
            metrics: Arc::new(metrics),
            pending: Arc::clone(&context.pending),
            lookups,
            is_draining: AtomicBool::new(false),
            spec,
        };
        if let Some(path) = &endpoint.spec.socket {
            let host = Arc::new(endpoint.host(StreamAddress::Unix(Arc::clone(path))));
            let mut current = endpoint.current.lock();
            current.hosts = Arc::from([host]);
            current._counted = endpoint.metrics.hosts.hold(1);
        } else if let Some(address) = address {
            endpoint.replace_hosts(ResolvedAddresses::literal(address));
        }
        endpoint
    }

    /// Its host and port or its socket, as the configuration writes it.
    pub fn label(&self) -> &Arc<str> {
        &self.metrics.endpoint
    }

    /// Its identity.
    pub fn spec(&self) -> &EndpointSpec {
        &self.spec
    }

    /// Returns true if it gets no new requests.
    pub fn is_draining(&self) -> bool {
        self.is_draining.load(Relaxed)
    }

    /// Begins or ends its draining. Returns true if that changes anything. The caller updates the
    /// hosts of its cluster.
    pub(super) fn set_draining(&self, is_draining: bool) -> bool {
        let was_draining = self.is_draining.swap(is_draining, Relaxed);
        self.metrics.draining.set(is_draining.into());
        // Requests that are tried again have an earlier set of hosts.
        for host in &*self.hosts() {
            host.health.set_draining(is_draining, Instant::now());
        }
        was_draining != is_draining
    }

    /// Its hosts in the order of their addresses; none before its name has resolved.
    pub(super) fn hosts(&self) -> Arc<[Arc<Host>]> {
        Arc::clone(&self.current.lock().hosts)
    }

    /// Its state at `now`.
    pub(super) fn status(&self, weight: u16, now: Instant) -> EndpointStatus {
        let failure = self.lookups.as_ref().and_then(Lookups::last_failure);
        let failures = EndpointFailure::VARIANTS.iter().map(|reason| {
            let name = <&str>::from(*reason);
            (name.into(), self.metrics.failures.count(*reason))
        });
        EndpointStatus {
            label: Arc::clone(self.label()),
            weight,
            protocol: self.spec.protocol,
            is_draining: self.is_draining(),
            failures: failures.filter(|(_, count)| *count > 0).collect(),
            unresolved: failure.map(|failure| failure.to_string()),
            hosts: self.hosts().iter().map(|one| one.status(now)).collect(),
        }
    }

    /// Looks its name up, and replaces the hosts whose addresses have changed. Keeps the last known
    /// hosts if that fails.
    pub(super) async fn look_up(&self) {
        let Some(lookups) = &self.lookups else {
            return;
        };
        let (upstream, endpoint) = (&*self.metrics.upstream, &**self.label());
        match lookups.run().await {
            Ok(answer) => {
                if let Some(failures) = lookups.record_answer() {
                    tracing::info!(upstream, endpoint, failures, "the name resolves again");
                }
                if let Some(known) = self.replace_hosts(answer) {
                    self.log_change(&known);
                }
            }
            Err(error) => {
                self.metrics.lookup_failures.increment();
                let known = self.hosts().len();
                if let Some(error) = lookups.record_failure(error) {
                    let error = &*error as &dyn std::error::Error;
                    tracing::warn!(
                        upstream,
                        endpoint,
                        error,
                        known,
                        "the name does not resolve"
                    );
                }
            }
        }
    }

    /// Counts a request that no host received within `limit`, or in the `late` time of the whole request.
    /// Returns the reason; `None` if the endpoint has no name.
    pub(super) fn record_unresolved(
        &self,
        limit: Duration,
        late: Option<Duration>,
    ) -> Option<UpstreamError> {
        let failure = self.lookups.as_ref()?.failure(limit);
        let kind = late.map_or(failure, UpstreamErrorKind::Deadline);
        let error = UpstreamError::new(self.label(), kind);
        self.metrics.requests.increment();
        if let Some(reason) = error.failure() {
            self.metrics.failures.record(reason);
        }
        Some(error)
    }

    /// Uses the hosts of `answer`. Those that were known keep their connections and their state, and
    /// connections to others end after their requests. Returns the hosts before, if they differ.
    fn replace_hosts(&self, answer: ResolvedAddresses) -> Option<ResolvedAddresses> {
        let mut current = self.current.lock();
        if current.answer == answer {
            return None;
        }
        let known = Arc::clone(&current.hosts);
        let host = |&address: &SocketAddr| {
            let address = StreamAddress::Tcp(address);
            let known = known.iter().find(|host| host.connector.address == address);
            known.map_or_else(|| Arc::new(self.host(address)), Arc::clone)
        };
        let hosts: Arc<[_]> = answer.usable.iter().map(host).collect();
        let is_kept = |host: &&Arc<Host>| hosts.iter().any(|one| Arc::ptr_eq(one, host));
        for gone in known.iter().filter(|host| !is_kept(host)) {
            gone.pool.close();
        }
        current._counted = self.metrics.hosts.hold(hosts.len() as u32);
        current.hosts = hosts;
        Some(std::mem::replace(&mut current.answer, answer))
    }

    fn host(&self, address: StreamAddress) -> Host {
        let connector = Connector::new(address, &self.spec);
        let (metrics, pending) = (Arc::clone(&self.metrics), Arc::clone(&self.pending));
        Host::new(connector, self.workers, metrics, pending)
    }

    /// Logs the addresses that came and went, and those that are not used.
    fn log_change(&self, before: &ResolvedAddresses) {
        let now = self.current.lock().answer.clone();
        let (upstream, endpoint) = (&*self.metrics.upstream, &**self.label());
        let (added, removed) = (now.beyond(before), before.beyond(&now));
        let (unusable, omitted) = (&now.unusable, now.omitted);
        tracing::info!(
            upstream,
            endpoint,
            ?added,
            ?removed,
            "the addresses of the name changed"
        );
        if !unusable.is_empty() {
            tracing::warn!(
                upstream,
                endpoint,
                ?unusable,
                "addresses of no server are ignored"
            );
        }
        if omitted > 0 {
            tracing::warn!(
                upstream,
                endpoint,
                omitted,
                "the name has more than 64 addresses"
            );
        }
    }
}
