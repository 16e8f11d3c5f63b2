//! Load balancing: picks a host for each attempt.

mod rendezvous;
mod rotation;

use smallvec::SmallVec;

use super::host_set::{HostSet, WeightedHost};
use super::pending::UNBOUNDED;
use super::spec::Balance;
pub use rendezvous::BALANCE_SECRET;
pub(super) use rendezvous::Rendezvous;
pub(super) use rotation::Rotation;

/// The inputs of a pick.
#[derive(Clone, Copy)]
pub(super) struct Pick<'a> {
    /// The hosts of the balancer, at least one.
    pub hosts: &'a [WeightedHost],
    /// The indices of those that were tried, in this order; not all of them.
    pub tried: &'a [usize],
    /// The requests in flight that make a host full.
    pub max: u32,
}

impl HostSet {
    /// The number of the host to try next, after those in `tried`, for a request with this key: one that
    /// was not tried, and an available one if there is any. Hosts with fewer than `max` requests in
    /// flight come first. The set must not be empty.
    pub(super) fn pick(&self, tried: &[usize], key: Option<u64>, max: u32) -> usize {
        if self.hosts.len() == 1 {
            return 0;
        }
        let pick = Pick {
            hosts: &self.hosts,
            tried,
            max,
        };
        match (&self.rendezvous, key, tried.last()) {
            (Some(hosts), Some(key), _) => hosts.pick(&pick, key),
            // In order, so that each host follows each other equally often.
            (.., Some(last)) if self.balance == Balance::RoundRobin => {
                pick.candidate_from(last + 1)
            }
            _ if self.balance == Balance::LeastRequests => less_loaded(&self.rotation, &pick),
            _ => self.rotation.draw(&pick),
        }
    }
}

/// The less loaded of two random candidates, by requests in flight for each unit of weight.
fn less_loaded(rotation: &Rotation, pick: &Pick<'_>) -> usize {
    let first = rotation.draw(pick);
    let mut tried = SmallVec::<[usize; 4]>::from_slice(pick.tried);
    tried.push(first);
    let others = Pick {
        tried: &tried,
        ..*pick
    };
    let second = rotation.draw(&others);
    let [a, b] = [first, second].map(|index| &pick.hosts[index]);
    // in_flight / weight, compared without a division.
    let is_lighter = b.in_flight() * u64::from(a.weight) < a.in_flight() * u64::from(b.weight);
    if is_lighter && others.is_in_use(second) && others.has_slot(second) {
        second
    } else {
        first
    }
}

impl Pick<'_> {
    fn is_untried(&self, index: usize) -> bool {
        !self.tried.contains(&index)
    }

    /// Returns true if the host has not failed this request, and is not left out.
    fn is_in_use(&self, index: usize) -> bool {
        self.is_untried(index) && !self.hosts[index].host.health.is_left_out()
    }

    /// Returns true if the host is not full.
    fn has_slot(&self, index: usize) -> bool {
        self.max == UNBOUNDED || self.hosts[index].host.has_slot(self.max)
    }

    /// Returns true if the host has not failed this request, is not full, and takes one of its
    /// turns.
    fn is_candidate(&self, index: usize) -> bool {
        let health = &self.hosts[index].host.health;
        self.is_untried(index) && self.has_slot(index) && health.takes_turn()
    }

    /// The first candidate from `start` on; without one, the first host that was not tried and is
    /// not left out; if all are left out, the first that was not tried.
    fn candidate_from(&self, start: usize) -> usize {
        let count = self.hosts.len();
        let order = || (start..start + count).map(|index| index % count);
        let candidate = order().find(|&index| self.is_candidate(index));
        let in_use = || order().find(|&index| self.is_in_use(index));
        let untried = || order().find(|&index| self.is_untried(index));
        let found = candidate.or_else(in_use).or_else(untried);
        found.unwrap_or(start % count)
    }

    /// A host by weight that was not tried and is not left out; if all are, one that was not tried.
    fn candidate_by_weight(&self, random: u64) -> usize {
        let all = 0..self.hosts.len();
        let has_some = all.clone().any(|index| self.is_in_use(index));
        let is_eligible = |index: &usize| {
            if has_some {
                self.is_in_use(*index)
            } else {
                self.is_untried(*index)
            }
        };
        let weight = |index: usize| u64::from(self.hosts[index].weight);
        let total: u64 = all.clone().filter(is_eligible).map(weight).sum();
        let mut left = random % total.max(1);
        let drawn = all.filter(is_eligible).find(|&index| {
            let is_drawn = left < weight(index);
            left = left.saturating_sub(weight(index));
            is_drawn
        });
        drawn.unwrap_or(0)
    }
}

#[cfg(test)]
mod tests;
