//! Exact rate limits for keys: several at once, charged together or not at all, in bounded memory.
//!
//! A [`Table`] has a bucket for each key of one limit. [`Table::charge`] decides by one limit,
//! [`charge_all`] by several: it locks their buckets together, so that no other request comes between
//! the check and the charge, and charges all of them or none.
//!
//! ```
//! use std::time::{Duration, UNIX_EPOCH};
//!
//! use limiter::{Charge, OnFull, Quota, Secret, Table, Timestamp, charge_all};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let quota = Quota::new(2, Duration::from_secs(60))?;
//! let per_client = Table::new("per client", quota.into(), 100_000, OnFull::Forget);
//! let secret = Secret::random();
//!
//! let key = secret.fingerprint(b"203.0.113.7");
//! let now = Timestamp::EPOCH.saturating_add(UNIX_EPOCH.elapsed()?);
//! let decision = per_client.charge(key, 1, now);
//! assert!(decision.is_admitted());
//! assert_eq!(decision.remaining, 1);
//!
//! // Two limits at once. The second refuses, so that the first is not charged.
//! let none = Quota::new(0, Duration::from_secs(60))?;
//! let of_tenant = Table::new("tenant", none.into(), 1_000, OnFull::Forget);
//! let charges = [
//!     Charge::new(&per_client, key, 1),
//!     Charge::new(&of_tenant, secret.fingerprint(b"tenant-1"), 1),
//! ];
//! assert!(!charge_all(&charges, now).is_admitted());
//! assert_eq!(per_client.peek(key, 0, now).remaining, 1);
//! # Ok(())
//! # }
//! ```
//!
//! - Ten rules, as variants of [`Algorithm`]: GCRA, token buckets, leaky buckets, windows, logs, and
//!   [`Concurrency`](algorithms::Concurrency), whose units a [`Permit`] returns. All are integer arithmetic, a pure function from
//!   a [`Cell`], an instant and a cost to a [`Decision`].
//! - A charge whose cost is known later is a [`Reservation`], to be settled or given back.
//! - [`Table::migrate_to`] moves buckets to another size or quota while they are charged.
//!
//! Nothing here does I/O, reads a clock, spawns a thread or needs an async runtime: callers pass a
//! [`Timestamp`]. Keys are hashed with a [`Secret`], so that clients can't aim at the bucket of
//! another; no key's text is kept.

mod algorithm;
pub mod calendar;
mod cell;
mod decision;
mod key;
mod memory;
pub mod penalty;
mod quota;
pub mod ring;
mod segments;
mod timestamp;

pub use algorithm::{Algorithm, AlgorithmKind, Demand};
pub use cell::Cell;
pub use decision::{Decision, Outcome, Verdict};
pub use key::{Fingerprint, KeyParts, Secret, WideKeyHasher};
pub use memory::charge::{Ask, Charge, Role, charge_all};
pub use memory::permits::{Permit, Turns};
pub use memory::reservation::Reservation;
pub use memory::table::{OnFull, Refusals, Table, TableCensus};
pub use quota::{Quota, QuotaError};
pub use timestamp::{SLOWER, Timestamp};

/// The rules that [`Algorithm`] has variants for.
pub mod algorithms {
    pub use crate::algorithm::concurrency::Concurrency;
    pub use crate::algorithm::fixed_window::{FixedWindow, Start, WindowEnd};
    pub use crate::algorithm::gcra::{FractionalDuration, Gcra};
    pub use crate::algorithm::interval_refill::IntervalRefill;
    pub use crate::algorithm::leaky_bucket::LeakyBucket;
    pub use crate::algorithm::sliding_counters::SlidingCounters;
    pub use crate::algorithm::sliding_log::SlidingLog;
    pub use crate::algorithm::sliding_window::SlidingWindow;
    pub use crate::algorithm::window_weight::OldestPart;
}

/// What a bucket holds, for those who show it, change it or keep it elsewhere.
pub mod bucket {
    pub use crate::algorithm::grant::Grant;
    pub use crate::algorithm::{ArrivalTime, BucketFacts, BucketView, Debt, ReservedCharge};
}

/// Requests with several buckets for a limit, and those whose charges are settled later.
pub mod claims {
    pub use crate::memory::charge::{
        Claims, DecidingRung, DecidingRungs, charge_into, leave_queue,
    };
    pub use crate::memory::reservation::UnsettledLocks;
}

/// The content of tables, to save and restore it.
pub mod snapshot {
    pub use crate::memory::table::{EntryKeys, ExportedBucket, ExportedEntry};
}
