//! What a limit says: quotas, algorithms, decisions and verdicts, as pure integer arithmetic.
//!
//! Nothing here does I/O, locks, allocates per decision or reads a clock: an algorithm is a
//! function from a [`Cell`], an instant and a cost to a [`Decision`]. Where cells live is `store`'s
//! business. `docs/limits.md` says what each algorithm promises.

mod algorithm;
mod calendar;
mod cell;
mod decision;
mod key;
mod penalty;
mod quota;
mod ring;
mod segments;

pub use algorithm::concurrency::Concurrency;
pub use algorithm::fixed_window::{FixedWindow, Start, WindowEnd};
pub use algorithm::gcra::{Gcra, Span};
pub use algorithm::interval_refill::IntervalRefill;
pub use algorithm::leaky_bucket::LeakyBucket;
pub use algorithm::sliding_counters::SlidingCounters;
pub use algorithm::sliding_log::SlidingLog;
pub use algorithm::sliding_window::SlidingWindow;
pub use algorithm::weighing::Oldest;
pub use algorithm::{Algorithm, Carried, Inheritance, Recipe, Reserved};
pub use calendar::{Calendar, Calendars, Period};
pub use cell::Cell;
pub use decision::{Decision, Outcome, Verdict};
pub use key::{Fingerprint, KeyHasher, KeyParts, Secret, WideKeyHasher};
pub use penalty::{Ban, Penalty, Strikes};
pub use quota::{Quota, QuotaError};
pub use ring::{Ring, Shape, Staged, State, Words};
pub use segments::Segments;
