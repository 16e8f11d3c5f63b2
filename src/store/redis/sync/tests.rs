//! Machines on virtual time, and a server that works like `sync.lua`, and may be out of reach, or
//! lose its answer.

mod bound;
mod resets;
mod tracking;

use std::collections::HashMap;
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::limiter::algorithms::{
    FixedWindow, Gcra, IntervalRefill, OldestPart, SlidingCounters, SlidingWindow, Start,
};
use crate::limiter::charge_all;
use crate::limiter::{Algorithm, Fingerprint, Quota};
use crate::store::{Charge, KnownUnits, OnFull, Table};

const SECOND: u64 = 1_000_000;
/// An instant in the middle of an epoch.
const START: u64 = 1_700_000_001 * SECOND;

/// The server's totals: units by node, by name.
#[derive(Default)]
struct Server(HashMap<Vec<u8>, HashMap<u64, u64>>);

impl Server {
    fn run(&mut self, node: u64, request: &SyncRequest) -> Totals {
        let totals = self.0.entry(request.name.clone()).or_default();
        let own = totals.get(&node).copied().unwrap_or_default();
        if request.own > own {
            totals.insert(node, request.own);
        }
        let others = totals.iter().filter(|(other, _)| **other != node);
        let others = others.map(|(_, units)| units).sum();
        Totals { others, own }
    }
}

struct Node {
    id: u64,
    table: Arc<Table>,
    tracker: Arc<Tracker>,
    /// The admitted units by key, as the tracker has recorded them.
    admitted: HashMap<u64, u64>,
}

impl Node {
    fn new(id: u64, algorithm: &Algorithm) -> Self {
        let table = Table::new("p", algorithm.clone(), 64, OnFull::Forget);
        let table = Arc::new(table);
        let tracker = Tracker::new("p", Arc::clone(&table));
        Self {
            id,
            table,
            tracker: Arc::new(tracker.expect("it can be synchronised")),
            admitted: HashMap::new(),
        }
    }

    /// Charges a key; returns true if it is admitted.
    fn request(&mut self, key: u64, cost: u32, now: u64) -> bool {
        let (key, now) = (Fingerprint::from_bits(key), Timestamp::from_micros(now));
        let charge = Charge::new(&self.table, key, cost);
        let decision = charge_all(&[charge], now).decisions[0];
        if decision.is_admitted() {
            let name = || format!("sg:{{{}}}p", key.bits()).into();
            self.tracker.note(key, cost, decision.cell, now, name);
            *self.admitted.entry(key.bits()).or_default() += u64::from(cost);
        }
        decision.is_admitted()
    }

    fn requests(&self, now: u64) -> Vec<SyncRequest> {
        let (mut requests, now) = (Vec::new(), Timestamp::from_micros(now));
        self.tracker.begin_round(now);
        for shard in 0..SHARDS {
            self.tracker.due(shard, now, &mut requests);
        }
        requests
    }

    fn apply_totals(&self, request: &SyncRequest, totals: Totals, now: u64) {
        let now = Timestamp::from_micros(now);
        self.tracker.apply_totals(request, totals, now);
    }

    /// A whole round at an instant, with this part of it lost.
    fn round(&self, server: &mut Server, lost: Lost, now: u64) {
        for request in self.requests(now) {
            if lost == Lost::Push {
                continue;
            }
            let others = server.run(self.id, &request);
            if lost == Lost::Nothing {
                self.apply_totals(&request, others, now);
            }
        }
    }

    fn left(&self, key: u64, now: u64) -> u32 {
        let (key, now) = (Fingerprint::from_bits(key), Timestamp::from_micros(now));
        self.table.peek(key, 0, now).remaining.try_into().unwrap()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lost {
    Nothing,
    ScriptReply,
    Push,
}

#[derive(Clone, Debug)]
enum Event {
    Request {
        key: u64,
        cost: u32,
    },
    Round(Lost),
    /// The process restarts without data.
    Restart,
    /// The server loses its data.
    Forget,
}

fn events() -> impl Strategy<Value = Vec<(usize, u64, Event)>> {
    let lost = prop_oneof![
        4 => Just(Lost::Nothing),
        1 => Just(Lost::ScriptReply),
        1 => Just(Lost::Push),
    ];
    let event = prop_oneof![
        12 => (1..=2_u64, 1..=9_u32).prop_map(|(key, cost)| Event::Request { key, cost }),
        8 => lost.prop_map(Event::Round),
        1 => Just(Event::Restart),
        1 => Just(Event::Forget),
    ];
    prop::collection::vec((0..3_usize, 0..200_000_u64, event), 1..120)
}

fn quota(limit: u32, window: u64) -> Quota {
    Quota::new(limit, Duration::from_micros(window)).expect("a quota")
}

fn gcra(limit: u32, window: u64, burst: u32) -> Algorithm {
    Algorithm::Gcra(Gcra::new(quota(limit, window), burst).expect("a burst"))
}

fn fixed(limit: u32, window: u64, start: Start) -> Algorithm {
    Algorithm::FixedWindow(FixedWindow::new(quota(limit, window), start))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    /// Windows are so long that nothing is refilled. At rest, every machine that charged a key
    /// knows exactly the sum of all charges, unless a server and a process have lost some together.
    #[test]
    fn no_charge_counts_twice_or_is_lost_whatever_fails(
        events in events(), is_staggered: bool,
    ) {
        let start = if is_staggered { Start::Staggered } else { Start::EPOCH };
        let algorithm = fixed(1 << 30, 100_000 * SECOND, start);
        let mut server = Server::default();
        let mut nodes: Vec<_> = (0..3).map(|id| Node::new(id, &algorithm)).collect();
        let (mut now, mut ids) = (START, 3);
        // The units by key of processes that are gone.
        let (mut gone, mut forgets) = (HashMap::<u64, u64>::new(), false);
        for (place, gap, event) in events {
            now += gap;
            let node = &mut nodes[place];
            match event {
                Event::Request { key, cost } => prop_assert!(node.request(key, cost, now)),
                Event::Round(lost) => node.round(&mut server, lost, now),
                Event::Restart => {
                    for (key, units) in &node.admitted {
                        *gone.entry(*key).or_default() += units;
                    }
                    *node = Node::new(ids, &algorithm);
                    ids += 1;
                }
                Event::Forget => {
                    server.0.clear();
                    forgets = true;
                }
            }
        }
        // The server knows the reports of processes that are gone.
        for _ in 0..70 {
            for node in &mut nodes {
                now += 10_000;
                node.round(&mut server, Lost::Nothing, now);
            }
        }
        for key in 1..=2 {
            let here: u64 = nodes.iter().filter_map(|node| node.admitted.get(&key)).sum();
            let all = here + gone.get(&key).copied().unwrap_or(0);
            let known = server.0.values().zip(server.0.keys());
            let named = format!("sg:{{{key}}}p:");
            let known = known.filter(|(_, name)| name.starts_with(named.as_bytes()));
            let known: u64 = known.flat_map(|(totals, _)| totals.values()).sum();
            prop_assert!(known <= all && known >= here);
            for node in nodes.iter().filter(|node| node.admitted.contains_key(&key)) {
                let used = u64::from((1_u32 << 30) - node.left(key, now));
                prop_assert!(used <= all, "{used} of {all} counted");
                prop_assert!(used >= here, "{used} of {here} counted");
                prop_assert!(forgets || used == known, "{used}, where {known} are known");
            }
        }
    }

    /// No machine has more left than if all had charged one bucket, or less than if all reports had
    /// been charged now.
    #[test]
    fn recovering_buckets_have_used_the_sum_of_all_charges(
        events in events(), which in 0..3_usize,
    ) {
        let algorithm = &[
            gcra(1_000, 20 * SECOND, 2_000),
            Algorithm::TokenBucket(Gcra::new(quota(1_000, 3 * SECOND), 1_000).unwrap()),
            Algorithm::IntervalRefill(
                IntervalRefill::new(1_000, 70, Duration::from_millis(400)).unwrap(),
            ),
        ][which];
        let mut server = Server::default();
        let mut nodes: Vec<_> = (0..3).map(|id| Node::new(id, algorithm)).collect();
        let truth = Table::new("all", algorithm.clone(), 64, OnFull::Forget);
        let mut now = START;
        for (place, gap, event) in events {
            now += gap;
            match event {
                Event::Request { key, cost } if nodes[place].request(key, cost, now) => {
                    let key = Fingerprint::from_bits(key);
                    let charge = Charge::new(&truth, key, cost);
                    let at = Timestamp::from_micros(now);
                    charge.charge_remote(at, at);
                }
                Event::Round(lost) => nodes[place].round(&mut server, lost, now),
                Event::Request { .. } | Event::Restart | Event::Forget => {}
            }
        }
        for _ in 0..70 {
            for node in &mut nodes {
                node.round(&mut server, Lost::Nothing, now);
            }
        }
        for key in 1..=2_u64 {
            let all: u64 = nodes.iter().filter_map(|node| node.admitted.get(&key)).sum();
            let best = truth.peek(Fingerprint::from_bits(key), 0, Timestamp::from_micros(now));
            // Each machine counts refills from another instant.
            let most = best.remaining + if which == 2 { 70 } else { 0 };
            for node in &nodes {
                let is_in_use = node.tracker.knows(Fingerprint::from_bits(key));
                let left = node.left(key, now);
                prop_assert!(!is_in_use || u64::from(left) <= most, "{left} of {most}");
                prop_assert!(u64::from(left) + all >= algorithm.capacity());
            }
        }
    }
}
