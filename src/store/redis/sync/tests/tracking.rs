//! The keys that a tracker knows, for how long, and in which epochs.

use super::*;
use crate::limiter::Cell;

fn key(bits: u64) -> Fingerprint {
    Fingerprint::from_bits(bits)
}

fn at(micros: u64) -> Timestamp {
    Timestamp::from_micros(micros)
}

fn name() -> Vec<u8> {
    b"sg:{k}p".to_vec()
}

/// Epochs of four seconds, of which the first ends three seconds after [`START`].
fn node(id: u64) -> Node {
    Node::new(id, &gcra(100, SECOND, 100))
}

const END: u64 = START + 3 * SECOND;

const NOBODY: Totals = Totals { others: 0, own: 0 };

#[test]
fn keys_are_known_for_this_epoch_and_the_next() {
    let node = node(0);
    let note = |bits, now| node.tracker.note(key(bits), 1, Cell::EMPTY, at(now), name);
    (1..=100).for_each(|bits| note(bits, START));
    // This epoch, and the one before.
    assert_eq!(node.requests(START).len(), 2 * 100);
    assert_eq!(node.requests(END + 4 * SECOND - 1).len(), 2 * 100);
    assert_eq!(node.requests(END + 4 * SECOND).len(), 0);
    assert_eq!(node.tracker.keys(), 0);
}

/// A client with 200,000 keys, each used thrice, and a key that others use once in 2,000 of its
/// requests.
#[test]
fn a_flood_of_keys_does_not_evict_a_busy_key() {
    let node = node(0);
    let note = |bits| {
        node.tracker
            .note(key(bits), 1, Cell::EMPTY, at(START), name)
    };
    for flood in 1..=600_000_u64 {
        note(100 + flood / 3);
        if flood % 2_000 == 0 {
            note(1);
        }
    }
    let requests = node.requests(START);
    let told = requests.iter().find(|one| one.key == key(1) && one.own > 0);
    assert_eq!(told.map(|one| one.own), Some(300));
    assert!(node.tracker.keys() < 200_000, "{}", node.tracker.keys());
    assert_eq!(node.tracker.untracked(), 0);
}

/// Otherwise its reports would be lost, and the charges of others made twice.
#[test]
fn an_evicted_key_continues_from_the_servers_totals() {
    let mut server = Server::default();
    let (mut one, mut other) = (node(0), node(1));
    one.tracker.set_room(1 << 15);
    let round = |node: &Node, server: &mut Server| node.round(server, Lost::Nothing, START);
    assert!(one.request(1, 20, START) && other.request(1, 10, START));
    for _ in 0..8 {
        round(&one, &mut server);
        round(&other, &mut server);
    }
    assert_eq!((one.left(1, START), other.left(1, START)), (70, 70));
    for bits in 1_000..3_000 {
        one.tracker.note(key(bits), 1, Cell::EMPTY, at(START), name);
    }
    assert!(!one.tracker.knows(key(1)));
    assert!(one.request(1, 5, START) && other.request(1, 3, START));
    // The first report may arrive without its answer.
    one.round(&mut server, Lost::ScriptReply, START);
    for _ in 0..8 {
        round(&one, &mut server);
        round(&other, &mut server);
    }
    assert_eq!(other.left(1, START), 100 - 38);
    // The other's earlier reports are not charged twice, and its new ones are.
    assert_eq!(one.left(1, START), 100 - 38);
    assert!(one.request(1, 1, START));
    for _ in 0..32 {
        round(&one, &mut server);
        round(&other, &mut server);
    }
    assert_eq!(other.left(1, START), 100 - 39);
}

/// Makes a node evict a key.
fn flood(node: &Node) {
    for bits in 1_000..3_000 {
        node.tracker
            .note(key(bits), 1, Cell::EMPTY, at(START), name);
    }
    assert!(!node.tracker.knows(key(1)));
}

#[test]
fn charges_of_others_to_an_evicted_key_count_at_its_next_use() {
    let mut server = Server::default();
    let (mut one, mut other) = (node(0), node(1));
    one.tracker.set_room(1 << 15);
    assert!(one.request(1, 1, START));
    one.round(&mut server, Lost::Nothing, START);
    flood(&one);
    assert!(other.request(1, 90, START));
    other.round(&mut server, Lost::Nothing, START);
    assert_eq!(other.left(1, START), 9);
    assert!(one.request(1, 1, START));
    for _ in 0..4 {
        one.round(&mut server, Lost::Nothing, START);
    }
    assert_eq!(one.left(1, START), 8);
    // It is charged once, however often it is evicted.
    flood(&one);
    assert!(one.request(1, 1, START));
    for _ in 0..4 {
        one.round(&mut server, Lost::Nothing, START);
    }
    assert_eq!(one.left(1, START), 7);
}

#[test]
fn an_answer_after_an_eviction_loses_nothing() {
    let mut server = Server::default();
    let (mut one, mut other) = (node(0), node(1));
    one.tracker.set_room(1 << 15);
    assert!(one.request(1, 5, START));
    let asked = one.requests(START);
    let answers: Vec<_> = asked.iter().map(|request| server.run(0, request)).collect();
    flood(&one);
    assert!(one.request(1, 3, START));
    for (request, totals) in asked.iter().zip(answers) {
        one.apply_totals(request, totals, START);
    }
    for _ in 0..4 {
        one.round(&mut server, Lost::Nothing, START);
    }
    assert!(other.request(1, 1, START));
    other.round(&mut server, Lost::Nothing, START);
    assert_eq!(other.left(1, START), 100 - 1 - 8);
}

#[test]
fn a_machine_that_starts_late_is_charged_for_the_last_epoch_as_of_its_end() {
    let mut server = Server::default();
    let (mut early, mut late) = (node(0), node(1));
    assert!(early.request(1, 60, END - 100_000));
    early.round(&mut server, Lost::Nothing, END - 50_000);
    assert!(late.request(1, 1, END + 200_000));
    assert_eq!(late.left(1, END + 200_000), 99);
    late.round(&mut server, Lost::Nothing, END + 200_000);
    assert_eq!(late.left(1, END + 200_000), 100 - 1 - (60 - 20));
    late.round(&mut server, Lost::Nothing, END + 200_000);
    assert_eq!(late.left(1, END + 200_000), 59, "it is charged once");
}

#[test]
fn an_ended_window_is_reported_once_more_and_counts_in_no_other() {
    let windows = fixed(100, 10 * SECOND, Start::EPOCH);
    let mut server = Server::default();
    let (mut one, mut other) = (Node::new(0, &windows), Node::new(1, &windows));
    let end = START + 9 * SECOND;
    assert!(one.request(1, 5, end - 1) && other.request(1, 7, end - 1));
    let told = one.requests(end);
    let [request] = &*told else {
        panic!("one request, not {told:?}");
    };
    assert_eq!(request.own, 5);
    server.run(1, &other.requests(end)[0]);
    let totals = server.run(0, request);
    one.apply_totals(request, totals, end);
    assert_eq!(one.left(1, end), 100);
    assert!(one.requests(end).is_empty());
    assert!(one.request(1, 2, end + 1));
    one.round(&mut server, Lost::Nothing, end + 1);
    other.round(&mut server, Lost::Nothing, end + 1);
    assert_eq!((one.left(1, end + 1), other.left(1, end + 1)), (98, 100));
    assert!(one.requests(end + 12 * SECOND).is_empty());
    assert_eq!(one.tracker.keys(), 0);
}

#[test]
fn totals_are_kept_for_the_length_of_their_epoch_after_its_end() {
    let mut node = node(0);
    assert!(node.request(1, 5, START));
    let ttl_millis: Vec<_> = node
        .requests(START)
        .iter()
        .map(|one| one.ttl_millis)
        .collect();
    assert_eq!(ttl_millis, [4_000, 3_000 + 4_000]);
}

#[test]
fn charges_under_a_wrong_clock_count_once_it_is_right() {
    let table = Arc::new(Table::new("p", gcra(100, SECOND, 100), 64, OnFull::Forget));
    let tracker = Tracker::new("p", table).expect("it recovers");
    tracker.set_clock_offset(86_400 * SECOND as i64);
    let note = |units, now| tracker.note(key(1), units, Cell::EMPTY, at(now), name);
    let told = |now| {
        let mut requests = Vec::new();
        (0..SHARDS).for_each(|shard| tracker.due(shard, at(now), &mut requests));
        let told = requests.into_iter().filter(|request| request.own > 0);
        told.map(|request| (request.end, request.own))
            .collect::<Vec<_>>()
    };
    note(5, START);
    tracker.set_clock_offset(0);
    note(3, START);
    assert_eq!(told(START), [(END, 8)]);
    // A slightly different estimate of the clock starts no epoch twice.
    note(1, END);
    assert_eq!(told(END), [(END, 8), (END + 4 * SECOND, 1)]);
    tracker.set_clock_offset(-10_000);
    note(1, END);
    assert_eq!(told(END), [(END, 8), (END + 4 * SECOND, 2)]);
}

#[test]
fn a_bucket_without_news_is_queried_less_and_less_often() {
    let mut server = Server::default();
    let (mut node, mut other) = (node(0), node(1));
    assert!(node.request(1, 1, START));
    let mut rounds = Vec::new();
    for round in 0..100 {
        let requests = node.requests(START);
        if requests.iter().any(|request| request.end == END) {
            rounds.push(round);
        }
        for request in requests {
            let others = server.run(node.id, &request);
            node.apply_totals(&request, others, START);
        }
    }
    assert_eq!(rounds, [0, 2, 6, 14, 30, 62, 94]);
    assert!(other.request(1, 1, START) && node.request(1, 1, START));
    other.round(&mut server, Lost::Nothing, START);
    assert!(node.requests(START).iter().any(|request| request.own == 2));
}

/// The rounds, of 40, that report this bucket, with `units` charged before each.
fn told_in(node: &mut Node, units: u32) -> Vec<usize> {
    let mut rounds = Vec::new();
    for round in 0..40 {
        assert!(node.request(1, units, START));
        let requests = node.requests(START);
        if requests.iter().any(|request| request.end == END) {
            rounds.push(round);
        }
        for request in requests {
            node.apply_totals(&request, NOBODY, START);
        }
    }
    rounds
}

#[test]
fn small_charges_wait_for_some_rounds() {
    let large = gcra(2_560, SECOND, 2_560);
    assert_eq!(
        told_in(&mut Node::new(0, &large), 1),
        [0, 2, 6, 14, 22, 30, 38]
    );
    assert_eq!(
        told_in(&mut Node::new(0, &large), 5),
        [
            0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30, 32, 34, 36, 38
        ]
    );
    let all: Vec<_> = (0..40).collect();
    assert_eq!(told_in(&mut Node::new(0, &large), 10), all);
    let small = gcra(500, SECOND, 500);
    assert_eq!(told_in(&mut Node::new(0, &small), 1), all);
}

#[test]
fn at_the_end_and_in_an_ended_epoch_no_charge_waits() {
    let large = gcra(2_560, SECOND, 2_560);
    let told = |node: &Node, now| {
        let requests = node.requests(now);
        let told = requests.iter().map(|one| (one.end, one.own));
        let told: Vec<_> = told.filter(|(_, own)| *own > 0).collect();
        for request in requests {
            node.apply_totals(&request, NOBODY, now);
        }
        told
    };
    let mut node = Node::new(0, &large);
    assert!(node.request(1, 1, START));
    assert_eq!(told(&node, START), [(END, 1)]);
    assert!(node.request(1, 1, START));
    assert_eq!(told(&node, START), []);
    node.tracker.report_all();
    assert_eq!(told(&node, START), [(END, 2)]);
    let mut node = Node::new(0, &large);
    assert!(node.request(1, 1, START));
    told(&node, START);
    assert!(node.request(1, 1, END - 1));
    assert!(told(&node, END).contains(&(END, 2)));
}

#[test]
fn a_process_that_takes_over_finds_the_charges_of_the_one_before_as_known() {
    let algorithm = gcra(100, 100_000 * SECOND, 100);
    let mut server = Server::default();
    let (mut old, mut other) = (Node::new(0, &algorithm), Node::new(1, &algorithm));
    // Some are reported, some not yet, and some are another node's.
    let rounds = |nodes: &[&Node], server: &mut Server, from: u64| {
        for round in 0..4 {
            let now = START + (from + round) * 10_000;
            nodes
                .iter()
                .for_each(|node| node.round(server, Lost::Nothing, now));
        }
    };
    (0..30).for_each(|_| assert!(old.request(1, 1, START)));
    (0..7).for_each(|_| assert!(other.request(1, 1, START)));
    rounds(&[&old, &other], &mut server, 0);
    (0..5).for_each(|_| assert!(old.request(1, 1, START + 50_000)));

    let mut known = KnownUnits::new();
    old.tracker.add_known(&mut known);
    let mut new = Node::new(2, &algorithm);
    // Its restored bucket has the 42 units.
    let restored = Charge::new(&new.table, key(1), 42);
    charge_all(&[restored], at(START + 50_000));
    new.tracker.know(&known, at(START + 50_000));
    assert!(new.request(1, 1, START + 60_000));
    rounds(&[&old, &new, &other], &mut server, 10);
    assert_eq!(new.left(1, START + 200_000), 57);
    assert_eq!(other.left(1, START + 200_000), 57);
    // Charges of the old one from after the copy arrive, too.
    assert!(old.request(1, 1, START + 200_000));
    rounds(&[&old, &new, &other], &mut server, 30);
    assert_eq!(new.left(1, START + 400_000), 56);
}
