//! Buckets as their algorithms see them at one instant, for people to look at. Nothing decides by
//! these numbers.

use std::time::Duration;

use super::grant::Grant;
use super::{Algorithm, Demand};
use crate::algorithms::OldestPart;
use crate::ring::BucketState;
use crate::{Decision, Quota, Timestamp};

/// One bucket at one instant. Lists have at most [`BucketView::MOST`] items.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BucketView {
    /// GCRA: the theoretical arrival time (TAT), and how far ahead it may lie.
    Gcra(ArrivalTime),
    /// A token bucket with continuous refill, which is GCRA seen as tokens.
    TokenBucket(ArrivalTime),
    /// A token bucket that is refilled in steps.
    IntervalRefill {
        /// Tokens that are missing from a full bucket; with debt, more than it holds.
        missing: u64,
        /// Tokens of a full bucket.
        capacity: u32,
        /// Tokens of a refill.
        amount: u32,
        /// The time between two refills.
        interval: Duration,
        /// The time to the next refill; `None` for a full bucket.
        next: Option<Duration>,
    },
    /// A queue that moves at the quota's rate.
    LeakyBucket {
        /// The time to the departure of the last unit in the queue, as TAT.
        line: ArrivalTime,
        /// Waiting units that go on at once.
        delay_after: u32,
    },
    /// A count in a window.
    FixedWindow {
        /// Counted units.
        used: u64,
        /// Units of the quota.
        limit: u64,
        /// The nominal length of a window.
        window: Duration,
        /// The time to the end of the running window; `None` if none runs.
        ends_in: Option<Duration>,
    },
    /// Counters of the parts of a window.
    SlidingWindow {
        /// Units of the quota.
        limit: u64,
        /// Units that count now, rounded up.
        used: u64,
        /// The length of a part, or of several that are counted together.
        part: Duration,
        /// The age of the running part.
        elapsed: Duration,
        /// The weight of the oldest part.
        oldest: OldestPart,
        /// Counted units of each part: the oldest first, which the window covers only partly, and
        /// the running one last.
        counts: Vec<u32>,
    },
    /// The instant of each unit.
    SlidingLog {
        /// Units of the quota.
        limit: u64,
        /// The length of the window.
        window: Duration,
        /// Units in the window.
        used: u64,
        /// Ages of the newest units, newest first.
        ages: Vec<Duration>,
    },
    /// Units in use.
    Concurrency {
        /// Units in use.
        in_use: u32,
        /// The largest number of units in use.
        max: u32,
        /// Waiting requests.
        waiting: u32,
        /// The largest number of waiting requests.
        queue: u32,
    },
}

/// A theoretical arrival time, and its bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArrivalTime {
    /// The distance of TAT from now.
    pub ahead: Duration,
    /// The largest distance, tau; more is debt.
    pub tau: Duration,
    /// The quota: a unit moves TAT by window / limit.
    pub quota: Quota,
    /// The largest number of units at one instant.
    pub burst: u32,
}

/// One bucket at one instant, in the numbers of a decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketFacts {
    /// The decision on a request of no units: what is left.
    pub decision: Decision,
    /// The decision on the next request, as it was asked for.
    pub next: Decision,
    /// Units used beyond the capacity.
    pub owed: u64,
    /// The bucket as its algorithm sees it.
    pub view: BucketView,
}

impl BucketView {
    /// The largest number of counters, and of instants, in a view.
    pub const MOST: usize = 120;
}

impl Algorithm {
    /// The bucket at `now`, for people to look at. `state` is an open bucket ([`Algorithm::open`]).
    pub fn view<'a>(&self, state: impl Into<BucketState<'a>>, now: Timestamp) -> BucketView {
        let state = state.into();
        let cell = state.cell;
        match self {
            Self::Gcra(gcra) => BucketView::Gcra(gcra.arrival_time(cell, now)),
            Self::TokenBucket(gcra) => BucketView::TokenBucket(gcra.arrival_time(cell, now)),
            Self::IntervalRefill(bucket) => bucket.bucket_view(cell, now),
            Self::LeakyBucket(bucket) => bucket.bucket_view(cell, now),
            Self::FixedWindow(window) => window.bucket_view(cell, now),
            Self::SlidingWindow(window) => window.bucket_view(cell, now),
            Self::SlidingCounters(window) => window.bucket_view(state, now),
            Self::SlidingLog(log) => log.bucket_view(state, now),
            Self::Concurrency(bound) => bound.bucket_view(cell),
            // A count until an instant.
            Self::Grant(_) => BucketView::FixedWindow {
                used: Grant::used(cell, now) as u64,
                limit: cell.b.into(),
                window: cell.whole_at(now).since(now),
                ends_in: cell.is_live(now).then(|| cell.whole_at(now).since(now)),
            },
        }
    }

    /// The bucket at `now` in the numbers of a decision, also of that on the next request, which has this
    /// demand. `state` is an open bucket.
    pub fn facts<'a>(
        &self,
        state: impl Into<BucketState<'a>>,
        demand: Demand,
        now: Timestamp,
    ) -> BucketFacts {
        let state = state.into();
        BucketFacts {
            decision: self.decide_keeping(state, now, demand.of_nothing()),
            next: self.decide_keeping(state, now, demand),
            owed: self.owed_units(state, now),
            view: self.view(state, now),
        }
    }
}
