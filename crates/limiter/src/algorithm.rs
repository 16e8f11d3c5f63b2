//! The algorithms, behind the enum that all other code uses.
//!
//! A new algorithm is a file with the same five functions, and a variant here. `algorithm/tests.rs`
//! checks the promises of all algorithms. `cell_rate.rs` reads cells of another quota, `rings.rs` has
//! the operations on rings, `debt.rs` charges beyond what a bucket holds, `settle.rs` gives back, and
//! `view.rs` shows buckets to people.

pub(super) mod concurrency;
mod cell_rate;
mod debt;
pub(super) mod fixed_window;
pub(super) mod gcra;
pub(super) mod interval_refill;
mod encoding;
pub(super) mod grant;
pub(super) mod leaky_bucket;
mod rings;
mod settle;
pub(super) mod sliding_counters;
pub(super) mod sliding_log;
pub(super) mod sliding_window;
pub(super) mod window_weight;
mod view;
#[cfg(test)]
pub(super) mod tests;

use std::time::Duration;

use strum::{EnumDiscriminants, IntoStaticStr};

use self::concurrency::Concurrency;
pub use self::debt::Debt;
use self::fixed_window::{FixedWindow, Start};
use self::gcra::Gcra;
use self::grant::Grant;
use self::interval_refill::IntervalRefill;
use self::leaky_bucket::LeakyBucket;
pub use self::settle::ReservedCharge;
use self::sliding_counters::SlidingCounters;
use self::sliding_log::SlidingLog;
use self::sliding_window::SlidingWindow;
pub use self::view::{ArrivalTime, BucketFacts, BucketView};
use crate::algorithms::WindowEnd;
use crate::ring::BucketState;
use crate::{Cell, Decision, Fingerprint, Outcome, Quota, Timestamp};

/// The rule by which a bucket empties and recovers. Its kind is the same enum without the quotas.
#[derive(Clone, Debug, PartialEq, Eq, IntoStaticStr, EnumDiscriminants)]
#[strum(serialize_all = "snake_case")]
#[strum_discriminants(name(AlgorithmKind), derive(Hash, IntoStaticStr))]
#[strum_discriminants(strum(serialize_all = "snake_case"))]
#[strum_discriminants(doc = "A kind of algorithm, which scripts know by its arithmetic.")]
pub enum Algorithm {
    /// The generic cell rate algorithm, the default.
    Gcra(Gcra),
    /// A token bucket with continuous refill, one unit each window / limit: the arithmetic of GCRA
    /// under its better known name.
    #[strum_discriminants(strum(serialize = "gcra"))]
    TokenBucket(Gcra),
    /// A token bucket that is refilled in steps.
    #[strum(serialize = "token_bucket")]
    IntervalRefill(IntervalRefill),
    /// A queue that moves at the quota's rate.
    LeakyBucket(LeakyBucket),
    /// A count for each window.
    FixedWindow(FixedWindow),
    /// Two counts, the earlier weighted by the share of its window that is still covered.
    SlidingWindow(SlidingWindow),
    /// A count for each of many parts.
    #[strum(serialize = "sliding_window")]
    SlidingCounters(SlidingCounters),
    /// The instant of each unit.
    SlidingLog(SlidingLog),
    /// Units in use, which requests return when they end.
    Concurrency(Concurrency),
    /// Units that an operator grants to a key, beyond its quota.
    Grant(Grant),
}

impl From<Quota> for Algorithm {
    /// GCRA, with a burst of the whole limit.
    fn from(quota: Quota) -> Self {
        let gcra = Gcra::new(quota, quota.limit());
        Self::Gcra(gcra.expect("a burst of the limit recovers within the window"))
    }
}

/// Units with their ages in microseconds, newest first.
type History = Vec<(u64, u32)>;

/// The units that a request needs in a bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Demand {
    /// Units that it takes.
    pub cost: u32,
    /// Units that have to be there, and that its response may take.
    pub required: u32,
    /// Units that it has to leave to requests with a larger burst.
    pub kept: u64,
}

impl Demand {
    /// `cost` units, and no more.
    pub const fn of(cost: u32) -> Self {
        Self {
            cost,
            required: 0,
            kept: 0,
        }
    }

    /// The units that have to be there for the request itself.
    pub const fn needed(self) -> u32 {
        self.cost.saturating_add(self.required)
    }

    /// The demand of a refused request: no response can charge what it needs.
    #[must_use]
    pub const fn owed(self) -> Self {
        Self {
            cost: self.needed(),
            required: 0,
            ..self
        }
    }

    /// The demand of a request of no units that has to leave as many to others.
    #[must_use]
    pub const fn of_nothing(self) -> Self {
        Self {
            kept: self.kept,
            ..Self::of(0)
        }
    }
}

impl Algorithm {
    /// The bucket to decide on: `cell` if it still counts, else a new bucket of `key`. If requests set
    /// the ends of windows ([`Start::Local`]), a new window ends at `end`, which is after `now`.
    pub fn open(
        &self,
        cell: Cell,
        key: Fingerprint,
        end: Option<WindowEnd>,
        now: Timestamp,
    ) -> Cell {
        match self {
            Self::FixedWindow(window) if !FixedWindow::is_running(cell, now) => {
                window.open(cell, key, end, now)
            }
            // Its ring does not belong to the new bucket.
            Self::SlidingCounters(_) | Self::SlidingLog(_) if !cell.is_live(now) => Cell::EMPTY,
            _ => cell,
        }
    }

    /// The bucket of `key` that begins at `now` with the use of another one, which is live. A window
    /// is then the key's own: one that ended with the other would let the next begin too soon.
    pub fn adopt(&self, cell: Cell, key: Fingerprint, now: Timestamp) -> Cell {
        match self {
            Self::FixedWindow(window) => window.adopt(cell, key, now),
            _ => cell,
        }
    }

    /// The decision on a request of `cost` units at `now`, and the bucket after it.
    ///
    /// An expired cell counts as none, and a cost of 0 charges nothing. A `now` before the bucket's
    /// last charge never admits more than that instant would have. If the bucket has a ring, the
    /// caller must record the charge there ([`Algorithm::record`]).
    pub fn decide<'a>(
        &self,
        state: impl Into<BucketState<'a>>,
        now: Timestamp,
        cost: u64,
    ) -> Decision {
        let (state, units) = (state.into(), cost);
        let cell = state.cell;
        let Ok(cost) = u32::try_from(units) else {
            return self.decide_many(state, now, units);
        };
        match self {
            Self::Gcra(gcra) | Self::TokenBucket(gcra) => gcra.decide(cell, now, cost),
            Self::IntervalRefill(bucket) => bucket.decide(cell, now, cost),
            Self::LeakyBucket(bucket) => bucket.decide(cell, now, cost),
            Self::FixedWindow(window) => window.decide(cell, now, units),
            Self::SlidingWindow(window) => window.decide(cell, now, cost),
            Self::SlidingCounters(window) => window.decide(state, now, cost),
            Self::SlidingLog(log) => log.decide(state, now, cost),
            Self::Concurrency(bound) => bound.decide(cell, now, cost),
            Self::Grant(_) => Grant::decide(cell, now, cost),
        }
    }

    /// Decides on more units than most algorithms count.
    #[cold]
    fn decide_many(&self, state: BucketState<'_>, now: Timestamp, units: u64) -> Decision {
        match self {
            Self::FixedWindow(window) => window.decide(state.cell, now, units),
            _ => Decision {
                outcome: Outcome::Refuse { retry_at: None },
                ..self.decide(state, now, 0)
            },
        }
    }

    /// Like [`decide`](Self::decide), but for a request that needs more units than it takes: units that
    /// its response may take, and those that it has to leave to others, under another burst of GCRA or
    /// another limit of a window. The latter count neither as remaining nor as capacity. A request that
    /// takes and requires nothing is decided as without them.
    #[inline]
    pub fn decide_keeping<'a>(
        &self,
        state: impl Into<BucketState<'a>>,
        now: Timestamp,
        demand: Demand,
    ) -> Decision {
        let state = state.into();
        match demand.kept | u64::from(demand.required) {
            0 => self.decide(state, now, demand.cost.into()),
            _ => self.decide_above(state, now, demand),
        }
    }

    /// Decides for a request that needs more units than it takes.
    fn decide_above(&self, state: BucketState<'_>, now: Timestamp, demand: Demand) -> Decision {
        let Demand {
            cost,
            required,
            kept,
        } = demand;
        let all = match u64::from(cost) + u64::from(required) {
            0 => 0,
            needed => needed.saturating_add(kept),
        };
        let decision = self.decide(state, now, all);
        let charged = if decision.is_admitted() {
            self.decide(state, now, cost.into())
        } else {
            decision
        };
        let more_at = match charged.remaining.checked_sub(kept) {
            Some(_) => self.more_at(&charged, now),
            None => (self.decide(state, now, kept.saturating_add(1))).retry_at(),
        };
        Decision {
            remaining: charged.remaining.saturating_sub(kept),
            capacity: charged.capacity.saturating_sub(kept),
            ..charged.with_more_at(more_at)
        }
    }

    /// The instant at which `remaining` grows, never later than a retry. `None` if the bucket is
    /// whole, and for concurrency, where nobody can know.
    pub fn more_at(&self, decision: &Decision, now: Timestamp) -> Option<Timestamp> {
        if let Some(more_at) = decision.more_at {
            return Some(Timestamp::from_micros(more_at.get()));
        }
        if self.quota().is_none() || self.shape().is_some() {
            return None;
        }
        let more = decision.remaining.checked_add(1)?;
        self.decide(decision.cell, now, more).retry_at()
    }

    /// The used share of the quota, in a unit that only equal algorithms share. 0 for an expired
    /// cell.
    pub fn used<'a>(&self, state: impl Into<BucketState<'a>>, now: Timestamp) -> u128 {
        let state = state.into();
        let cell = state.cell;
        match self {
            Self::Gcra(gcra) | Self::TokenBucket(gcra) => gcra.used(cell, now),
            Self::IntervalRefill(bucket) => bucket.used(cell, now),
            Self::LeakyBucket(bucket) => bucket.line().used(cell, now),
            Self::FixedWindow(_) => FixedWindow::count(cell, now).into(),
            Self::SlidingWindow(window) => window.used(cell, now),
            Self::SlidingCounters(window) => window.used(state, now),
            Self::SlidingLog(log) => log.used(state, now),
            Self::Concurrency(_) => cell.a.into(),
            Self::Grant(_) => Grant::used(cell, now),
        }
    }

    /// The smallest bucket that has used at least as much as each of the two, now and at any later
    /// instant. Only for algorithms without rings.
    pub fn join(&self, left: Cell, right: Cell, now: Timestamp) -> Cell {
        match (left.is_live(now), right.is_live(now)) {
            (_, false) => return left,
            (false, true) => return right,
            (true, true) => {}
        }
        match self {
            Self::Gcra(_) | Self::TokenBucket(_) | Self::LeakyBucket(_) => Gcra::join(left, right),
            Self::IntervalRefill(bucket) => bucket.join(left, right, now),
            Self::FixedWindow(_) => FixedWindow::join(left, right, now),
            Self::SlidingWindow(window) => window.join(left, right, now),
            Self::SlidingCounters(_) | Self::SlidingLog(_) => Cell::EMPTY,
            Self::Concurrency(_) => Concurrency::cell(
                left.a.saturating_add(right.a),
                left.b.saturating_add(right.b),
            ),
            // Tables of grants merge no keys.
            Self::Grant(_) => Cell::EMPTY,
        }
    }

    /// The bucket under these parameters with as many used units as `cell` has under `from`, up to
    /// the capacity, and its debt. Another kind of algorithm starts empty. Only for algorithms without rings:
    /// [`Algorithm::convert`] covers all.
    pub fn convert_cell(&self, from: &Self, cell: Cell, now: Timestamp) -> Cell {
        if !cell.is_live(now) || self.capacity() == 0 {
            return Cell::EMPTY;
        }
        match (self, from) {
            (Self::Gcra(to), Self::Gcra(from))
            | (Self::TokenBucket(to), Self::TokenBucket(from)) => to.convert(from, cell, now),
            (Self::IntervalRefill(to), Self::IntervalRefill(from)) => to.convert(from, cell, now),
            (Self::LeakyBucket(to), Self::LeakyBucket(from)) => {
                to.line().convert(from.line(), cell, now)
            }
            (Self::TokenBucket(_), Self::IntervalRefill(_))
            | (Self::IntervalRefill(_), Self::TokenBucket(_)) => self.recount(from, cell, now),
            (Self::FixedWindow(to), Self::FixedWindow(from)) => to.convert(from, cell, now),
            (Self::SlidingWindow(to), Self::SlidingWindow(from)) => to.convert(from, cell, now),
            _ => Cell::EMPTY,
        }
    }

    /// The token bucket with as many used and owed units as one that is refilled otherwise.
    fn recount(&self, from: &Self, cell: Cell, now: Timestamp) -> Cell {
        let mut recount = Recount::of(cell, from.capacity(), self.capacity());
        let all = from.used_units(cell, now) + u64::from(recount.returned);
        let used = all.min(self.capacity());
        recount.cut_off(all - used);
        let owed = u32::try_from(from.owed_units(cell, now)).unwrap_or(u32::MAX);
        let used = used as u32;
        let made = match self {
            Self::TokenBucket(to) => to.with_missing(used, owed, now),
            Self::IntervalRefill(to) => to.with_missing(used, owed, now),
            _ => Cell::EMPTY,
        };
        Cell {
            b: recount.cut,
            ..made
        }
    }

    /// True if a bucket that was under `from` keeps its used units, up to the capacity
    /// ([`Algorithm::convert`]). It starts empty otherwise.
    pub fn keeps_use_of(&self, from: &Self) -> bool {
        self == from || self.kind() == from.kind() && self.capacity() > 0
    }

    /// The used units, rounded up.
    fn used_units(&self, cell: Cell, now: Timestamp) -> u64 {
        self.capacity() - self.decide(cell, now, 0).remaining
    }

    /// The quota's units in a window, or the largest number of units in use.
    pub const fn limit(&self) -> u64 {
        match (self.quota(), self) {
            (Some((limit, _)), _) => limit,
            (None, Self::Concurrency(bound)) => bound.max as u64,
            // Each grant has its own number of units.
            (None, _) => u32::MAX as u64,
        }
    }

    /// The quota's window; `None` for concurrency and grants.
    pub fn window(&self) -> Option<Duration> {
        self.quota()
            .map(|(_, window)| Duration::from_micros(window))
    }

    /// The number of units that return in a number of microseconds; `None` if time returns none.
    pub fn rate(&self) -> Option<(u64, u64)> {
        match self {
            Self::IntervalRefill(bucket) => {
                let (amount, interval) = bucket.refill();
                Some((amount.into(), interval))
            }
            _ => self.quota(),
        }
    }

    /// True if the algorithm counts units in use, which return when requests end.
    pub const fn is_concurrency(&self) -> bool {
        matches!(self, Self::Concurrency(_))
    }

    /// The largest number of units that one instant can take, including those that wait: the burst,
    /// the limit, or the queue's places plus one. 0 refuses always.
    pub const fn capacity(&self) -> u64 {
        match self {
            Self::Gcra(gcra) | Self::TokenBucket(gcra) => gcra.burst() as u64,
            Self::LeakyBucket(bucket) => bucket.capacity() as u64,
            _ => self.limit(),
        }
    }

    /// True if each key has windows of its own, which its fingerprint shifts.
    pub fn is_staggered(&self) -> bool {
        matches!(self, Self::FixedWindow(window) if *window.start() == Start::Staggered)
    }

    /// True if the algorithm delays requests.
    pub const fn delays(&self) -> bool {
        matches!(self, Self::LeakyBucket(_))
    }

    /// The concurrency limit, if requests wait for its units.
    pub const fn queueing(&self) -> Option<&Concurrency> {
        match self {
            Self::Concurrency(bound) if bound.queue > 0 => Some(bound),
            _ => None,
        }
    }

    /// The algorithm's name, as the configuration spells it. No configuration has grants.
    pub fn kind(&self) -> &'static str {
        self.into()
    }

    /// The quota's units and its window in microseconds; `None` for concurrency and grants.
    const fn quota(&self) -> Option<(u64, u64)> {
        let quota = match self {
            Self::Gcra(gcra) | Self::TokenBucket(gcra) => gcra.quota(),
            Self::IntervalRefill(bucket) => bucket.quota,
            Self::LeakyBucket(bucket) => bucket.line().quota(),
            Self::FixedWindow(window) => return Some(window.quota()),
            Self::SlidingWindow(window) => window.quota,
            Self::SlidingCounters(window) => window.quota,
            Self::SlidingLog(log) => log.quota,
            Self::Concurrency(_) | Self::Grant(_) => return None,
        };
        Some((quota.limit() as u64, quota.window_micros()))
    }
}

/// `dividend / divisor`, rounded down. The caller knows that the quotient fits.
///
/// Almost every dividend fits 64 bits, and a 128-bit division costs several times as much.
fn div_floor(dividend: u128, divisor: u64) -> u64 {
    match u64::try_from(dividend) {
        Ok(narrow) => narrow / divisor,
        Err(_) => (dividend / u128::from(divisor)) as u64,
    }
}

/// `dividend / divisor`, rounded up. The caller knows that the quotient fits.
fn div_ceil(dividend: u128, divisor: u64) -> u64 {
    match dividend.checked_sub(1) {
        Some(below) => div_floor(below, divisor) + 1,
        None => 0,
    }
}

/// Units that a lower quota has no room for. They count again once the quota is raised, unless the
/// bucket was whole in between: lowering a quota and raising it again frees nothing, nor does a
/// machine with the lower quota free units for one that still has the higher.
#[derive(Clone, Copy)]
struct Recount {
    /// Units that count again.
    returned: u32,
    /// Units that do not count.
    cut: u32,
}

impl Recount {
    /// The units of a live cell that count again if the capacity changes from `from` to `to`.
    fn of(cell: Cell, from: u64, to: u64) -> Self {
        let returned = to.saturating_sub(from).min(cell.b.into()) as u32;
        Self {
            returned,
            cut: cell.b - returned,
        }
    }

    fn cut_off(&mut self, units: u64) {
        let units = u32::try_from(units).unwrap_or(u32::MAX);
        self.cut = self.cut.saturating_add(units);
    }
}
