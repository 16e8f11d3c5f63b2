//! Rulesets and gateways from a text, and pieces of inputs.

use std::sync::Arc;

use crate::clock::{Clock, Timestamp};
use crate::config::{self, Compiled, Loaded};
use crate::limiter::Secret;
use crate::proxy::ruleset::RulesetSpec;
use crate::proxy::ruleset::build::{BuildContext, PreparedRuleset};
use crate::proxy::{Gateway, Ruleset};
use crate::telemetry::metrics::RequestMetrics;
use crate::telemetry::registry::Registry;

/// The time of all decisions, so that a run can be repeated.
pub(super) const NOW: Timestamp = Timestamp::from_micros(1_700_000_000_000_000);

/// The secret of all fingerprints.
pub(super) const SECRET: Secret = Secret::from_key([3, 5]);

/// Checks a configuration that is part of a target.
pub(super) fn loaded(text: &str) -> Loaded {
    config::parse("fuzz", text.to_owned(), &|_| None).unwrap_or_else(|report| panic!("{report}"))
}

/// Compiles a configuration that is part of a target.
pub(super) fn rules(loaded: &Loaded) -> RulesetSpec {
    let Compiled { rules, .. } =
        config::compile(loaded).unwrap_or_else(|report| panic!("{report}"));
    rules
}

/// Builds a ruleset with empty buckets.
pub(super) fn ruleset(rules: RulesetSpec) -> Arc<Ruleset> {
    PreparedRuleset::new(rules, &context(), None).migrate_buckets(NOW)
}

/// A gateway, and its clock.
pub(super) fn gateway(rules: RulesetSpec) -> (Arc<Gateway>, Arc<Clock>) {
    let context = context();
    let ruleset = PreparedRuleset::new(rules, &context, None).migrate_buckets(NOW);
    let metrics = Arc::new(RequestMetrics::new(&context.registry));
    let clock = Arc::clone(&context.clock);
    let gateway = Arc::new(Gateway::new(ruleset, clock, metrics, context.workers));
    (gateway, context.clock)
}

fn context() -> BuildContext {
    BuildContext {
        workers: 1,
        registry: Registry::default(),
        clock: Arc::new(Clock::manual(NOW)),
        secret: SECRET,
    }
}

/// The bytes of an input that are choices.
pub(super) const PREFIX: usize = 9;

/// A choice, where to cut ([`cut`]), and the rest of an input.
pub(super) fn choices(data: &[u8]) -> Option<(u8, u64, &[u8])> {
    let (&[choice, a, b, c, d, e, f, g, h], rest) = data.split_first_chunk::<PREFIX>()?;
    Some((choice, u64::from_le_bytes([a, b, c, d, e, f, g, h]), rest))
}

/// Cuts bytes at places that `seed` decides.
pub(super) fn cut(mut bytes: &[u8], seed: u64) -> Vec<&[u8]> {
    let mut random = Random(seed);
    let mut pieces = Vec::new();
    while !bytes.is_empty() {
        // Mostly short ones, and some long.
        let most = [1, 3, 16, 64, 1024][random.below(5)];
        let (piece, rest) = bytes.split_at((1 + random.below(most)).min(bytes.len()));
        pieces.push(piece);
        bytes = rest;
    }
    pieces
}

/// Numbers that look random (SplitMix64).
pub(super) struct Random(pub(super) u64);

impl Random {
    /// A number below `end`, which is not 0.
    pub(super) fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut number = self.0;
        number = (number ^ number >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        number = (number ^ number >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((number ^ number >> 31) % end as u64) as usize
    }

    /// One of these, which are not none.
    pub(super) fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }
}
