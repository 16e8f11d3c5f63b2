//! Numbers by chance, which a seed repeats.

use std::env;
use std::time::Duration;

use proptest::prelude::RngExt;
use proptest::test_runner::{RngAlgorithm, TestRng};

use crate::history::now;

/// The seed of a run, to repeat its choices.
const SEED: &str = "SLUICEGATE_HISTORIES_SEED";

/// A sequence of choices.
pub struct Dice(TestRng);

/// The seed of this run: that of the environment, or another one each time. It is printed.
pub fn seed(test: &str) -> u64 {
    let given = env::var(SEED).ok();
    let seed = given.map_or_else(now, |text| text.parse().expect("a seed is a number"));
    println!("{SEED}={seed} cargo test --test histories {test}");
    seed
}

impl Dice {
    /// The choices of a part of the run.
    pub fn new(seed: u64, part: u64) -> Self {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        bytes[8..16].copy_from_slice(&part.to_le_bytes());
        Self(TestRng::from_seed(RngAlgorithm::ChaCha, &bytes))
    }

    /// A number below this one.
    pub fn below(&mut self, end: usize) -> usize {
        self.0.random_range(0..end)
    }

    /// One of these.
    pub fn one_of<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len())]
    }

    /// So many milliseconds.
    pub fn millis(&mut self, from: u64, until: u64) -> Duration {
        Duration::from_millis(self.0.random_range(from..=until))
    }
}
