//! Memory buckets of several machines, synchronised through a real server that is stopped, killed,
//! and loses its data. `src/store/redis/sync/tests.rs` has virtual time and more failures.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crate::clock::Clock;
use crate::limiter::algorithms::{FixedWindow, Gcra, LeakyBucket, Start};
use crate::limiter::charge_all;
use crate::limiter::{Algorithm, Fingerprint, KeyParts, Quota};
use crate::store::redis::client::FaultKind;
use crate::store::redis::naming::{KeyFormat, Naming};
use crate::store::redis::script::SYNC;
use crate::store::redis::sync::{Synchroniser, Tracker};
use crate::store::{Charge, OnFull, Table};
use crate::telemetry::metrics::SyncMetrics;
use tokio::time::sleep;

use super::worker::{Store, UP};
use crate::support::redis::RedisServer;
use crate::support::redis::{SLACK, command};
use crate::support::{now, wait_for};

const INTERVAL: Duration = Duration::from_millis(50);
/// More than any test charges.
const MOST: u32 = 1 << 30;

/// A machine: its store, its buckets, and their synchroniser.
struct Node {
    store: Store,
    clock: Arc<Clock>,
    synchroniser: Arc<Synchroniser>,
    table: Arc<Table>,
    tracker: Arc<Tracker>,
}

impl Node {
    fn new(server: &RedisServer, algorithm: Algorithm) -> Self {
        let store = Store::at(server.address);
        let client = Arc::clone(&store.client);
        let metrics = SyncMetrics::new(&store.registry);
        let synchroniser = Arc::new(Synchroniser::new(client, INTERVAL, metrics));
        let table = table(algorithm);
        let tracker = Tracker::new("p", Arc::clone(&table)).expect("it can be synchronised");
        let tracker = Arc::new(tracker);
        synchroniser.follow(&tracker);
        let clock = Arc::new(Clock::system());
        let (running, its_clock) = (Arc::clone(&synchroniser), Arc::clone(&clock));
        store.runtime.spawn(async move {
            loop {
                running.round(0, &its_clock).await;
                sleep(INTERVAL).await;
            }
        });
        Self {
            store,
            clock,
            synchroniser,
            table,
            tracker,
        }
    }

    fn three(server: &RedisServer, algorithm: &Algorithm) -> Vec<Self> {
        let node = |_| Self::new(server, algorithm.clone());
        (1..=3).map(node).collect()
    }

    fn request(&self, key: u64, cost: u32) -> bool {
        let (bits, key, now) = (key, Fingerprint::from_bits(key), self.clock.now());
        let charge = Charge::new(&self.table, key, cost);
        let decision = charge_all(&[charge], now).decisions[0];
        if decision.is_admitted() {
            let cell = decision.cell;
            self.tracker.note(key, cost, cell, now, || name(bits));
        }
        decision.is_admitted()
    }

    /// The units of a key that its bucket knows.
    fn used(&self, key: u64) -> u32 {
        let peek = self
            .table
            .peek(Fingerprint::from_bits(key), 0, self.clock.now());
        (peek.capacity - peek.remaining).try_into().unwrap()
    }
}

fn table(algorithm: Algorithm) -> Arc<Table> {
    Arc::new(Table::new("p", algorithm, 1_000, OnFull::Forget))
}

fn name(key: u64) -> Vec<u8> {
    let naming = Naming {
        prefix: "sluicegate:".into(),
        keys: KeyFormat::Readable,
    };
    let mut builder = naming.name_builder();
    builder.part(2, key.to_string().as_bytes());
    builder.name("p")
}

fn quota(limit: u32, hours: u64) -> Quota {
    Quota::new(limit, Duration::from_hours(hours)).expect("a quota")
}

/// Windows of a century: none ends during a test.
fn counting(limit: u32) -> Algorithm {
    Algorithm::FixedWindow(FixedWindow::new(quota(limit, 876_000), Start::EPOCH))
}

fn all_know(nodes: &[Node], key: u64, units: u32) {
    wait_for(&format!("all to know of {units}"), || {
        nodes
            .iter()
            .all(|node| node.used(key) == units)
            .then_some(())
    });
}

#[test]
fn machines_admit_a_quota_and_what_others_admit_in_an_interval_and_a_round_trip() {
    const LIMIT: u32 = 300;
    const PACE: Duration = Duration::from_millis(5);
    let server = RedisServer::start();
    for algorithm in [
        counting(LIMIT),
        Algorithm::Gcra(Gcra::new(quota(LIMIT, 24), LIMIT).expect("a burst")),
    ] {
        command(&server, &["FLUSHALL"]);
        let nodes = Node::three(&server, &algorithm);
        nodes.iter().for_each(|node| node.store.wait_up());
        let started = now();
        // Each machine alone would admit its quota in half of the time.
        let admitted = thread::scope(|scope| {
            let drive = |node: &Node| {
                let mut admitted = Vec::new();
                while started.elapsed() < PACE * LIMIT * 2 {
                    if node.request(1, 1) {
                        admitted.push(started.elapsed());
                    }
                    thread::sleep(PACE);
                }
                admitted
            };
            let drivers = nodes.iter().map(|node| scope.spawn(move || drive(node)));
            let drivers: Vec<_> = drivers.collect();
            let admitted = drivers
                .into_iter()
                .map(|driver| driver.join().expect("no driver panics"));
            admitted.collect::<Vec<_>>()
        });
        let within = |instants: &Vec<Duration>| {
            let until = |first: &Duration| *first + INTERVAL + SLACK;
            let inside = |first| {
                instants
                    .iter()
                    .filter(move |at| *at >= first && *at < &until(first))
            };
            instants
                .iter()
                .map(|first| inside(first).count())
                .max()
                .unwrap_or(0)
        };
        let total: usize = admitted.iter().map(Vec::len).sum();
        let mut unknown: Vec<_> = admitted.iter().map(within).collect();
        unknown.sort_unstable();
        let beyond: usize = unknown[1..].iter().sum();
        assert!(total >= LIMIT as usize, "{total} admitted");
        assert!(
            total <= LIMIT as usize + beyond,
            "{total}, but only {beyond} beyond"
        );
        assert!(
            total < 2 * LIMIT as usize,
            "{total}: nobody heard of the others"
        );
    }
}

#[test]
fn all_machines_learn_all_charges_despite_a_server_that_stops_and_loses_data() {
    let mut server = RedisServer::start();
    let nodes = Node::three(&server, &counting(MOST));
    nodes.iter().for_each(|node| node.store.wait_up());
    let charge_all = |units: [u32; 3]| {
        for (node, units) in nodes.iter().zip(units) {
            (0..units).for_each(|_| assert!(node.request(1, 2)));
        }
    };
    charge_all([1, 20, 300]);
    all_know(&nodes, 1, 642);

    // No request waits for it, and the charges made meanwhile are reported afterwards.
    server.stop();
    charge_all([3, 0, 3]);
    nodes[0].store.wait_down(FaultKind::Timeout);
    let started = now();
    charge_all([0, 4, 0]);
    assert!(started.elapsed() < INTERVAL, "requests waited");
    server.go_on();
    all_know(&nodes, 1, 662);

    // The server comes back empty, and gets all reports again: they cause no new charge.
    server.kill();
    nodes[0].store.wait_down(FaultKind::Refused);
    charge_all([1, 1, 0]);
    server.start_again();
    all_know(&nodes, 1, 666);
    thread::sleep(INTERVAL * 40);
    charge_all([1, 1, 1]);
    all_know(&nodes, 1, 672);
}

#[test]
fn a_restarted_process_reads_the_reports_of_its_predecessor() {
    let server = RedisServer::start();
    let mut nodes = Node::three(&server, &counting(MOST));
    nodes.iter().for_each(|node| node.store.wait_up());
    nodes.iter().for_each(|node| assert!(node.request(7, 10)));
    all_know(&nodes, 7, 30);
    nodes[0] = Node::new(&server, counting(MOST));
    assert!(nodes[0].request(7, 1));
    all_know(&nodes, 7, 31);
    let keys = command(&server, &["KEYS", "*7*"]);
    let keys: Vec<String> = redis::from_redis_value(keys).expect("names");
    let [key] = &*keys else {
        panic!("one key, not {keys:?}");
    };
    assert!(key.starts_with("sluicegate:{7}p:sync:"), "{key}");
    let left = command(&server, &["PTTL", key]);
    assert!(redis::from_redis_value::<i64>(left).expect("a number") > 0);
}

#[test]
fn a_successor_table_continues_with_the_known_totals() {
    let server = RedisServer::start();
    let mut nodes = Node::three(&server, &counting(MOST));
    nodes.iter().for_each(|node| node.store.wait_up());
    nodes.iter().for_each(|node| assert!(node.request(1, 10)));
    all_know(&nodes, 1, 30);
    let reloaded = &mut nodes[0];
    let successor = table(counting(MOST - 1));
    let replaced = std::mem::replace(&mut reloaded.table, Arc::clone(&successor));
    replaced.migrate_to(Arc::clone(&successor), reloaded.clock.now());
    assert!(reloaded.tracker.can_continue_with(successor.algorithm()));
    reloaded.tracker.set_table(successor);
    assert!(reloaded.request(1, 5));
    assert!(nodes[1].request(1, 5));
    all_know(&nodes, 1, 40);
}

#[test]
fn a_new_tracker_beside_another_reads_its_reports() {
    let server = RedisServer::start();
    let mut node = Node::new(&server, counting(MOST));
    node.store.wait_up();
    assert!(node.request(1, 10));
    let told = || {
        let known = command(&server, &["KEYS", "*:sync:*"]);
        let known: Vec<String> = redis::from_redis_value(known).expect("names");
        (!known.is_empty()).then_some(())
    };
    wait_for("it to be told", told);
    // The same policy under a tracker of its own: the totals are separate.
    node.table = table(counting(MOST));
    let tracker = Tracker::new("p", Arc::clone(&node.table)).expect("it can be synchronised");
    node.tracker = Arc::new(tracker);
    node.synchroniser.follow(&node.tracker);
    assert!(node.request(1, 1));
    all_know(std::slice::from_ref(&node), 1, 11);
}

#[test]
fn epochs_are_those_of_windows_of_one_length_and_some_have_none() {
    let fixed = |hours, start| Algorithm::FixedWindow(FixedWindow::new(quota(5, hours), start));
    let tracked = |algorithm| Tracker::new("p", table(algorithm));
    let tracker = tracked(fixed(1, Start::EPOCH)).expect("it can be synchronised");
    assert!(tracker.can_continue_with(&fixed(1, Start::Staggered)));
    assert!(!tracker.can_continue_with(&fixed(2, Start::EPOCH)));
    let queue = LeakyBucket::new(quota(5, 1), 5, Duration::MAX, 0).expect("a queue");
    let queue = Algorithm::LeakyBucket(queue);
    assert!(!tracker.can_continue_with(&queue));
    assert!(tracked(queue).is_none());
    assert!(tracked(fixed(1, Start::FirstRequest)).is_none());
}

#[test]
fn keys_of_other_programs_are_logged_once_and_affect_no_other_key() {
    let server = RedisServer::start();
    let nodes = Node::three(&server, &counting(MOST));
    nodes.iter().for_each(|node| node.store.wait_up());
    nodes.iter().for_each(|node| assert!(node.request(1, 1)));
    all_know(&nodes, 1, 3);
    let keys = command(&server, &["KEYS", "*:sync:*"]);
    let keys: Vec<String> = redis::from_redis_value(keys).expect("names");
    command(&server, &["SET", &keys[0], "something else"]);
    nodes.iter().for_each(|node| assert!(node.request(1, 1)));
    nodes.iter().for_each(|node| assert!(node.request(2, 1)));
    all_know(&nodes, 2, 3);
    wait_for("a message", || {
        (nodes[0].store.lines().len() == 2).then_some(())
    });
    thread::sleep(INTERVAL * 4);
    nodes[0].store.said(&[UP, "buckets cannot be synchronised"]);
    command(&server, &["DEL", &keys[0]]);
    all_know(&nodes, 1, 6);
}

/// More keys than one script takes, each with units of its own, and one of another program.
#[test]
fn keys_that_share_scripts_each_have_their_own_units() {
    const KEYS: u32 = 150;
    // Spread like hashes: a table has room for few keys that differ in some bits only.
    let spread = |key: u32| u64::from(key).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let server = RedisServer::start();
    let nodes = Node::three(&server, &counting(MOST));
    nodes.iter().for_each(|node| node.store.wait_up());
    nodes.iter().for_each(|node| assert!(node.request(0, 1)));
    all_know(&nodes, 0, 3);
    let keys = command(&server, &["KEYS", "*:sync:*"]);
    let [foreign] = redis::from_redis_value::<[String; 1]>(keys).expect("a name");
    command(&server, &["SET", &foreign, "something else"]);
    for (times, key) in (1..=3).flat_map(|times| (0..=KEYS).map(move |key| (times, key))) {
        let node = &nodes[times % nodes.len()];
        assert!(node.request(spread(key), key + 1));
    }
    (1..=KEYS).for_each(|key| all_know(&nodes, spread(key), 3 * (key + 1)));
}

#[test]
fn totals_in_redis_never_fall_and_queries_leave_no_key() {
    let server = RedisServer::start();
    let key = "sluicegate:{k}p:sync:1:2";
    let sync = |node: &str, own: &str| {
        let others = command(&server, &["EVAL", SYNC, "1", key, node, "60000", own, "0"]);
        let (totals, failure): (String, String) = redis::from_redis_value(others).expect("totals");
        assert_eq!(failure, "");
        let (others, own) = totals.split_once(',').expect("two numbers");
        let number = |text: &str| text.parse::<u64>().expect("a number");
        (number(others), number(own))
    };
    assert_eq!(sync("a", "0"), (0, 0));
    let exists = command(&server, &["EXISTS", key]);
    assert_eq!(redis::from_redis_value::<u64>(exists), Ok(0));
    assert_eq!(sync("a", "10"), (0, 0));
    assert_eq!(sync("b", "0"), (10, 0));
    assert_eq!(
        sync("a", "4"),
        (0, 10),
        "it was sent earlier, and comes late"
    );
    assert_eq!(sync("b", "281474976710656"), (10, 0));
    assert_eq!(sync("c", "0"), (10 + (1 << 48), 0));
    command(&server, &["HSET", key, "d", "what nobody wrote"]);
    assert_eq!(sync("a", "11"), (1 << 48, 10));
    let left = command(&server, &["PTTL", key]);
    let left = redis::from_redis_value::<u64>(left).expect("it has a time to live");
    assert!((50_000..=60_000).contains(&left), "{left}");
}

#[test]
fn totals_from_before_a_reset_are_dropped_and_do_not_return() {
    let server = RedisServer::start();
    let key = "sluicegate:{k}p:sync:1:2";
    let sync = |node: &str, own: &str, reset: &str| {
        let words = ["EVAL", SYNC, "1", key, node, "60000", own, reset];
        let reply = command(&server, &words);
        let (totals, failure): (String, String) = redis::from_redis_value(reply).expect("totals");
        assert_eq!(failure, "");
        totals
    };
    assert_eq!(sync("a", "10", "0"), "0,0");
    assert_eq!(sync("b", "5", "0"), "10,0");
    assert_eq!(sync("a", "1", "1700000000000007"), "0,0");
    assert_eq!(sync("b", "6", "0"), "@1700000000000007", "it has not heard");
    assert_eq!(sync("b", "2", "1700000000000007"), "1,0");
    assert_eq!(sync("a", "3", "1700000000000007"), "2,1");
    assert_eq!(sync("c", "0", "1700000000000008"), "0,0", "another reset");
    assert_eq!(sync("a", "3", "1700000000000007"), "@1700000000000008");
    let left = command(&server, &["PTTL", key]);
    let left = redis::from_redis_value::<u64>(left).expect("it has a time to live");
    assert!((50_000..=60_000).contains(&left), "{left}");
}
