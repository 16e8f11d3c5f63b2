//! The units admitted beyond a quota if all machines charge the same key all the time, on virtual
//! time.

use std::collections::VecDeque;

use super::*;

/// The longest round from first to last message, and the interval of rounds.
const INTERVAL: u64 = 100_000;
const ROUND_TRIP: u64 = 30_000;

/// A round under way: the instants at which the server runs it, and at which it is answered.
#[derive(Default)]
struct UnderWay {
    next: u64,
    requests: Vec<SyncRequest>,
    runs: u64,
    answers: Option<Vec<Totals>>,
    ends: u64,
}

/// The admitted units of each node by instant, with all nodes charging one key all the time.
fn stampede(
    algorithm: &Algorithm,
    nodes: usize,
    seconds: u64,
    seeds: &[u64],
) -> Vec<Vec<(u64, u32)>> {
    let mut random = seeds
        .iter()
        .cycle()
        .copied()
        .enumerate()
        .map(|(turn, seed)| (seed ^ turn as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20);
    let mut random = move |below: u64| random.next().unwrap_or(0) % below;
    let mut server = Server::default();
    let mut all: Vec<_> = (0..nodes as u64)
        .map(|id| (Node::new(id, algorithm), UnderWay::default(), Vec::new()))
        .collect();
    for (_, rounds, _) in &mut all {
        rounds.next = START + random(INTERVAL);
    }
    let step = 2_000;
    for now in (START..START + seconds * SECOND).step_by(step as usize) {
        for (node, rounds, admitted) in &mut all {
            if rounds.answers.is_some() && now >= rounds.ends {
                let answers = rounds.answers.take().unwrap_or_default();
                for (request, others) in rounds.requests.drain(..).zip(answers) {
                    node.apply_totals(&request, others, now);
                }
            }
            if rounds.next <= now {
                rounds.requests = node.requests(now);
                rounds.runs = now + random(ROUND_TRIP / 2);
                rounds.ends = rounds.runs + random(ROUND_TRIP / 2);
                rounds.next += INTERVAL - random(INTERVAL / 8);
            }
            if !rounds.requests.is_empty() && rounds.answers.is_none() && now >= rounds.runs {
                let run = |request: &SyncRequest| server.run(node.id, request);
                rounds.answers = Some(rounds.requests.iter().map(run).collect());
            }
            let cost = 1 + random(2) as u32;
            if random(3) > 0 && node.request(1, cost, now) {
                admitted.push((now, cost));
            }
        }
    }
    all.into_iter().map(|(_, _, admitted)| admitted).collect()
}

/// The most units in any span of this length.
fn most_within(admitted: &[(u64, u32)], span: u64) -> u64 {
    let (mut inside, mut units, mut most) = (VecDeque::new(), 0, 0);
    for (at, cost) in admitted {
        inside.push_back((*at, *cost));
        units += u64::from(*cost);
        while inside.front().is_some_and(|(first, _)| first + span <= *at) {
            units -= inside.pop_front().map_or(0, |(_, cost)| u64::from(cost));
        }
        most = most.max(units);
    }
    most
}

/// The bound of docs/redis.md: one machine's units, and those of the others in an interval and a
/// round trip.
#[track_caller]
fn holds(algorithm: &Algorithm, admitted: &[Vec<(u64, u32)>], span: u64, alone: u64, times: u64) {
    let step = 2_000;
    let unknown = |node: &Vec<(u64, u32)>| most_within(node, INTERVAL + ROUND_TRIP + 2 * step);
    let each: Vec<u64> = admitted.iter().map(unknown).collect();
    let beyond = each.iter().sum::<u64>() - each.iter().min().copied().unwrap_or(0);
    let mut all: Vec<_> = admitted.iter().flatten().copied().collect();
    all.sort_unstable();
    let most = most_within(&all, span);
    assert!(
        most <= alone + times * beyond,
        "{algorithm:?} admitted {most} within {span}, not {alone} and {times} times {beyond}"
    );
    assert!(most > alone / 3, "{algorithm:?} admitted {most} only");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn units_admitted_beyond_the_quota_are_bounded(
        seeds in prop::collection::vec(any::<u64>(), 7), nodes in 2..=4_usize,
    ) {
        let hundred = quota(100, SECOND);
        let continuous = [gcra(100, SECOND, 100), gcra(100, SECOND, 20), gcra(150, 2 * SECOND, 300)];
        for algorithm in continuous {
            let admitted = stampede(&algorithm, nodes, 10, &seeds);
            let (limit, burst) = (algorithm.limit(), algorithm.capacity());
            let window = algorithm.window().map_or(0, |window| window.as_micros() as u64);
            for windows in [1, 3, 10 * SECOND / window] {
                holds(&algorithm, &admitted, windows * window, burst + windows * limit, 1);
            }
        }
        let refill = Algorithm::IntervalRefill(
            IntervalRefill::new(100, 10, Duration::from_millis(100)).unwrap(),
        );
        let admitted = stampede(&refill, nodes, 10, &seeds);
        for windows in [1, 3, 10] {
            holds(&refill, &admitted, windows * SECOND, 110 + windows * 100, 1);
        }
        // Reports of less than five units wait.
        let untold = 5 * (nodes as u64 - 1);
        for (large, times) in [
            (gcra(1_280, SECOND, 1_280), 1),
            (fixed(1_280, SECOND, Start::EPOCH), 2),
        ] {
            let admitted = stampede(&large, nodes, 10, &seeds);
            holds(&large, &admitted, SECOND, 2 * 1_280 + times * untold, times);
        }
        for windows in [
            fixed(100, SECOND, Start::EPOCH),
            fixed(100, SECOND, Start::Staggered),
            Algorithm::SlidingWindow(SlidingWindow::new(hundred, OldestPart::Weighted)),
            Algorithm::SlidingWindow(SlidingWindow::new(hundred, OldestPart::Whole)),
            Algorithm::SlidingCounters(SlidingCounters::new(hundred, 10, OldestPart::Weighted).unwrap()),
        ] {
            let admitted = stampede(&windows, nodes, 6, &seeds);
            holds(&windows, &admitted, SECOND, 200, 2);
        }
    }
}
