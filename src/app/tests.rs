//! Rulesets that run, of which a part is built by hand.

mod kept_policies;
mod panics;
mod sync_intervals;
