//! The servers of an upstream: each request goes to the host that the balancer picks, and to
//! others as far as the retry policy lets it.

mod slots;

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use http::header::HOST;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use super::attempt::{Attempt, OutboundRequest};
use super::endpoint::{Endpoint, EndpointContext, EndpointStatus};
use super::error::{UpstreamError, UpstreamErrorKind};
use super::host_set::{HostSet, Tried, WeightedHost};
use super::outliers::OutlierDetection;
use super::pending::{PendingQueue, Slot, UNBOUNDED};
use super::retry::RetryBudget;
use super::session::UpstreamBody;
use super::spec::{ClusterSpec, EndpointSpec};
use crate::http::message::Response;
use crate::net::file_budget;
use crate::telemetry::metrics::{PendingMetrics, RetryReason};
use slots::Bound;

/// The running servers of an upstream.
#[derive(Debug)]
pub struct Cluster {
    pub(super) spec: ClusterSpec,
    /// In the order of the spec.
    pub(super) endpoints: Vec<Arc<Endpoint>>,
    /// The hosts of all endpoints whose names have resolved.
    hosts: Arc<ArcSwap<HostSet>>,
    /// Held while the hosts are compared and replaced.
    update: Mutex<()>,
    /// Notified at the end of each lookup.
    lookups: watch::Sender<()>,
    bound: Option<Bound>,
    /// The requests that wait for a slot, of the rulesets before and after, too.
    pending: Arc<PendingQueue>,
    outliers: OutlierDetection,
    budget: Arc<RetryBudget>,
}

impl Cluster {
    /// A cluster of these endpoints, each as `endpoint` finds or starts it. Its retry budget goes on
    /// from `previous`, from before a reload.
    pub(super) fn new(
        spec: ClusterSpec,
        context: &EndpointContext<'_>,
        endpoint: impl Fn(EndpointSpec) -> Arc<Endpoint>,
        previous: Option<&Self>,
    ) -> Self {
        let budget = previous.map(|previous| Arc::clone(&previous.budget));
        let budget = budget.unwrap_or_default();
        budget.refill(&spec.retries);
        let known = previous.map(|previous| &previous.outliers);
        let outliers = OutlierDetection::new(&spec, known);
        let bound = spec.bound.map(|spec| Bound {
            spec,
            metrics: PendingMetrics::new(context.registry, context.upstream),
            upstream: Arc::clone(context.upstream),
        });
        let endpoints = spec.endpoints.iter();
        let cluster = Cluster {
            endpoints: endpoints.map(|(one, _)| endpoint(one.clone())).collect(),
            hosts: Arc::new(ArcSwap::from_pointee(HostSet::new(
                spec.balance,
                Vec::new(),
            ))),
            update: Mutex::default(),
            lookups: watch::Sender::default(),
            bound,
            pending: Arc::clone(&context.pending),
            outliers,
            budget,
            spec,
        };
        cluster.update_hosts();
        cluster
    }

    /// Its settings.
    pub fn spec(&self) -> &ClusterSpec {
        &self.spec
    }

    /// The queue of the cluster before, or a new one.
    pub(super) fn pending_queue(previous: Option<&Self>) -> Arc<PendingQueue> {
        let queue = previous.map(|previous| Arc::clone(&previous.pending));
        queue.unwrap_or_else(|| Arc::new(PendingQueue::new()))
    }

    /// Takes over from the cluster before: its bound is the one that requests wait for.
    pub fn take_over(&self) {
        let max = self.bound.as_ref().map(|bound| bound.spec.max);
        self.pending.set_max(max.unwrap_or(UNBOUNDED));
        self.outliers.tick(&self.hosts.load().hosts, Instant::now());
        self.offer_slots();
    }

    /// The requests in flight at its hosts.
    pub fn in_flight(&self) -> usize {
        let set = self.hosts.load();
        let hosts = set.hosts.iter();
        hosts.map(|one| one.host.in_flight()).sum()
    }

    /// The state of the endpoints at `now`.
    pub(super) fn status(&self, now: Instant) -> Vec<EndpointStatus> {
        let endpoints = self.weighted_endpoints();
        let status = endpoints.map(|(endpoint, weight)| endpoint.status(weight, now));
        status.collect()
    }

    fn weighted_endpoints(&self) -> impl Iterator<Item = (&Endpoint, u16)> {
        let weights = self.spec.endpoints.iter().map(|(_, weight)| *weight);
        self.endpoints.iter().map(|one| &**one).zip(weights)
    }

    /// Begins or ends the draining of an endpoint. Returns true if that changes anything, and `None`
    /// if no endpoint has this label. New requests go elsewhere; requests in flight end.
    pub fn set_draining(&self, label: &str, is_draining: bool) -> Option<bool> {
        let is_changed = self.endpoint(label)?.set_draining(is_draining);
        self.update_hosts();
        Some(is_changed)
    }

    /// The ejected addresses of an endpoint; `None` if no endpoint has this label.
    pub fn ejected(&self, label: &str) -> Option<Vec<String>> {
        let hosts = self.endpoint(label)?.hosts();
        let ejected = hosts.iter().filter(|host| host.health.is_ejected());
        Some(
            ejected
                .map(|host| host.connector.address.to_string())
                .collect(),
        )
    }

    /// The requests that wait for a slot of an address.
    pub fn waiting(&self) -> usize {
        self.pending.len()
    }

    /// Ends the ejections of an endpoint's addresses, which take their whole share at once. Returns
    /// these addresses, and `None` if no endpoint has this label.
    pub fn readmit(&self, label: &str) -> Option<Vec<String>> {
        let (hosts, now) = (self.endpoint(label)?.hosts(), Instant::now());
        let readmitted = hosts.iter().filter(|host| host.health.readmit(now));
        let readmitted = readmitted.map(|host| host.connector.address.to_string());
        let readmitted = readmitted.collect();
        // Their slots are free.
        self.offer_slots();
        Some(readmitted)
    }

    /// Counts a host of an endpoint as unhealthy, as its last health checks in another process have found.
    pub(super) fn fail_checks(&self, label: &str, address: &str, now: Instant) {
        let hosts = self.endpoint(label).map(|endpoint| endpoint.hosts());
        for host in hosts.iter().flat_map(|hosts| hosts.iter()) {
            if host.connector.address.to_string() == address {
                host.health.fail_checks(now);
            }
        }
    }

    fn endpoint(&self, label: &str) -> Option<&Endpoint> {
        let mut endpoints = self.endpoints.iter();
        let endpoint = endpoints.find(|endpoint| **endpoint.label() == *label)?;
        Some(endpoint)
    }

    /// Sends a request, and waits for the head of the response. Tries each host at most once, and
    /// as many as `retries` allow.
    ///
    /// # Errors
    /// The last host's error.
    pub async fn send(
        self: &Arc<Self>,
        outbound: &mut OutboundRequest<'_>,
    ) -> Result<Response<UpstreamBody>, UpstreamError> {
        outbound.prepare();
        let mut set = self.hosts.load_full();
        if set.hosts.is_empty() {
            // Boxed: only requests before the first answer wait for a name.
            set =
                Box::pin(self.resolved(outbound.deadline))
                    .await
                    .map_err(|(endpoint, error)| {
                        outbound.endpoint.set(Some(endpoint));
                        error
                    })?;
        }
        // A client of HTTP/1.0 may send no Host, which HTTP/1.1 requires.
        let own_host = !self.spec.preserves_host || !outbound.request.headers().contains(HOST);
        self.budget.record_request();
        let mut tried = Tried::new();
        let picked = set.pick(&[], outbound.key, self.max_in_flight());
        // Boxed: only requests to full hosts wait for a slot.
        let (mut number, mut in_flight) = match self.take_slot(&set, picked, &[]) {
            Ok(slot) => slot,
            Err(bound) => {
                Box::pin(self.wait_for_slot(bound, &mut set, &mut tried, outbound)).await?
            }
        };
        loop {
            let WeightedHost { host, endpoint, .. } = &set.hosts[number];
            outbound.endpoint.set(Some(*endpoint));
            if own_host {
                let host = self.endpoints[*endpoint].host_header.clone();
                outbound.request.headers_mut().insert(HOST, host);
            }
            let was_left_out = host.health.is_left_out();
            let may_stall = self.outliers.may_find_stalls(&set.hosts);
            // Awaited where it is made: a named future takes its room twice.
            let mut attempt = host.send(in_flight, outbound, may_stall).await;
            let (hosts, evidence) = (&set.hosts, attempt.evidence());
            let ejection = self.outliers.judge(hosts, host, was_left_out, evidence);
            host.report(&attempt, ejection);
            // A slot of a host that is ejected for this attempt must not be taken before.
            attempt.in_flight = None;
            tried.push(number);
            outbound.attempts.set(outbound.attempts.get() + 1);
            let Some(reason) = self.spec.retries.reason(&attempt, outbound.request) else {
                return attempt.outcome;
            };
            // Boxed, with the attempt: few requests are retried.
            let (outbound, hosts, tried) = (&mut *outbound, &mut set, &mut tried);
            let retry = Box::pin(async move {
                let slot = self.slot_for_retry(reason, &attempt, outbound, hosts, tried);
                slot.await.ok_or(attempt)
            });
            match retry.await {
                Ok(slot) => (number, in_flight) = slot,
                Err(attempt) => return attempt.outcome,
            }
        }
    }

    /// The host to try after `attempt`, with a slot there; `None` if there is to be no other attempt.
    async fn slot_for_retry(
        &self,
        reason: RetryReason,
        attempt: &Attempt,
        outbound: &mut OutboundRequest<'_>,
        set: &mut Arc<HostSet>,
        tried: &mut Tried,
    ) -> Option<Slot> {
        if tried.len() == set.hosts.len() || outbound.attempts.get() > self.spec.retries.attempts {
            return None;
        }
        let failed = Arc::clone(&set.hosts[*tried.last()?].host);
        let max = self.max_in_flight();
        let next = set.pick(tried, outbound.key, max);
        let WeightedHost { host, endpoint, .. } = &set.hosts[next];
        // A response is better than another host's failure, and than a wait.
        let has_response = attempt.error().is_none();
        let is_full = !host.has_slot(max);
        // The last resort is a host that may be back.
        let is_last_resort = || !has_response && !is_full && host.health.may_be_back();
        let is_left_out = host.health.is_left_out() && !set.is_in_panic() && !is_last_resort();
        let is_no_better = has_response && (is_full || host.health.is_failing());
        // The set may be older than the draining.
        let is_draining = self.endpoints[*endpoint].is_draining();
        if is_left_out || is_draining || is_no_better || !outbound.restore() {
            return None;
        }
        // The requests that leave a stalled host are bounded by being there at one instant.
        if reason != RetryReason::Stalled && !self.budget.withdraw() {
            failed.metrics.retries_denied.increment();
            return None;
        }
        let slot = match self.take_slot(set, next, tried) {
            Ok(slot) => slot,
            Err(_) if has_response => return None,
            Err(bound) => self.wait_for_slot(bound, set, tried, outbound).await.ok()?,
        };
        failed.metrics.retries.record(reason);
        Some(slot)
    }

    /// The number and the error of an endpoint, when all of them drain.
    fn draining(&self) -> (usize, UpstreamError) {
        let label = self.endpoints[0].label();
        (0, UpstreamError::new(label, UpstreamErrorKind::Draining))
    }

    /// Waits until the name of an endpoint has resolved, at most until the request's `deadline`.
    ///
    /// # Errors
    /// When all names fail to resolve, or none resolves in time, or all endpoints drain: the number
    /// and the error of an endpoint.
    async fn resolved(
        self: &Arc<Self>,
        deadline: Option<(Instant, Duration)>,
    ) -> Result<Arc<HostSet>, (usize, UpstreamError)> {
        if self.endpoints.iter().all(|endpoint| endpoint.is_draining()) {
            return Err(self.draining());
        }
        let mut lookups = self.lookups.subscribe();
        self.begin_lookups(Duration::ZERO);
        let limit = Instant::now() + self.spec.timeouts.connect;
        let deadline = deadline.filter(|(at, _)| *at < limit);
        let limit = deadline.map_or(limit, |(at, _)| at);
        let found = timeout_at(limit, async {
            loop {
                let is_awaited = self.is_looked_up();
                self.update_hosts();
                let set = self.hosts.load_full();
                if !set.hosts.is_empty() {
                    return Some(set);
                }
                // The sender is a field of this cluster: it is never gone.
                if !is_awaited || lookups.changed().await.is_err() {
                    return None;
                }
            }
        });
        let found = found.await;
        if let Ok(Some(set)) = found {
            return Ok(set);
        }
        let late = deadline.filter(|_| found.is_err()).map(|(_, time)| time);
        let endpoints = self.endpoints.iter().enumerate();
        let mut endpoints = endpoints.filter(|(_, endpoint)| !endpoint.is_draining());
        let unresolved = endpoints.find_map(|(number, endpoint)| {
            let error = endpoint.record_unresolved(self.spec.timeouts.connect, late)?;
            Some((number, error))
        });
        Err(unresolved.unwrap_or_else(|| self.draining()))
    }

    /// Does what is due once a second: lookups of names, and closing connections that were unused
    /// for too long. Must be called once a second, on a runtime.
    pub fn sweep(self: &Arc<Self>) {
        self.begin_lookups(self.spec.resolve_every);
        self.update_hosts();
        for endpoint in &self.endpoints {
            // Idle connections would keep a server from ending.
            let idle = if endpoint.is_draining() {
                Duration::ZERO
            } else {
                self.spec.timeouts.idle
            };
            endpoint.hosts().iter().for_each(|host| host.sweep(idle));
        }
        let set = self.hosts.load();
        self.outliers.sweep(&set.hosts, Instant::now());
        self.budget.begin_second(&self.spec.retries);
    }

    /// Finds hosts that fail, lets others return, begins health checks, and closes idle connections
    /// while files are scarce. Must be called every [`TICK`](super::TICK), on a runtime.
    pub fn tick(&self) {
        let (set, now) = (self.hosts.load(), Instant::now());
        let is_scarce = file_budget::UPSTREAMS.is_scarce();
        self.outliers.tick(&set.hosts, now);
        for endpoint in &self.endpoints {
            for host in &*endpoint.hosts() {
                if is_scarce {
                    // They give way to new ones.
                    host.pool.trim(host.pool.idle() / 2);
                }
                match &self.spec.health {
                    Some(spec) => host.begin_check(spec, &endpoint.spec().authority, now),
                    None => host.health.forget_checks(now),
                }
            }
        }
        self.budget.refill(&self.spec.retries);
        // Hosts that return have free slots.
        self.offer_slots();
    }

    /// Begins the lookups that are due, each as a task of the current runtime.
    fn begin_lookups(self: &Arc<Self>, every: Duration) {
        for (number, endpoint) in self.endpoints.iter().enumerate() {
            let lookups = endpoint.lookups.as_ref();
            if lookups.is_some_and(|lookups| lookups.begin(every)) {
                tokio::spawn(Arc::clone(self).look_up(number));
            }
        }
    }

    async fn look_up(self: Arc<Self>, number: usize) {
        let endpoint = &self.endpoints[number];
        endpoint.look_up().await;
        self.update_hosts();
        if let Some(lookups) = &endpoint.lookups {
            lookups.end();
        }
        self.lookups.send_replace(());
    }

    fn is_looked_up(&self) -> bool {
        let mut lookups = self.endpoints.iter().flat_map(|one| &one.lookups);
        lookups.any(|lookups| lookups.is_running())
    }

    /// Replaces the hosts if those of an endpoint have changed, or an endpoint drains or no longer.
    fn update_hosts(&self) {
        let _turn = self.update.lock();
        let endpoints = self.weighted_endpoints().enumerate();
        let endpoints = endpoints.filter(|(_, (one, _))| !one.is_draining());
        let hosts = endpoints.flat_map(|(endpoint, (one, weight))| {
            let hosts = one.hosts();
            let host = move |host: &Arc<_>| WeightedHost {
                host: Arc::clone(host),
                weight,
                endpoint,
            };
            hosts.iter().map(host).collect::<Vec<_>>()
        });
        let hosts: Vec<_> = hosts.collect();
        for one in &hosts {
            *one.host.pool.limits.lock() = self.spec.connections;
        }
        let before = self.hosts.load();
        if !before.consists_of(&hosts) {
            let is_known = |host| before.hosts.iter().any(|one| Arc::ptr_eq(&one.host, host));
            let new = hosts.iter().filter(|one| !is_known(&one.host));
            // At the start all are new.
            let new = new.filter(|_| !before.hosts.is_empty());
            new.for_each(|one| {
                one.host
                    .health
                    .start_slowly(self.spec.slow_start, Instant::now())
            });
            self.hosts
                .store(Arc::new(HostSet::new(self.spec.balance, hosts)));
            self.offer_slots();
        }
    }
}

#[cfg(test)]
mod tests;
