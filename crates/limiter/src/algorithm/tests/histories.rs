//! Algorithms over histories. The models of their definitions are in `store/redis/tests/contract`.

use proptest::prelude::*;

use super::*;

const WINDOWS: std::ops::RangeInclusive<u64> = 1..=2_000;

/// Requests with small gaps and costs, in the order of time.
pub(super) fn histories() -> impl Strategy<Value = Vec<(u64, u32)>> {
    let gaps = prop_oneof![3 => 0..=20_u64, 2 => 0..=400_u64, 1 => 0..=5_000_u64];
    let costs = prop_oneof![4 => Just(1_u32), 1 => 0..=6_u32];
    prop::collection::vec((gaps, costs), 1..120).prop_map(|steps| {
        let arrive = |now: &mut u64, (gap, cost)| {
            *now += gap;
            Some((*now, cost))
        };
        steps.into_iter().scan(1_000_000, arrive).collect()
    })
}

/// The requests of a history that the algorithm admits.
pub(super) fn admitted(algorithm: &Algorithm, history: &[(u64, u32)]) -> Vec<bool> {
    let mut bucket = Bucket::new(algorithm);
    let charge = |(now, cost): &(u64, u32)| bucket.charge(algorithm, at(*now), *cost).is_admitted();
    history.iter().map(charge).collect()
}

proptest! {
    /// The last request in a queue leaves no trace; one that leaves before others does not move
    /// them.
    #[test]
    fn the_last_in_line_gives_his_place_back(
        history in histories(), limit in 1..=12_u32, window in WINDOWS, queue in 1..=12_u32, later in 0..200_u64,
    ) {
        let leaky = LeakyBucket::new(quota(limit, window), queue, Duration::MAX, 0);
        let algorithm = Algorithm::LeakyBucket(leaky.unwrap());
        let mut bucket = Bucket::new(&algorithm);
        for (now, cost) in history {
            let before = bucket.cell;
            let decision = bucket.charge(&algorithm, at(now), cost);
            let Some(until) = decision.delayed_until() else { continue };
            let then = at(now + later).min(until.saturating_sub_micros(1));
            let place = place(decision.cell, cost);
            let again = algorithm.give_back(bucket.cell, &place, cost, then);
            let used = |cell| algorithm.used(cell, then);
            prop_assert_eq!(used(again), used(before));
            let behind = algorithm.decide(bucket.cell, then, 1);
            if behind.is_admitted() {
                let stays = algorithm.give_back(behind.cell, &place, cost, then);
                prop_assert_eq!(stays, behind.cell);
            }
        }
    }

    #[test]
    fn a_refill_of_the_whole_capacity_is_a_window_from_the_first_request(
        history in histories(), capacity in 1..=12_u32, interval in WINDOWS,
    ) {
        let refill = IntervalRefill::new(capacity, capacity, Duration::from_micros(interval)).unwrap();
        let window = FixedWindow::new(quota(capacity, interval), Start::FirstRequest);
        let (refill, window) = (Algorithm::IntervalRefill(refill), Algorithm::FixedWindow(window));
        let (mut left, mut right) = (Cell::EMPTY, Cell::EMPTY);
        for (now, _) in history {
            let decisions = (refill.decide(left, at(now), 1), window.decide(right, at(now), 1));
            prop_assert_eq!(decisions.0.outcome, decisions.1.outcome);
            prop_assert_eq!(decisions.0.remaining, decisions.1.remaining);
            prop_assert_eq!(decisions.0.reset, decisions.1.reset);
            (left, right) = (decisions.0.cell, decisions.1.cell);
        }
    }

    /// Ticks of several microseconds: units leave late, by less than two of them.
    #[test]
    fn a_log_of_a_long_window_rounds_late(
        history in histories(), limit in 1..=12_u32, days in 1..=300_u64, scale in 1..=4_000_000_000_u64,
    ) {
        let window = days * 86_400_000_000;
        let tick = window.div_ceil(u64::from(u32::MAX));
        let history: Vec<_> = history.iter().map(|(now, cost)| (now * scale, *cost)).collect();
        let log = Algorithm::SlidingLog(SlidingLog::new(quota(limit, window)).unwrap());
        let mut units: Vec<u64> = Vec::new();
        for ((now, cost), admit) in history.iter().zip(admitted(&log, &history)) {
            let counted = |window: u64| units.iter().filter(|unit| *unit + window > *now).count() as u32;
            if admit {
                prop_assert!(counted(window) + cost <= limit, "never early");
                units.extend((0..*cost).map(|_| *now));
            } else {
                prop_assert!(counted(window + 2 * tick) + cost > limit, "never more than two ticks late");
            }
        }
    }
}

/// The charge of a request that is in a queue.
fn place(cell: Cell, units: u32) -> ReservedCharge {
    ReservedCharge {
        cell,
        at: at(0),
        units,
        unsettled: 0,
    }
}

#[test]
fn the_units_that_a_shorter_queue_cut_off_stay_when_a_request_leaves() {
    const SECOND: u64 = 1_000_000;
    let wait = Duration::from_secs(3_600);
    let line = |queue| {
        let line = LeakyBucket::new(quota(10, 10 * SECOND), queue, wait, 0);
        Algorithm::LeakyBucket(line.expect("a short wait"))
    };
    let (long, short, now) = (line(9), line(4), at(1_000 * SECOND));
    let full = long.decide(Cell::EMPTY, now, 10).cell;
    let cut = short.convert_cell(&long, full, now);
    assert_eq!(cut.b, 5);
    let later = now.saturating_add_micros(SECOND);
    let joined = short.decide(cut, later, 1).cell;
    assert_eq!(short.give_back(joined, &place(joined, 1), 1, later), cut);
}
