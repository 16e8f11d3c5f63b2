//! Limits as pure integer arithmetic: quotas, algorithms, decisions and verdicts.
//!
//! No function here does I/O, locks, allocates for a decision or reads a clock. An algorithm is a
//! function from a [`Cell`], an instant and a cost to a [`Decision`]. `store` keeps the cells.
//! `docs/limits.md` states the promises of each algorithm.

mod algorithm;
mod calendar;
mod cell;
mod decision;
mod key;
mod penalty;
mod quota;
mod ring;
mod segments;
mod timestamp;

pub use algorithm::concurrency::Concurrency;
pub use algorithm::fixed_window::{FixedWindow, Start, WindowEnd};
pub use algorithm::gcra::{FractionalDuration, Gcra};
pub use algorithm::grant::Grant;
pub use algorithm::interval_refill::IntervalRefill;
pub use algorithm::leaky_bucket::LeakyBucket;
pub use algorithm::sliding_counters::SlidingCounters;
pub use algorithm::sliding_log::SlidingLog;
pub use algorithm::sliding_window::SlidingWindow;
pub use algorithm::window_weight::OldestPart;
pub use algorithm::{
    Algorithm, ArrivalTime, BucketFacts, BucketView, Compatibility, Debt, Demand, ReservedCharge,
};
pub use calendar::{Calendar, Calendars, Period, set_ahead};
pub use cell::Cell;
pub use decision::{Decision, Outcome, Verdict};
pub use key::{Fingerprint, KeyParts, Secret, WideKeyHasher};
pub use penalty::{Ban, BanHistory, Penalty};
pub use quota::{Quota, QuotaError};
pub use ring::{BucketState, RingBuilder, RingMemory, RingShape};
pub use segments::Segments;
pub use timestamp::{SLOWER, Timestamp};
