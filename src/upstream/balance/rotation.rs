//! A smooth weighted rotation, laid out once: weights 3, 1 give `a a b a`, not `a a a b`. Its turns
//! come in order, or at random.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

use super::Pick;
use crate::upstream::host_set::WeightedHost;

/// The most turns of other hosts that a request skips in search of a candidate.
const MAX_SKIPPED: usize = 16;

/// The most turns, beside one for each host. Larger weights are rounded to fit.
const MAX_TURNS: u64 = 1 << 14;

/// The turns of hosts, each as often as its weight.
#[derive(Debug)]
pub(in crate::upstream) struct Rotation {
    turns: Box<[u32]>,
    /// The turns come in order, not at random.
    is_in_turn: bool,
    next: AtomicU64,
}

impl Rotation {
    /// A rotation of hosts with these weights, divided by their greatest common divisor.
    pub(in crate::upstream) fn new(hosts: &[WeightedHost], is_in_turn: bool) -> Self {
        let divisor = hosts.iter().fold(0, |all, one| gcd(all, one.weight)).max(1);
        let total: u64 = hosts
            .iter()
            .map(|one| u64::from(one.weight / divisor))
            .sum();
        let scale = total.div_ceil(MAX_TURNS).max(1);
        // A host of weight w has the turns at 1/2w, 3/2w, 5/2w .. of the rotation.
        let turns = hosts.iter().enumerate().flat_map(|(index, one)| {
            let weight = u64::from(one.weight / divisor).div_ceil(scale);
            (0..weight).map(move |turn| (((2 * turn + 1) << 32) / weight, index as u32))
        });
        let mut turns: Vec<_> = turns.collect();
        turns.sort_unstable();
        Rotation {
            turns: turns.into_iter().map(|(_, index)| index).collect(),
            next: AtomicU64::new(if is_in_turn {
                0
            } else {
                // Machines draw different hosts.
                RandomState::new().hash_one(0)
            }),
            is_in_turn,
        }
    }

    /// The host of the next turn that is a candidate; without one, a host that was not tried.
    pub(super) fn draw(&self, pick: &Pick<'_>) -> usize {
        for _ in 0..MAX_SKIPPED {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let turn = if self.is_in_turn { number } else { mix(number) };
            let index = self.turns[(turn % self.turns.len() as u64) as usize] as usize;
            if pick.is_candidate(index) {
                return index;
            }
        }
        pick.candidate_by_weight(mix(self.next.fetch_add(1, Ordering::Relaxed)))
    }
}

/// A random number for each number: SplitMix64 (Steele, Lea and Flood, 2014).
pub(super) fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn gcd(a: u16, b: u16) -> u16 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::host_set::tests::hosts;

    #[test]
    fn many_large_weights_make_a_bounded_rotation() {
        let weights: Vec<_> = (0..640).map(|host| [256, 1, 17][host % 3]).collect();
        let rotation = Rotation::new(&hosts(&weights), true);
        assert!(rotation.turns.len() as u64 <= MAX_TURNS + 640);
        let turns = |host| rotation.turns.iter().filter(|&&turn| turn == host).count();
        assert_eq!(
            [turns(0), turns(1), turns(2)],
            [64, 1, 5],
            "256, 1 and 17 of 4"
        );
    }
}
