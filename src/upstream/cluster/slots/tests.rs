//! Slots under a bound: never too many, in the order of arrival, and never lost, whatever the order
//! of steps on several threads.

mod interleavings;
mod model;

use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll, Waker};
use std::thread;

use tokio::task::{JoinSet, LocalSet, yield_now};
use tokio::time::advance;

use super::*;
use crate::http::body::RequestBody;
use crate::http::connection::{ClientConnection, Scheme};
use crate::http::message::Request;
use crate::net::drain::DrainWatcher;
use crate::net::resolve;
use crate::telemetry::metrics::EjectionReason;
use crate::telemetry::registry::Registry;
use crate::upstream::cluster::tests::cluster_spec;
use crate::upstream::endpoint::{Endpoint, EndpointContext};
use crate::upstream::host::Host;
use crate::upstream::pending::PendingRequest;
use crate::upstream::spec::EjectionSpec;
use crate::upstream::{Balance, BodyReplay, ClusterSpec};

const SECOND: Duration = Duration::from_secs(1);

const ENDPOINTS: [&str; 3] = ["10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80"];

const EJECTION: EjectionSpec = EjectionSpec {
    consecutive_failures: 1,
    failure_rate: None,
    base: Duration::from_secs(3_600),
    max: Duration::from_secs(3_600),
    max_ejected: 100,
};

fn bound(max: u32) -> ConnectionBound {
    ConnectionBound {
        max,
        max_pending: 100,
        max_wait: 10 * SECOND,
    }
}

/// A running cluster of so many hosts, which goes on from `previous`.
fn cluster(
    hosts: usize,
    bound: Option<ConnectionBound>,
    previous: Option<&Arc<Cluster>>,
) -> Arc<Cluster> {
    let spec = ClusterSpec {
        bound,
        balance: Balance::LeastRequests,
        ejection: Some(EJECTION),
        ..cluster_spec(&ENDPOINTS[..hosts])
    };
    let (upstream, registry) = ("upstream".into(), Registry::default());
    let previous = previous.map(|previous| &**previous);
    let context = EndpointContext {
        upstream: &upstream,
        workers: 1,
        registry: &registry,
        resolver: &resolve::SYSTEM,
        pending: Cluster::pending_queue(previous),
    };
    let known = previous.map_or(&[][..], |cluster| &cluster.endpoints);
    let endpoint = |spec| {
        let known = known.iter().find(|known| *known.spec() == spec);
        known.map_or_else(|| Arc::new(Endpoint::new(spec, &context)), Arc::clone)
    };
    let cluster = Arc::new(Cluster::new(spec, &context, endpoint, previous));
    cluster.take_over();
    cluster
}

fn host(cluster: &Cluster, number: usize) -> Arc<Host> {
    Arc::clone(&cluster.hosts.load().hosts[number].host)
}

fn in_flight(cluster: &Cluster) -> Vec<usize> {
    let set = cluster.hosts.load();
    let hosts = set.hosts.iter();
    hosts.map(|one| one.host.in_flight()).collect()
}

fn take(cluster: &Cluster, tried: &[usize]) -> Option<Slot> {
    let set = cluster.hosts.load();
    let picked = set.pick(tried, None, cluster.max_in_flight());
    cluster.take_slot(&set, picked, tried).ok()
}

/// Enters the queue, and looks for slots that have become free.
fn wait<'c>(cluster: &'c Arc<Cluster>, tried: &[usize]) -> PendingRequest<'c> {
    let pending = cluster.pending.enter(claim(cluster, tried), 100);
    cluster.offer_slots();
    pending.expect("the queue has room")
}

fn claim(cluster: &Arc<Cluster>, tried: &[usize]) -> SlotClaim {
    SlotClaim {
        hosts: Arc::clone(&cluster.hosts),
        tried: tried.iter().map(|&number| host(cluster, number)).collect(),
    }
}

/// The slot of a request that has waited, if it has one.
fn assigned(pending: &mut PendingRequest<'_>) -> Option<Slot> {
    let polled = pin!(pending.assigned()).poll(&mut Context::from_waker(Waker::noop()));
    match polled {
        Poll::Ready(assignment) => Some(assignment.slot),
        Poll::Pending => None,
    }
}

/// A request, with the places for what is learned of it.
struct Sent {
    spec: ClusterSpec,
    request: Request<RequestBody>,
    client: ClientConnection,
    endpoint: Cell<Option<usize>>,
    attempts: Cell<u32>,
    pending: Cell<Option<Duration>>,
    is_owed: Cell<bool>,
    deadline: Option<(Instant, Duration)>,
}

impl Sent {
    fn new() -> Self {
        let address = std::net::SocketAddr::from(([127, 0, 0, 1], 1));
        Sent {
            spec: cluster_spec(&[]),
            request: Request::new(RequestBody::empty()),
            client: ClientConnection {
                id: 0,
                peer: address.into(),
                local: address.into(),
                asked_port: None,
                scheme: Scheme::Http,
                server_name: None,
                tls_version: None,
                worker: 0,
                informational: Default::default(),
                drain: DrainWatcher::default(),
            },
            endpoint: Cell::new(None),
            attempts: Cell::new(0),
            pending: Cell::new(None),
            is_owed: Cell::new(false),
            deadline: None,
        }
    }

    fn outbound(&mut self) -> OutboundRequest<'_> {
        OutboundRequest {
            spec: &self.spec,
            request: &mut self.request,
            informational: None,
            client: &self.client,
            worker: 0,
            dscp: None,
            key: None,
            endpoint: &self.endpoint,
            attempts: &self.attempts,
            pending: &self.pending,
            deadline: self.deadline,
            replay: BodyReplay::Once,
            is_owed: &self.is_owed,
        }
    }

    /// Takes a slot, or waits for one.
    async fn slot(
        &mut self,
        cluster: &Arc<Cluster>,
        tried: &[usize],
    ) -> Result<Slot, UpstreamErrorKind> {
        let mut set = cluster.hosts.load_full();
        let mut tried = Tried::from_slice(tried);
        let picked = set.pick(&tried, None, cluster.max_in_flight());
        let bound = match cluster.take_slot(&set, picked, &tried) {
            Ok(slot) => return Ok(slot),
            Err(bound) => bound,
        };
        let outbound = self.outbound();
        let waited = cluster.wait_for_slot(bound, &mut set, &mut tried, &outbound);
        waited.await.map_err(|error| error.kind)
    }
}

#[test]
fn hosts_with_free_slots_come_before_the_queue() {
    let cluster = cluster(3, Some(bound(2)), None);
    let mut slots: Vec<_> = (0..6)
        .map(|_| take(&cluster, &[]).expect("a slot"))
        .collect();
    assert_eq!(in_flight(&cluster), [2, 2, 2]);
    assert!(take(&cluster, &[]).is_none());
    let (number, _) = slots.swap_remove(3);
    let next = take(&cluster, &[]).expect("a slot");
    assert_eq!(next.0, number);
}

#[test]
fn without_a_bound_every_request_has_a_slot() {
    let cluster = cluster(2, None, None);
    let slots: Vec<_> = (0..100)
        .map(|_| take(&cluster, &[]).expect("a slot"))
        .collect();
    drop(slots);
    assert_eq!(in_flight(&cluster), [0, 0]);
}

#[test]
fn a_slot_goes_to_the_first_that_waits_and_newcomers_wait_behind() {
    let cluster = cluster(1, Some(bound(1)), None);
    let holder = take(&cluster, &[]).expect("a slot");
    let (mut first, mut second) = (wait(&cluster, &[]), wait(&cluster, &[]));
    assert!(assigned(&mut first).is_none());
    drop(holder);
    assert!(take(&cluster, &[]).is_none(), "it has gone to the first");
    assert!(assigned(&mut second).is_none());
    let slot = assigned(&mut first).expect("the slot");
    drop(slot);
    assert!(assigned(&mut second).is_some());
}

#[test]
fn a_request_that_leaves_passes_on_the_slot_that_it_was_given() {
    let cluster = cluster(1, Some(bound(1)), None);
    let holder = take(&cluster, &[]).expect("a slot");
    let first = wait(&cluster, &[]);
    let between = wait(&cluster, &[]);
    let mut last = wait(&cluster, &[]);
    drop(between);
    drop(holder);
    assert_eq!(in_flight(&cluster), [1], "given to the first");
    drop(first);
    assert!(assigned(&mut last).is_some());
    assert_eq!(in_flight(&cluster), [0]);
}

#[test]
fn a_retry_waits_for_another_host_and_holds_up_nobody() {
    let cluster = cluster(2, Some(bound(1)), None);
    let mut held: Vec<_> = (0..2)
        .map(|_| take(&cluster, &[]).expect("a slot"))
        .collect();
    held.sort_by_key(|(number, _)| *number);
    let mut retry = wait(&cluster, &[0]);
    let mut other = wait(&cluster, &[]);
    drop(held.remove(0));
    assert!(assigned(&mut retry).is_none());
    let (number, _) = assigned(&mut other).expect("the first host is of no use to the retry");
    assert_eq!(number, 0);
    drop(held);
    assert_eq!(assigned(&mut retry).expect("a slot").0, 1);
}

#[test]
fn a_newcomer_takes_a_slot_that_is_of_no_use_to_those_that_wait() {
    let cluster = cluster(2, Some(bound(1)), None);
    let mut held: Vec<_> = (0..2)
        .map(|_| take(&cluster, &[]).expect("a slot"))
        .collect();
    held.sort_by_key(|(number, _)| *number);
    let mut retry = wait(&cluster, &[0]);
    drop(held.remove(0));
    assert_eq!(take(&cluster, &[]).expect("a slot").0, 0);
    assert!(assigned(&mut retry).is_none());
}

#[test]
fn an_ejected_host_gets_nobody_until_it_is_back() {
    let cluster = cluster(2, Some(bound(1)), None);
    let mut held: Vec<_> = (0..2)
        .map(|_| take(&cluster, &[]).expect("a slot"))
        .collect();
    held.sort_by_key(|(number, _)| *number);
    let mut waiting = wait(&cluster, &[]);
    let first = host(&cluster, 0);
    let now = Instant::now();
    let ejected = first
        .health
        .eject(&EJECTION, EjectionReason::ConnectFailure, false, now);
    assert!(ejected.is_some());
    drop(held.remove(0));
    assert!(assigned(&mut waiting).is_none());
    assert!(take(&cluster, &[]).is_none());
    first
        .health
        .tick(Some(&EJECTION), Duration::ZERO, now + EJECTION.max);
    cluster.tick();
    assert_eq!(assigned(&mut waiting).expect("a slot").0, 0);
}

#[test]
fn all_hosts_are_used_if_all_are_left_out() {
    let cluster = cluster(2, Some(bound(1)), None);
    let held: Vec<_> = (0..2)
        .map(|_| take(&cluster, &[]).expect("a slot"))
        .collect();
    let mut waiting = wait(&cluster, &[]);
    for number in 0..2 {
        let host = host(&cluster, number);
        host.health.eject(
            &EJECTION,
            EjectionReason::ConnectFailure,
            false,
            Instant::now(),
        );
    }
    drop(held);
    assert!(assigned(&mut waiting).is_some());
    assert!(take(&cluster, &[]).is_some());
}

#[test]
fn a_reload_raises_and_lowers_the_bound_of_those_that_wait() {
    let before = cluster(1, Some(bound(1)), None);
    let first = take(&before, &[]).expect("a slot");
    let mut waiting: Vec<_> = (0..4).map(|_| wait(&before, &[])).collect();
    let raised = cluster(1, Some(bound(3)), Some(&before));
    assert_eq!(in_flight(&raised), [3]);
    let mut served: Vec<_> = waiting.iter_mut().filter_map(assigned).collect();
    assert_eq!(served.len(), 2);
    let lowered = cluster(1, Some(bound(1)), Some(&raised));
    drop(first);
    drop(served.pop());
    assert_eq!(in_flight(&lowered), [1]);
    assert!(assigned(&mut waiting[2]).is_none());
    assert!(
        take(&before, &[]).is_none(),
        "also under the ruleset before"
    );
    let unbounded = cluster(1, None, Some(&lowered));
    assert!(waiting[2..].iter_mut().all(|one| assigned(one).is_some()));
    assert!(take(&unbounded, &[]).is_some());
}

#[test]
fn other_addresses_serve_those_that_wait() {
    let before = cluster(1, Some(bound(1)), None);
    let _held = take(&before, &[]).expect("a slot");
    let mut waiting = wait(&before, &[]);
    // As after a lookup.
    let more = cluster(2, Some(bound(1)), Some(&before)).hosts.load_full();
    before.hosts.store(more);
    before.offer_slots();
    assert_eq!(assigned(&mut waiting).expect("a slot").0, 1);
}

#[tokio::test(start_paused = true)]
async fn a_wait_ends_after_max_wait_and_all_waits_of_a_request_count() {
    let cluster = cluster(1, Some(bound(1)), None);
    let held = take(&cluster, &[]).expect("a slot");
    let mut sent = Sent::new();
    let began = Instant::now();
    let error = sent.slot(&cluster, &[]).await.expect_err("no slot");
    let is_late = matches!(error, UpstreamErrorKind::PendingTimeout(wait) if wait == 10 * SECOND);
    assert!(is_late, "{error}");
    assert_eq!(began.elapsed().as_secs(), 10);
    assert!(cluster.pending.is_empty());
    // It has waited for as long as it may.
    assert!(sent.slot(&cluster, &[]).await.is_err());
    assert_eq!(began.elapsed().as_secs(), 10);
    assert_eq!(sent.pending.get().map(|wait| wait.as_secs()), Some(10));
    drop(held);
    assert!(sent.slot(&cluster, &[]).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_slot_that_became_free_before_the_request_was_in_the_queue_is_not_missed() {
    let cluster = cluster(1, Some(bound(1)), None);
    let only = host(&cluster, 0);
    only.in_flight.fetch_add(1, SeqCst);
    let (mut set, mut tried) = (cluster.hosts.load_full(), Tried::new());
    let bound = cluster.take_slot(&set, 0, &[]).expect_err("it is full");
    // The other request ends meanwhile, and finds nobody in the queue.
    only.in_flight.fetch_sub(1, SeqCst);
    cluster.pending.offer(&only);
    let mut sent = Sent::new();
    let outbound = sent.outbound();
    let waited = cluster.wait_for_slot(bound, &mut set, &mut tried, &outbound);
    assert!(waited.await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn the_time_for_the_whole_request_ends_a_wait() {
    let cluster = cluster(1, Some(bound(1)), None);
    let _held = take(&cluster, &[]).expect("a slot");
    let mut sent = Sent::new();
    sent.deadline = Some((Instant::now() + SECOND, SECOND));
    let error = sent.slot(&cluster, &[]).await.expect_err("no slot");
    assert!(matches!(error, UpstreamErrorKind::Deadline(time) if time == SECOND));
}

#[tokio::test(start_paused = true)]
async fn as_many_wait_as_may_and_the_next_is_refused_at_once() {
    let few = ConnectionBound {
        max_pending: 1,
        ..bound(1)
    };
    let cluster = cluster(1, Some(few), None);
    let held = take(&cluster, &[]).expect("a slot");
    let mut waiting = wait(&cluster, &[]);
    let mut sent = Sent::new();
    let error = sent.slot(&cluster, &[]).await.expect_err("no place");
    assert!(
        matches!(error, UpstreamErrorKind::PendingFull(1)),
        "{error}"
    );
    assert_eq!(sent.pending.get(), Some(Duration::ZERO));
    drop(held);
    let slot = assigned(&mut waiting);
    let mut next = pin!(sent.slot(&cluster, &[]));
    let mut cx = Context::from_waker(Waker::noop());
    assert!(next.as_mut().poll(&mut cx).is_pending());
    drop(slot);
    assert!(next.await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_wait_is_counted_however_it_ends() {
    let cluster = cluster(1, Some(bound(1)), None);
    let _held = take(&cluster, &[]).expect("a slot");
    let mut sent = Sent::new();
    {
        let mut slot = pin!(sent.slot(&cluster, &[]));
        let mut cx = Context::from_waker(Waker::noop());
        assert!(slot.as_mut().poll(&mut cx).is_pending());
        advance(3 * SECOND).await;
    }
    assert_eq!(sent.pending.get(), Some(3 * SECOND));
    assert!(cluster.pending.is_empty());
}

/// A request that takes a slot or waits for one. Every fifth client leaves soon.
async fn request(number: usize, cluster: Arc<Cluster>, inside: Arc<AtomicUsize>) -> usize {
    let mut sent = Sent::new();
    let slot = sent.slot(&cluster, &[]);
    let slot = tokio::select! {
        biased;
        slot = slot => slot,
        () = yield_now(), if number.is_multiple_of(5) => return 0,
    };
    let slot = slot.expect("a slot in time");
    assert!(inside.fetch_add(1, SeqCst) < 4);
    yield_now().await;
    inside.fetch_sub(1, SeqCst);
    drop(slot);
    1
}

#[test]
fn slots_pass_between_threads_and_none_is_lost() {
    const REQUESTS: usize = 2_000;
    let many = ConnectionBound {
        max_pending: 1_000,
        max_wait: 20 * SECOND,
        ..bound(2)
    };
    let cluster = cluster(2, Some(many), None);
    let inside = Arc::new(AtomicUsize::new(0));
    let serve = |_| {
        let (cluster, inside) = (Arc::clone(&cluster), Arc::clone(&inside));
        thread::spawn(move || {
            let mut runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = runtime.enable_time().build().expect("a runtime");
            LocalSet::new().block_on(&runtime, async {
                let mut requests = JoinSet::new();
                let mut served = 0;
                for number in 0..REQUESTS {
                    let request = request(number, Arc::clone(&cluster), Arc::clone(&inside));
                    requests.spawn_local(request);
                    if requests.len() == 20 {
                        served += requests
                            .join_next()
                            .await
                            .map_or(0, |one| one.expect("no panic"));
                    }
                }
                served + requests.join_all().await.iter().sum::<usize>()
            })
        })
    };
    let threads: Vec<_> = (0..4).map(serve).collect();
    let served = threads.into_iter().map(|one| one.join().expect("no panic"));
    assert!(served.sum::<usize>() >= 4 * REQUESTS * 4 / 5);
    assert_eq!(in_flight(&cluster), [0, 0]);
    assert!(cluster.pending.is_empty());
}
