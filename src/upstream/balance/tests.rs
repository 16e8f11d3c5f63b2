//! Properties of all balancers, and the order of turns.

use std::time::Duration;

use proptest::prelude::*;
use tokio::time::Instant;

use super::*;
use crate::telemetry::metrics::EjectionReason;
use crate::upstream::host::InFlight;
use crate::upstream::host_set::tests::hosts;
use crate::upstream::spec::EjectionSpec;

const EJECTION: EjectionSpec = EjectionSpec {
    consecutive_failures: 1,
    failure_rate: None,
    base: Duration::from_secs(10),
    max: Duration::from_secs(10),
    max_ejected: 100,
};

const ALL: [Balance; 4] = [
    Balance::RoundRobin,
    Balance::LeastRequests,
    Balance::Random,
    Balance::Hash,
];

/// Hosts with a bound.
struct Balanced {
    set: HostSet,
    /// The requests in flight that make a host full.
    max: u32,
}

impl Balanced {
    fn new(balance: Balance, weights: &[u16]) -> Self {
        Balanced {
            set: HostSet::new(balance, hosts(weights)),
            max: UNBOUNDED,
        }
    }

    fn pick(&self, tried: &[usize], key: Option<u64>) -> usize {
        self.set.pick(tried, key, self.max)
    }

    /// How often each host is picked by requests with these keys, one at a time.
    fn counts(&self, keys: impl IntoIterator<Item = Option<u64>>) -> Vec<usize> {
        let mut counts = vec![0; self.set.hosts.len()];
        for key in keys {
            counts[self.pick(&[], key)] += 1;
        }
        counts
    }
}

fn turns(weights: &[u16], count: usize) -> Vec<usize> {
    let balanced = Balanced::new(Balance::RoundRobin, weights);
    (0..count).map(|_| balanced.pick(&[], None)).collect()
}

/// A number that looks random for each number.
fn key(number: u64) -> Option<u64> {
    Some(rotation::mix(number + 1))
}

#[test]
fn a_request_tries_every_host_once() {
    let balanced = Balanced::new(Balance::RoundRobin, &[1, 1, 1]);
    for expected in [[0, 1, 2], [1, 2, 0], [2, 0, 1]] {
        let mut tried = Vec::new();
        for _ in &balanced.set.hosts {
            tried.push(balanced.pick(&tried, None));
        }
        assert_eq!(tried, expected);
    }
}

#[test]
fn equal_weights_take_turns() {
    assert_eq!(turns(&[5, 5, 5], 6), [0, 1, 2, 0, 1, 2]);
}

#[test]
fn a_heavier_host_is_spread_over_the_rotation() {
    assert_eq!(turns(&[3, 1], 8), [0, 0, 1, 0, 0, 0, 1, 0]);
}

#[test]
fn every_host_is_chosen_as_often_as_its_weight() {
    let weights = [7, 1, 4, 2];
    let turns = turns(&weights, 14 * 3);
    for (host, weight) in weights.iter().enumerate() {
        let chosen = turns.iter().filter(|&&turn| turn == host).count();
        assert_eq!(chosen, usize::from(*weight) * 3);
    }
}

#[test]
fn the_less_loaded_of_two_hosts_is_picked() {
    let balanced = Balanced::new(Balance::LeastRequests, &[3, 1]);
    let _busy: Vec<_> = (0..4)
        .map(|_| InFlight::begin(&balanced.set.hosts[0].host))
        .collect();
    // 4/3 in flight on the first, at most 1/1 on the second.
    let first = balanced.pick(&[], None);
    let busy = InFlight::begin(&balanced.set.hosts[first].host);
    assert_eq!(first, 1);
    let _second = InFlight::begin(&balanced.set.hosts[1].host);
    assert_eq!(balanced.pick(&[], None), 0, "4/3 against 2/1");
    drop(busy);
    assert_eq!(balanced.pick(&[], None), 1);
}

#[test]
fn the_keys_of_a_host_that_goes_move_to_all_others() {
    let before = Balanced::new(Balance::Hash, &[1; 5]);
    // The hosts are the same without the last.
    let after = Balanced::new(Balance::Hash, &[1; 4]);
    let mut moved = [0; 4];
    for number in 0..10_000 {
        match (before.pick(&[], key(number)), after.pick(&[], key(number))) {
            (4, to) => moved[to] += 1,
            (from, to) => assert_eq!(from, to),
        }
    }
    assert!(
        moved.iter().all(|&keys| (400..600).contains(&keys)),
        "{moved:?}"
    );
}

#[test]
fn machines_agree_on_the_host_of_a_key() {
    let hosts = Balanced::new(Balance::Hash, &[1, 2, 3]);
    let picks: Vec<_> = (0..12).map(|number| hosts.pick(&[], key(number))).collect();
    assert_eq!(picks, [2, 2, 1, 2, 2, 2, 1, 1, 0, 2, 1, 0]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn shares_follow_the_weights(weights in prop::collection::vec(1_u16..=20, 1..8)) {
        const REQUESTS: u64 = 20_000;
        let total: u16 = weights.iter().sum();
        for balance in ALL {
            let balanced = Balanced::new(balance, &weights);
            let keys = (0..REQUESTS).map(|number| key(number).filter(|_| number % 2 == 0));
            let counts = balanced.counts(keys);
            for (count, weight) in counts.iter().zip(&weights) {
                let share = f64::from(*weight) / f64::from(total);
                let expected = REQUESTS as f64 * share;
                // Six standard deviations of a binomial distribution.
                let error = 6.0 * (expected * (1.0 - share)).sqrt() + 1.0;
                prop_assert!((*count as f64 - expected).abs() <= error, "{balance:?} {counts:?}");
            }
        }
    }

    #[test]
    fn no_host_that_is_left_out_is_tried_before_the_others(
        states in prop::collection::vec((1_u16..=256, any::<bool>()), 2..8),
        number in any::<u64>(),
        has_key in any::<bool>(),
    ) {
        let weights: Vec<_> = states.iter().map(|(weight, _)| *weight).collect();
        for balance in ALL {
            let balanced = Balanced::new(balance, &weights);
            for (one, _) in balanced.set.hosts.iter().zip(&states).filter(|(_, state)| state.1) {
                one.host.health.eject(&EJECTION, EjectionReason::ConnectFailure, false, Instant::now());
            }
            let mut tried = Vec::new();
            for _ in &weights {
                tried.push(balanced.pick(&tried, key(number / 2).filter(|_| has_key)));
            }
            let left_out: Vec<_> = tried.iter().map(|&index| states[index].1).collect();
            prop_assert!(left_out.is_sorted(), "{balance:?}: {tried:?} {left_out:?}");
        }
    }

    #[test]
    fn no_host_is_tried_twice(
        weights in prop::collection::vec(1_u16..=256, 1..8),
        number in any::<u64>(),
        has_key in any::<bool>(),
    ) {
        for balance in ALL {
            let balanced = Balanced::new(balance, &weights);
            let mut tried = Vec::new();
            for _ in &weights {
                let next = balanced.pick(&tried, key(number / 2).filter(|_| has_key));
                prop_assert!(!tried.contains(&next), "{balance:?}: {next} after {tried:?}");
                tried.push(next);
            }
        }
    }

    /// Requests of few keys come and go: the busiest host never has more than its bound.
    #[test]
    fn the_load_of_a_hash_is_bounded(
        weights in prop::collection::vec(1_u16..=10, 2..8),
        steps in prop::collection::vec((0_u64..3, any::<bool>(), any::<prop::sample::Index>()), 1..300),
    ) {
        let balanced = Balanced::new(Balance::Hash, &weights);
        let total: u64 = weights.iter().map(|&weight| u64::from(weight)).sum();
        let mut requests = Vec::new();
        for (number, ends, index) in steps {
            if ends && !requests.is_empty() {
                requests.swap_remove(index.index(requests.len()));
                continue;
            }
            let picked = balanced.pick(&[], key(number));
            let one = &balanced.set.hosts[picked];
            requests.push(InFlight::begin(&one.host));
            let share = 5 * requests.len() as u64 * u64::from(one.weight);
            prop_assert!(one.in_flight() <= share.div_ceil(4 * total), "{picked}");
        }
    }
}
