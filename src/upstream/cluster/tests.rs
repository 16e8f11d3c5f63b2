//! Names that resolve, move, fail and hang, with a resolver of the test's and virtual time.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use http::uri::Authority;
use parking_lot::{Condvar, Mutex};
use tokio::task::{JoinHandle, yield_now};
use tokio::time::advance;

use super::*;
use crate::net::resolve::{Family, Resolver};
use crate::telemetry::registry::Registry;
use crate::upstream::endpoint::EndpointContext;
use crate::upstream::host::Host;
use crate::upstream::{
    Balance, ClusterTimeouts, ConnectionLimits, RetrySpec, UpstreamErrorKind, UpstreamProtocol,
};

const SECOND: Duration = Duration::from_secs(1);

/// Answers by name.
type Answers = HashMap<String, Result<Vec<String>, io::ErrorKind>>;

type Resolved = Result<Arc<HostSet>, (usize, UpstreamError)>;

/// A resolver with these answers. A name without an answer hangs.
#[derive(Clone)]
struct Names {
    answers: Arc<(Mutex<Answers>, Condvar)>,
    calls: Arc<Mutex<Vec<String>>>,
    resolver: &'static Resolver,
    registry: Registry,
}

impl Names {
    fn new() -> Self {
        let answers = Arc::<(Mutex<Answers>, Condvar)>::default();
        let calls = Arc::<Mutex<Vec<String>>>::default();
        let (known, noted) = (Arc::clone(&answers), Arc::clone(&calls));
        let look_up = move |name: &str, family| {
            // A part that is asked when the whole fails.
            if family != Family::Both || name.ends_with('.') {
                return Err(io::ErrorKind::NotFound.into());
            }
            noted.lock().push(name.to_owned());
            let mut answers = known.0.lock();
            loop {
                match answers.get(name) {
                    Some(Ok(found)) => return Ok(parsed(found)),
                    Some(Err(kind)) => return Err(io::Error::from(*kind)),
                    None => known.1.wait(&mut answers),
                }
            }
        };
        Names {
            answers,
            calls,
            resolver: Box::leak(Box::new(Resolver::new(Box::new(look_up)))),
            registry: Registry::default(),
        }
    }

    fn set(&self, name: &str, addresses: &[&str]) {
        let addresses = addresses.iter().map(|&one| one.to_owned()).collect();
        self.answers.0.lock().insert(name.to_owned(), Ok(addresses));
        self.answers.1.notify_all();
    }

    fn fail(&self, name: &str) {
        let failure = Err(io::ErrorKind::NotFound);
        self.answers.0.lock().insert(name.to_owned(), failure);
        self.answers.1.notify_all();
    }

    fn calls(&self) -> usize {
        self.calls.lock().len()
    }

    /// A cluster of these endpoints that finds those of `previous`.
    fn cluster(&self, endpoints: &[&'static str], previous: Option<&Cluster>) -> Arc<Cluster> {
        let spec = cluster_spec(endpoints);
        let upstream = "upstream".into();
        let context = EndpointContext {
            upstream: &upstream,
            workers: 1,
            registry: &self.registry,
            resolver: self.resolver,
            pending: Cluster::pending_queue(previous),
        };
        let known = previous.map_or(&[][..], |cluster| &cluster.endpoints);
        let endpoint = |spec| {
            let known = known.iter().find(|known| *known.spec() == spec);
            known.map_or_else(|| Arc::new(Endpoint::new(spec, &context)), Arc::clone)
        };
        Arc::new(Cluster::new(spec, &context, endpoint, previous))
    }

    fn metric(&self, name: &str) -> String {
        let text = self.registry.render();
        let line = text.lines().find(|line| line.starts_with(name));
        let value = line.and_then(|line| line.rsplit(' ').next());
        value.unwrap_or_default().to_owned()
    }
}

/// The settings of a cluster of these endpoints.
pub(super) fn cluster_spec(endpoints: &[&'static str]) -> ClusterSpec {
    let endpoint = |&authority: &&'static str| EndpointSpec {
        authority: Authority::from_static(authority),
        socket: None,
        tls: None,
        protocol: UpstreamProtocol::Http1,
        sends_proxy_header: false,
    };
    ClusterSpec {
        balance: Balance::RoundRobin,
        endpoints: endpoints.iter().map(|one| (endpoint(one), 1)).collect(),
        preserves_host: true,
        timeouts: ClusterTimeouts {
            connect: SECOND,
            response: SECOND,
            idle: SECOND,
            tunnel: SECOND,
            attempt: None,
            request: None,
        },
        connections: ConnectionLimits {
            max_lifetime: SECOND,
            max_requests: 1,
        },
        bound: None,
        resolve_every: 30 * SECOND,
        ejection: None,
        health: None,
        slow_start: Duration::ZERO,
        retries: RetrySpec::default(),
    }
}

fn parsed(addresses: &[String]) -> Vec<SocketAddr> {
    let parse = |one: &String| SocketAddr::new(one.parse().expect("an address"), 0);
    addresses.iter().map(parse).collect()
}

/// Sweeps, and waits for the lookups. Paused time stands still, since the test is never idle.
async fn sweep(cluster: &Arc<Cluster>) {
    cluster.sweep();
    while cluster.is_looked_up() {
        yield_now().await;
    }
}

/// Begins a request's wait for hosts.
fn begin(cluster: &Arc<Cluster>) -> JoinHandle<Resolved> {
    let cluster = Arc::clone(cluster);
    tokio::spawn(async move { cluster.resolved(None).await })
}

/// The result of a wait that no time-out ends: paused time stands still meanwhile.
async fn ended(waiting: JoinHandle<Resolved>) -> Resolved {
    while !waiting.is_finished() {
        yield_now().await;
    }
    waiting.await.expect("no panic")
}

fn hosts(cluster: &Cluster) -> Vec<Arc<Host>> {
    let set = cluster.hosts.load_full();
    set.hosts.iter().map(|one| Arc::clone(&one.host)).collect()
}

fn addresses(cluster: &Cluster) -> Vec<String> {
    let hosts = hosts(cluster);
    hosts
        .iter()
        .map(|host| host.connector.address.to_string())
        .collect()
}

#[tokio::test(start_paused = true)]
async fn a_name_is_looked_up_again_and_its_new_addresses_are_used() {
    let names = Names::new();
    names.set("api", &["10.0.0.2", "10.0.0.1"]);
    let cluster = names.cluster(&["api:80", "10.0.9.9:81"], None);
    assert_eq!(
        addresses(&cluster),
        ["10.0.9.9:81"],
        "an address needs no lookup"
    );
    sweep(&cluster).await;
    assert_eq!(
        addresses(&cluster),
        ["10.0.0.1:80", "10.0.0.2:80", "10.0.9.9:81"]
    );
    let before = hosts(&cluster);

    names.set("api", &["10.0.0.2", "10.0.0.3"]);
    advance(29 * SECOND).await;
    sweep(&cluster).await;
    assert_eq!(names.calls(), 1, "before resolve_every");
    advance(SECOND).await;
    sweep(&cluster).await;
    assert_eq!(
        addresses(&cluster),
        ["10.0.0.2:80", "10.0.0.3:80", "10.0.9.9:81"]
    );
    let after = hosts(&cluster);
    assert!(
        Arc::ptr_eq(&before[1], &after[0]),
        "10.0.0.2 keeps its connections"
    );
    assert!(Arc::ptr_eq(&before[2], &after[2]));
    let is_closed = |host: &Arc<Host>| host.pool.is_closed.load(Relaxed);
    assert_eq!(
        before.iter().map(is_closed).collect::<Vec<_>>(),
        [true, false, false]
    );
    assert_eq!(
        names.metric("sluicegate_upstream_hosts{upstream=\"upstream\",endpoint=\"api:80\"}"),
        "2"
    );
}

#[tokio::test(start_paused = true)]
async fn the_last_known_addresses_are_used_while_the_name_does_not_resolve() {
    let names = Names::new();
    names.set("api", &["10.0.0.1"]);
    let cluster = names.cluster(&["api:80"], None);
    sweep(&cluster).await;
    let known = hosts(&cluster);
    names.fail("api");
    advance(30 * SECOND).await;
    sweep(&cluster).await;
    // The next lookups follow sooner than usual: after 1 s, then 2 s.
    names.set("api", &[]);
    advance(SECOND).await;
    sweep(&cluster).await;
    names.set("api", &["0.0.0.0", "::"]);
    advance(SECOND).await;
    sweep(&cluster).await;
    assert_eq!(names.calls(), 3);
    advance(SECOND).await;
    sweep(&cluster).await;
    assert_eq!(names.calls(), 4);
    assert!(Arc::ptr_eq(&known[0], &hosts(&cluster)[0]));
    assert!(!known[0].pool.is_closed.load(Relaxed));
    assert_eq!(
        names.metric("sluicegate_upstream_lookup_failures_total{"),
        "3"
    );

    names.set("api", &["0.0.0.0", "10.0.0.7"]);
    advance(4 * SECOND).await;
    sweep(&cluster).await;
    assert_eq!(addresses(&cluster), ["10.0.0.7:80"]);
}

#[tokio::test(start_paused = true)]
async fn a_resolver_that_hangs_keeps_the_known_addresses_and_is_asked_once() {
    let names = Names::new();
    names.set("api", &["10.0.0.1"]);
    let cluster = names.cluster(&["api:80"], None);
    sweep(&cluster).await;
    names.answers.0.lock().clear();
    advance(30 * SECOND).await;
    cluster.sweep();
    while names.calls() < 2 {
        yield_now().await;
    }
    for _ in 0..100 {
        advance(SECOND).await;
        cluster.sweep();
        yield_now().await;
    }
    assert_eq!(addresses(&cluster), ["10.0.0.1:80"]);
    assert_eq!(names.calls(), 2);
    names.set("api", &["10.0.0.2"]);
    while addresses(&cluster) != ["10.0.0.2:80"] {
        advance(SECOND).await;
        sweep(&cluster).await;
    }
}

#[tokio::test(start_paused = true)]
async fn requests_before_the_first_answer_wait_for_it() {
    let names = Names::new();
    let cluster = names.cluster(&["api:80", "db:80"], None);
    let waiting = begin(&cluster);
    while names.calls() < 2 {
        yield_now().await;
    }
    names.fail("db");
    yield_now().await;
    names.set("api", &["10.0.0.1"]);
    let set = ended(waiting).await.expect("a name resolves");
    assert_eq!(
        set.hosts[0].host.connector.address.to_string(),
        "10.0.0.1:80"
    );
}

#[tokio::test(start_paused = true)]
async fn requests_end_when_no_name_resolves_or_the_resolver_hangs() {
    let names = Names::new();
    names.fail("api");
    names.fail("db");
    let cluster = names.cluster(&["api:80", "db:80"], None);
    let (_, error) = ended(begin(&cluster)).await.expect_err("no name resolves");
    assert!(
        matches!(error.kind, UpstreamErrorKind::Resolve(_)),
        "{error}"
    );

    let hanging = names.cluster(&["hanging:80"], None);
    let (number, error) = hanging.resolved(None).await.expect_err("no answer");
    let is_late =
        matches!(error.kind, UpstreamErrorKind::ConnectTimeout { after, .. } if after == SECOND);
    assert!(is_late && number == 0, "{error}");
    // The time for the whole request may end before.
    let (started, time) = (Instant::now(), SECOND / 4);
    let late = hanging.resolved(Some((started + time, time))).await;
    let (_, error) = late.expect_err("no answer");
    let is_late = matches!(error.kind, UpstreamErrorKind::Deadline(after) if after == time);
    assert!(is_late && started.elapsed() == time, "{error}");
    names.set("hanging", &[]);
}

#[tokio::test(start_paused = true)]
async fn a_reload_keeps_the_hosts_of_a_name() {
    let names = Names::new();
    names.set("api", &["10.0.0.1", "10.0.0.2"]);
    let before = names.cluster(&["api:80"], None);
    sweep(&before).await;
    let after = names.cluster(&["10.0.0.3:80", "api:80"], Some(&before));
    assert_eq!(
        addresses(&after),
        ["10.0.0.3:80", "10.0.0.1:80", "10.0.0.2:80"]
    );
    for (before, after) in hosts(&before).iter().zip(&hosts(&after)[1..]) {
        assert!(Arc::ptr_eq(before, after));
    }
    // Both are swept until no request uses the first: one lookup serves both.
    names.set("api", &["10.0.0.2"]);
    advance(30 * SECOND).await;
    sweep(&before).await;
    sweep(&after).await;
    assert_eq!(names.calls(), 2);
    assert_eq!(addresses(&after), ["10.0.0.3:80", "10.0.0.2:80"]);
}
