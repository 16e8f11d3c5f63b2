//! Load balancing: picks a host for each attempt.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::host_set::WeightedHost;

/// The most turns of unavailable hosts that a request skips in search of its host.
const MAX_SKIPPED: usize = 16;

/// The load-balancing algorithm of an upstream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Balance {
    /// Each in turn, as often as its weight.
    #[default]
    RoundRobin,
}

/// The running load balancer of an upstream.
#[derive(Debug)]
pub(super) enum Balancer {
    /// Each in turn, as often as its weight.
    RoundRobin(RoundRobin),
}

/// The inputs of a pick.
pub(super) struct Pick<'a> {
    /// The hosts of the balancer.
    pub hosts: &'a [WeightedHost],
    /// The indices of those that were tried, in this order; not all of them.
    pub tried: &'a [usize],
}

/// A smooth weighted rotation, laid out once: weights 3, 1 give `a a b a`, not `a a a b`.
#[derive(Debug)]
pub(super) struct RoundRobin {
    turns: Box<[u32]>,
    next: AtomicUsize,
}

impl Balancer {
    /// Shares requests among these hosts.
    pub(super) fn new(balance: Balance, hosts: &[WeightedHost]) -> Self {
        match balance {
            Balance::RoundRobin => Self::RoundRobin(RoundRobin::new(hosts)),
        }
    }

    /// The index of the host to try next.
    pub(super) fn pick(&self, pick: &Pick<'_>) -> usize {
        match self {
            Self::RoundRobin(rotation) => rotation.pick(pick),
        }
    }
}

impl Pick<'_> {
    /// Returns true if the host has not failed this request, and is available.
    fn is_candidate(&self, index: usize) -> bool {
        !self.tried.contains(&index) && self.hosts[index].host.state().is_available()
    }

    /// The first candidate from `start` on; without one, the first host that was not tried.
    fn candidate_from(&self, start: usize) -> usize {
        let count = self.hosts.len();
        let order = || (start..start + count).map(|index| index % count);
        let candidate = order().find(|&index| self.is_candidate(index));
        let untried = || order().find(|index| !self.tried.contains(index));
        candidate.or_else(untried).unwrap_or(start % count)
    }
}

impl RoundRobin {
    /// A rotation of hosts with these weights, divided by their greatest common divisor.
    fn new(hosts: &[WeightedHost]) -> Self {
        let divisor = hosts.iter().fold(0, |all, one| gcd(all, one.weight)).max(1);
        // A host of weight w has the turns at 1/2w, 3/2w, 5/2w .. of the rotation.
        let turns = hosts.iter().enumerate().flat_map(|(index, one)| {
            let weight = u64::from(one.weight / divisor);
            (0..weight).map(move |turn| (((2 * turn + 1) << 32) / weight, index as u32))
        });
        let mut turns: Vec<_> = turns.collect();
        turns.sort_unstable();
        RoundRobin {
            turns: turns.into_iter().map(|(_, index)| index).collect(),
            next: AtomicUsize::new(0),
        }
    }

    /// The next of the rotation, then the others in their order.
    fn pick(&self, pick: &Pick<'_>) -> usize {
        match pick.tried.last() {
            None => self.next(pick),
            Some(last) => pick.candidate_from(last + 1),
        }
    }

    /// The next candidate of the rotation.
    fn next(&self, pick: &Pick<'_>) -> usize {
        if pick.hosts.len() <= 1 {
            return 0;
        }
        let mut index = self.turn();
        for _ in 0..MAX_SKIPPED {
            if pick.is_candidate(index) {
                return index;
            }
            index = self.turn();
        }
        pick.candidate_from(index)
    }

    fn turn(&self) -> usize {
        let turn = self.next.fetch_add(1, Ordering::Relaxed) % self.turns.len();
        self.turns[turn] as usize
    }
}

fn gcd(a: u16, b: u16) -> u16 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::host_set::tests::hosts;

    fn turns(weights: &[u16], count: usize) -> Vec<usize> {
        let hosts = hosts(weights);
        let rotation = RoundRobin::new(&hosts);
        let pick = Pick {
            hosts: &hosts,
            tried: &[],
        };
        (0..count).map(|_| rotation.pick(&pick)).collect()
    }

    #[test]
    fn a_request_tries_every_host_once() {
        let hosts = hosts(&[1, 1, 1]);
        let balancer = Balancer::new(Balance::RoundRobin, &hosts);
        for expected in [[0, 1, 2], [1, 2, 0], [2, 0, 1]] {
            let mut tried = Vec::new();
            for _ in &hosts {
                tried.push(balancer.pick(&Pick {
                    hosts: &hosts,
                    tried: &tried,
                }));
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
}
