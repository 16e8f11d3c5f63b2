//! How many connections a server has, and which of them gives way to a new one.
//!
//! Near the bound the connection that has been idle longest ends for each that comes, whichever
//! worker has it. At the bound a new client waits until a connection ends or becomes idle.

use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::time::Duration;

use parking_lot::Mutex;

use super::idle_list::IdleList;
use super::spec::ClientSpec;
use crate::http::client_counts::ClientCounts;
use crate::http::client_ip::ClientIp;
use crate::net::peer_address::PeerAddress;
use crate::net::permits::Permits;
use crate::telemetry::metrics::{ConnectionRefusal, ListenerMetrics};

/// The bounds of a server, shared by its workers and listeners, and their use.
#[derive(Debug)]
pub struct ConnectionBounds {
    pub(super) permits: Permits,
    pub(super) clients: ClientCounts,
    /// The most connections of a client.
    most: AtomicUsize,
    /// By worker. Only eviction locks the list of another.
    pub(super) idle: Box<[Mutex<IdleList>]>,
    /// Clients that wait for a permit.
    waiting: AtomicUsize,
    /// The longest exchange of a server whose busy connections give way, too.
    pub(super) max_exchange: Option<Duration>,
}

impl ConnectionBounds {
    pub(super) fn new(client: &ClientSpec, workers: usize, max_exchange: Option<Duration>) -> Self {
        let lists = std::iter::repeat_with(|| Mutex::new(IdleList::new()));
        let bounds = Self {
            permits: Permits::new(0),
            clients: ClientCounts::default(),
            most: AtomicUsize::new(0),
            idle: lists.take(workers).collect(),
            waiting: AtomicUsize::new(0),
            max_exchange,
        };
        bounds.adopt(client);
        bounds
    }

    /// Changes the bounds. Connections beyond them end once they are idle.
    pub(super) fn adopt(&self, client: &ClientSpec) {
        let max = client.max_connections.min(Permits::MAX);
        // By default one client leaves a quarter to others.
        let most = client.max_connections_per_client.unwrap_or(max - max / 4);
        self.most.store(most, Relaxed);
        self.permits.resize(max);
        let mut excess = self.permits.excess();
        while excess > 0 && self.evict() {
            excess -= 1;
        }
    }

    /// The number of open connections.
    pub fn open(&self) -> usize {
        self.permits.held()
    }

    /// The most connections at once.
    pub fn max(&self) -> usize {
        self.permits.max()
    }

    /// Returns true if nine tenths of the connections are in use.
    pub(super) fn is_near_max(&self) -> bool {
        self.permits.available() <= self.max() / 10
    }

    /// Returns true while a client waits for a connection to end, or there are more than the bound
    /// since that was lowered.
    pub(super) fn is_at_max(&self) -> bool {
        self.waiting.load(Relaxed) > 0 || self.permits.excess() > 0
    }

    /// Counts a connection of this client, unless it is a proxy: those carry many clients. Returns
    /// the address that is counted.
    ///
    /// # Errors
    /// When the client has as many connections as it may.
    pub(super) fn count_client(
        &self,
        client: PeerAddress,
        rules: &ClientIp,
        metrics: &ListenerMetrics,
    ) -> io::Result<Option<IpAddr>> {
        let Some(address) = client.ip().filter(|_| !rules.trusts(client)) else {
            return Ok(None);
        };
        let address = rules.identify(address);
        if self.clients.enter(address, self.most.load(Relaxed)) {
            Ok(Some(address))
        } else {
            metrics.refused.record(ConnectionRefusal::MaxPerClient);
            Err(io::Error::other("the client has too many connections"))
        }
    }

    /// Waits for the permit of a connection, for which an idle one gives way near the bound. A server whose
    /// busy connections give way evicts one at the bound. Tells `log` what the client waits for.
    pub(super) async fn acquire(&self, log: impl Fn(&str)) {
        if self.max_exchange.is_none() && self.is_near_max() {
            self.evict();
        }
        if self.permits.try_acquire() {
            return;
        }
        // Before the lists are looked at: a connection that becomes idle later sees it.
        // Where busy ones give way, one is evicted at once, and no other need end.
        let has_to_wait = self.max_exchange.is_none();
        let _waiting = has_to_wait.then(|| Waiting::new(&self.waiting));
        log(match (self.evict(), self.max_exchange) {
            (_, Some(_)) => "an older one gives way",
            (true, None) => "the connection that has been idle longest gives way",
            (false, None) => "no connection is idle, and new clients wait until one is",
        });
        self.permits.acquire().await;
    }

    /// Evicts the connection that has been idle longest, or an older one if busy ones give way.
    /// Returns false if none is idle.
    fn evict(&self) -> bool {
        if self.max_exchange.is_some() {
            let tasks = self.idle.iter().map(|list| list.lock().evict_of_all());
            tasks.flatten().for_each(std::task::Waker::wake);
            return true;
        }
        let oldest = |list: &Mutex<IdleList>| list.lock().oldest();
        let lists = self.idle.iter();
        let lists = lists.filter_map(|list| Some((oldest(list)?, list)));
        let oldest = lists.min_by_key(|(since, _)| *since);
        if let Some((_, list)) = &oldest {
            let task = list.lock().evict();
            task.into_iter().for_each(std::task::Waker::wake);
        }
        oldest.is_some()
    }

    /// The connections that give way to new ones, as the end of a sentence. `None` while there is room.
    pub fn giving_way(&self) -> Option<&'static str> {
        let mut lists = self.idle.iter();
        self.is_near_max().then(|| {
            if lists.any(|list| list.lock().oldest().is_some()) {
                "idle ones give way"
            } else {
                "none is idle to give way"
            }
        })
    }
}

/// Counts a client that waits, until dropped.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, SeqCst);
        Self(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::task::{Context, Waker};

    use tokio::time::Instant;

    use super::*;
    use crate::net::drain::DrainWatcher;
    use crate::server::connection_guard::ConnectionGuard;
    use crate::server::{ConnectionLife, HalfClose, Timeouts};
    use crate::telemetry::metrics::ListenerMetrics;
    use crate::telemetry::registry::Registry;

    fn bounds(max_connections: usize, per_client: Option<usize>) -> Arc<ConnectionBounds> {
        Arc::new(ConnectionBounds::new(
            &client(max_connections, per_client),
            2,
            None,
        ))
    }

    fn enter(bounds: &Arc<ConnectionBounds>, worker: usize) -> ConnectionGuard {
        assert!(bounds.permits.try_acquire(), "there is room");
        let metrics = Arc::new(ListenerMetrics::new(&Registry::default(), "test"));
        ConnectionGuard::new(bounds, worker, None, &metrics, DrainWatcher::default())
    }

    fn client(max_connections: usize, per_client: Option<usize>) -> ClientSpec {
        let second = Duration::from_secs(1);
        ClientSpec {
            timeouts: Timeouts {
                head: second,
                body: second,
                idle: second,
            },
            max_head: 1,
            max_fields: 1,
            max_connections,
            max_connections_per_client: per_client,
            life: ConnectionLife {
                max_requests: 1,
                max_lifetime: second,
            },
            half_close: HalfClose::Serve,
        }
    }

    #[tokio::test]
    async fn connections_beyond_a_lowered_bound_end_once_they_are_idle() {
        let bounds = bounds(4, None);
        let mut places: Vec<_> = (0..4).map(|_| enter(&bounds, 0)).collect();
        places[0].begin();
        places[1].begin();
        bounds.adopt(&client(1, None));
        let evicted: Vec<_> = places[2..].iter().map(is_evicted).collect();
        assert_eq!(evicted, [true, true]);
        places.truncate(2);
        assert_eq!((bounds.permits.held(), bounds.max()), (2, 1));
        assert!(bounds.is_at_max() && is_evicted(&places[1]));
        places.pop();
        assert!(!bounds.is_at_max() && !is_evicted(&places[0]));
        assert!(!bounds.permits.try_acquire());
        bounds.adopt(&client(3, None));
        let more = [enter(&bounds, 0), enter(&bounds, 0)];
        assert!(!bounds.permits.try_acquire());
        drop((places, more));
        assert_eq!(bounds.permits.held(), 0);
    }

    fn is_evicted(place: &ConnectionGuard) -> bool {
        let mut cx = Context::from_waker(Waker::noop());
        place.poll_evicted(&mut cx, Instant::now).is_ready()
    }

    #[tokio::test(start_paused = true)]
    async fn the_oldest_of_all_workers_gives_way() {
        let bounds = bounds(10, None);
        let mut places = Vec::new();
        for worker in [1, 0, 1, 0] {
            places.push(enter(&bounds, worker));
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        // The first is used again, the second is busy.
        places[0].begin();
        assert!(!is_evicted(&places[0]));
        places[1].begin();
        for evicted in [&[2][..], &[2, 3], &[2, 3, 0]] {
            bounds.evict();
            for one in [0, 2, 3] {
                assert_eq!(is_evicted(&places[one]), evicted.contains(&one));
            }
        }
        assert_eq!(bounds.permits.held(), 4);
        drop(places);
        assert_eq!(bounds.permits.held(), 0);
    }

    #[tokio::test]
    async fn a_connection_that_becomes_idle_gives_way_to_one_that_waits() {
        let bounds = bounds(1, None);
        let place = enter(&bounds, 0);
        place.begin();
        let mut waiting =
            Box::pin(bounds.acquire(|said| assert!(said.starts_with("no connection is idle"))));
        let mut cx = Context::from_waker(Waker::noop());
        assert!(waiting.as_mut().poll(&mut cx).is_pending());
        assert!(bounds.is_at_max() && is_evicted(&place));
        drop(place);
        assert!(waiting.as_mut().poll(&mut cx).is_ready());
        drop(waiting);
        assert!(!bounds.is_at_max());
    }

    #[test]
    fn a_client_leaves_a_quarter_to_others_by_default() {
        let rules = ClientIp {
            trusts_unix: true,
            trusted: vec!["10.0.0.0/8".parse().expect("a network")],
            ..ClientIp::default()
        };
        let metrics = ListenerMetrics::new(&Registry::default(), "test");
        let [client, proxy] = ["192.0.2.1:1", "10.0.0.1:1"]
            .map(|address| PeerAddress::Tcp(address.parse().expect("an address")));
        for (max, per_client, expected) in [(8, None, 6), (1, None, 1), (8, Some(2), 2)] {
            let bounds = bounds(max, per_client);
            let counted = || bounds.count_client(client, &rules, &metrics).is_ok();
            assert_eq!((0..20).take_while(|_| counted()).count(), expected);
            for proxy in [proxy, PeerAddress::Unix] {
                assert!((0..20).all(|_| bounds.count_client(proxy, &rules, &metrics).is_ok()));
            }
        }
    }
}
