//! Operators reset buckets, and machines hear of it at different times.

use super::*;

const LIMIT: u32 = 200;
const KEY: u64 = 1;

/// The server's totals by name: the last reset, and units by node.
#[derive(Default)]
struct ResetServer(HashMap<Vec<u8>, (u64, HashMap<u64, u64>)>);

impl ResetServer {
    /// A round of a node; returns true if it hears of a reset.
    fn round(&mut self, node: &Node, now: u64) -> bool {
        let mut has_heard = false;
        for request in node.requests(now) {
            let (reset, totals) = self.0.entry(request.name.clone()).or_default();
            if request.reset > *reset {
                (*reset, *totals) = (request.reset, HashMap::new());
            }
            if request.reset < *reset {
                let at = Timestamp::from_micros(*reset);
                node.tracker.hear_reset(request.key, at);
                has_heard = true;
                continue;
            }
            let own = totals.get(&node.id).copied().unwrap_or_default();
            totals.insert(node.id, own.max(request.own));
            let others = totals.iter().filter(|(other, _)| **other != node.id);
            let others = others.map(|(_, units)| units).sum();
            node.apply_totals(&request, Totals { others, own }, now);
        }
        has_heard
    }
}

/// A node, and the units that it charged since it last heard of a reset.
struct Counted {
    node: Node,
    since: u32,
}

impl Counted {
    fn new(id: u64) -> Self {
        let quota = Quota::new(LIMIT, Duration::from_secs(300 * 24 * 3_600)).expect("a quota");
        let algorithm = Algorithm::Gcra(Gcra::new(quota, LIMIT).expect("a burst"));
        Self {
            node: Node::new(id, &algorithm),
            since: 0,
        }
    }

    fn charge(&mut self, now: u64) {
        self.since += u32::from(self.node.request(KEY, 1, now));
    }

    fn hear(&mut self, at: u64, now: u64) {
        let (key, at) = (Fingerprint::from_bits(KEY), Timestamp::from_micros(at));
        let now = Timestamp::from_micros(now);
        if self.node.tracker.restart(key, at, now) {
            self.node.table.reset(key);
            self.since = 0;
        }
    }

    fn round(&mut self, server: &mut ResetServer, now: u64) {
        if server.round(&self.node, now) {
            self.since = 0;
        }
    }
}

/// Rounds until all have told and heard everything.
fn settle(nodes: &mut [Counted], server: &mut ResetServer, now: u64) {
    for _ in 0..70 {
        nodes.iter_mut().for_each(|node| node.round(server, now));
    }
}

#[test]
fn charges_from_before_a_reset_that_are_reported_late_do_not_count() {
    let mut server = ResetServer::default();
    let mut nodes = [Counted::new(0), Counted::new(1), Counted::new(2)];
    for node in &mut nodes {
        (0..20).for_each(|_| node.charge(START));
    }
    settle(&mut nodes, &mut server, START);
    assert_eq!(nodes[0].node.left(KEY, START), LIMIT - 60);
    (0..5).for_each(|_| nodes[1].charge(START));
    nodes[0].hear(START, START);
    (0..3).for_each(|_| nodes[0].charge(START));
    settle(&mut nodes, &mut server, START);
    // Machines ask for the charges of others once they charge the key again.
    nodes[1..].iter_mut().for_each(|node| node.charge(START));
    settle(&mut nodes, &mut server, START);
    for node in &nodes {
        assert_eq!(node.node.left(KEY, START), LIMIT - 5, "{}", node.node.id);
    }
    // To hear of it once more changes nothing.
    nodes[1].charge(START);
    nodes[1].hear(START, START);
    settle(&mut nodes, &mut server, START);
    assert_eq!(nodes[2].node.left(KEY, START), LIMIT - 6);
}

#[test]
fn a_machine_that_first_sees_the_key_after_a_reset_counts_none_from_before() {
    let mut server = ResetServer::default();
    let mut nodes = [Counted::new(0), Counted::new(1)];
    (0..20).for_each(|_| nodes[0].charge(START));
    nodes[0].round(&mut server, START);
    nodes[1].hear(START, START);
    nodes[1].charge(START);
    nodes[1].round(&mut server, START);
    assert_eq!(nodes[1].node.left(KEY, START), LIMIT - 1);
    settle(&mut nodes, &mut server, START);
    nodes[0].charge(START);
    settle(&mut nodes, &mut server, START);
    for node in &nodes {
        assert_eq!(node.node.left(KEY, START), LIMIT - 2, "{}", node.node.id);
    }
}

#[test]
fn resets_are_forgotten_when_no_epoch_has_them() {
    let mut server = ResetServer::default();
    let mut nodes = [Counted::new(0)];
    nodes[0].charge(START);
    nodes[0].hear(START, START);
    let tracker = &nodes[0].node.tracker;
    let kept = tracker.reset_kept().as_micros() as u64;
    server.round(&nodes[0].node, START + kept - 1);
    let at = Timestamp::from_micros(START);
    let key = Fingerprint::from_bits(KEY);
    assert!(!tracker.restart(key, at, at), "it is known");
    tracker.begin_round(Timestamp::from_micros(START + kept));
    assert!(tracker.restart(key, at, at));
}

#[derive(Clone, Debug)]
enum Action {
    Charge(usize),
    Round(usize),
    Reset,
    Hear(usize),
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        4 => (0..3_usize).prop_map(Action::Charge),
        3 => (0..3_usize).prop_map(Action::Round),
        1 => Just(Action::Reset),
        2 => (0..3_usize).prop_map(Action::Hear),
    ]
}

proptest! {
    #[test]
    fn all_machines_agree_on_what_was_charged_since_each_heard(
        actions in prop::collection::vec(action(), 1..80),
    ) {
        let mut server = ResetServer::default();
        let mut nodes = [Counted::new(0), Counted::new(1), Counted::new(2)];
        let (mut now, mut last_reset) = (START, 0);
        for action in actions {
            now += 1_000;
            match action {
                Action::Charge(node) => nodes[node].charge(now),
                Action::Round(node) => nodes[node].round(&mut server, now),
                Action::Reset => last_reset = now,
                Action::Hear(node) => {
                    if last_reset > 0 {
                        nodes[node].hear(last_reset, now);
                    }
                }
            }
        }
        for node in &mut nodes {
            if last_reset > 0 {
                node.hear(last_reset, now);
            }
        }
        settle(&mut nodes, &mut server, now);
        let charged: u32 = nodes.iter().map(|node| node.since).sum();
        for node in &nodes {
            // A machine that never charged the key knows nothing of it.
            if node.node.admitted.is_empty() || node.since == 0 {
                continue;
            }
            prop_assert_eq!(node.node.left(KEY, now), LIMIT - charged);
        }
    }
}
