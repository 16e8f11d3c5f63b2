//! Rulesets that run, of which a part is built by hand.

mod panics;
mod sync_intervals;
