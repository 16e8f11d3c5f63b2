//! The generic cell rate algorithm (ITU-T I.371, as a virtual scheduling algorithm), with bursts.
//!
//! A bucket is one *theoretical arrival time* (TAT), the instant at which it is whole again. A unit
//! moves it by `T = window / limit`; it may lie at most `tau = T * burst` ahead. The fraction of
//! TAT below a microsecond is kept as a numerator over the limit, so that 3/1s never drifts: every
//! sum here is in units of 1/limit microseconds.

use std::time::Duration;

use super::debt::Debt;
use super::settle::Refund;
use super::{ArrivalTime, Recount, ReservedCharge, div_ceil, div_floor};
use crate::{Cell, Decision, Outcome, Quota, QuotaError, Timestamp};

/// The parameters of GCRA, and of a token bucket with continuous refill.
///
/// Cell: `expires` is TAT rounded up to a microsecond; `a / limit` is the amount of that rounding;
/// `b` the units that a lower quota has cut off (`Recount`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gcra {
    quota: Quota,
    burst: u32,
    /// tau, in 1/limit microseconds.
    whole: u128,
}

/// A duration with a fraction of a microsecond.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FractionalDuration {
    /// Whole microseconds.
    pub micros: u64,
    /// The numerator of the rest over the quota's limit.
    pub rest: u32,
}

impl Gcra {
    /// At most `burst` units at once, recovering at the quota's rate. A quota of 0 has no burst.
    ///
    /// # Errors
    /// When the burst is 0, or takes longer than [`Quota::MAX_WINDOW`] to recover.
    pub fn new(quota: Quota, burst: u32) -> Result<Self, QuotaError> {
        if burst == 0 && quota.limit() > 0 {
            return Err(QuotaError::BurstZero);
        }
        let whole = u128::from(quota.window_micros()) * u128::from(burst);
        Self::with_tau(quota, whole)
    }

    /// TAT may lie at most `whole / limit` microseconds ahead, whole units or not.
    pub(super) fn with_tau(quota: Quota, whole: u128) -> Result<Self, QuotaError> {
        if quota.limit() == 0 {
            return Ok(Self {
                quota,
                burst: 0,
                whole: 0,
            });
        }
        if whole.div_ceil(u128::from(quota.limit())) > Quota::MAX_WINDOW.as_micros() {
            return Err(QuotaError::BurstTooLong);
        }
        let burst = whole / u128::from(quota.window_micros());
        Ok(Self {
            quota,
            burst: u32::try_from(burst).unwrap_or(u32::MAX),
            whole,
        })
    }

    /// The largest number of units at one instant.
    pub const fn burst(&self) -> u32 {
        self.burst
    }

    /// The quota, whose rate the bucket recovers at.
    pub const fn quota(&self) -> Quota {
        self.quota
    }

    /// The largest distance of TAT from now.
    pub fn tau(&self) -> FractionalDuration {
        self.span(self.whole)
    }

    /// The distance by which `units` units move TAT.
    pub fn step(&self, units: u32) -> FractionalDuration {
        self.span(self.units(units))
    }

    /// The largest distance of TAT from now in debt.
    pub fn max_debt(&self, debt: Debt) -> FractionalDuration {
        self.span(self.debt_limit(debt))
    }

    fn span(&self, parts: u128) -> FractionalDuration {
        let limit = u128::from(self.quota.limit()).max(1);
        FractionalDuration {
            micros: u64::try_from(parts / limit).unwrap_or(u64::MAX),
            rest: (parts % limit) as u32,
        }
    }

    fn debt_limit(&self, debt: Debt) -> u128 {
        let window = self.units(self.quota.limit());
        match debt {
            Debt::Refused => window.max(self.whole),
            Debt::Windows(windows) => {
                let longest = Quota::MAX_WINDOW.as_micros() * u128::from(self.limit());
                (self.whole + window * u128::from(windows)).min(longest)
            }
        }
    }

    pub(super) fn decide(&self, cell: Cell, now: Timestamp, cost: u32) -> Decision {
        let backlog = self.used(cell, now);
        let remaining = |left| div_floor(left, self.quota.window_micros()) as u32;
        let refuse = |retry_at| {
            let outcome = Outcome::Refuse { retry_at };
            let left = self.whole.saturating_sub(backlog);
            Decision::new(outcome, cell, now, remaining(left), self.burst)
        };
        if self.burst == 0 || cost > self.burst {
            return refuse(None);
        }
        let charged = backlog + self.units(cost);
        // A cost of 0 is admitted even in debt.
        let in_debt = (cost == 0).then_some(0);
        let Some(left) = self.whole.checked_sub(charged).or(in_debt) else {
            let wait = div_ceil(charged - self.whole, self.limit());
            return refuse(Some(now.saturating_add_micros(wait)));
        };
        let cell = self.cell(now, charged, cell);
        Decision::new(Outcome::Admit, cell, now, remaining(left), self.burst)
    }

    /// The bucket without `cost` of its units, if nothing else was charged since.
    pub(super) fn returned(&self, cell: Cell, now: Timestamp, cost: u32) -> Cell {
        let backlog = self.used(cell, now).saturating_sub(self.units(cost));
        self.cell(now, backlog, cell)
    }

    /// The bucket plus the units charged at `at` that have not recovered since, even if it lacks
    /// them.
    pub(super) fn owe(
        &self,
        cell: Cell,
        at: Timestamp,
        now: Timestamp,
        units: u32,
        debt: Debt,
    ) -> Cell {
        let back = u128::from(now.as_micros() - at.as_micros()) * u128::from(self.limit());
        let backlog = self.used(cell, now);
        let owed = backlog + self.units(units).saturating_sub(back);
        self.cell(now, owed.min(self.debt_limit(debt)).max(backlog), cell)
    }

    /// The distance of TAT from `now`, in 1/limit microseconds.
    pub(super) fn used(&self, cell: Cell, now: Timestamp) -> u128 {
        let ahead = cell.expires.saturating_sub(now.as_micros());
        (u128::from(ahead) * u128::from(self.limit())).saturating_sub(u128::from(cell.a))
    }

    /// The same burst, recovering with a quota of `limit` units in the same window.
    pub(super) fn with_rate(&self, limit: u32) -> Option<Self> {
        Self::with_tau(self.quota.with_limit(limit), self.whole).ok()
    }

    /// The distance of TAT in 1/limit microseconds is the used units times the window, whatever the
    /// limit is.
    pub(super) fn convert_rate(&self, cell: Cell, limit: u32, now: Timestamp) -> Cell {
        if self.limit() == 0 {
            return cell;
        }
        let from = Self {
            quota: self.quota.with_limit(limit),
            ..*self
        };
        let used = from.used(cell, now);
        self.cell(now, used.min(self.debt_limit(Debt::CARRIED)), Cell::EMPTY)
    }

    /// TAT as people look at it, rounded up to a microsecond.
    pub(super) fn arrival_time(&self, cell: Cell, now: Timestamp) -> ArrivalTime {
        ArrivalTime {
            ahead: Duration::from_micros(cell.expires.saturating_sub(now.as_micros())),
            tau: Duration::from_micros(self.tau().micros),
            quota: self.quota,
            burst: self.burst,
        }
    }

    /// The later TAT.
    pub(super) fn join(left: Cell, right: Cell) -> Cell {
        let tat = |cell: Cell| (cell.expires, std::cmp::Reverse(cell.a));
        let later = if tat(left) >= tat(right) { left } else { right };
        Cell {
            b: left.b.max(right.b),
            ..later
        }
    }

    /// Keeps used units, with a fraction of one, rounded up: at most a whole bucket, and the debt.
    pub(super) fn convert(&self, from: &Self, cell: Cell, now: Timestamp) -> Cell {
        let backlog = from.used(cell, now);
        let (old, new) = (
            u128::from(from.quota.window_micros()),
            u128::from(self.quota.window_micros()),
        );
        let carried = |parts: u128| parts / old * new + (parts % old * new).div_ceil(old);
        let mut recount = Recount::of(cell, from.burst.into(), self.burst.into());
        let all = carried(backlog.min(from.whole)) + self.units(recount.returned);
        let held = all.min(self.whole);
        recount.cut_off(div_ceil(all - held, self.quota.window_micros()));
        let owed = carried(backlog.saturating_sub(from.whole));
        let backlog = (held + owed).min(self.debt_limit(Debt::CARRIED));
        Cell {
            b: recount.cut,
            ..self.cell(now, backlog, Cell::EMPTY)
        }
    }

    /// Moves TAT back.
    pub(super) fn give_back(&self, cell: Cell, refund: Refund<'_>) -> Cell {
        let now = refund.now;
        let back = (self.units(refund.units)).min(self.not_recovered(refund.reserved, now));
        // Units that a lower quota has cut off go first: those that count were used, too.
        let cut = u128::from(if cell.is_live(now) { cell.b } else { 0 });
        let unit = self.units(1);
        let from_cut = cut.min(back / unit);
        let rest = if from_cut < cut {
            0
        } else {
            back - from_cut * unit
        };
        let cell = Cell {
            b: (cut - from_cut) as u32,
            ..cell
        };
        self.cell(now, self.used(cell, now).saturating_sub(rest), cell)
    }

    /// The whole units of a charge that have not recovered yet.
    pub(super) fn returnable(&self, reserved: &ReservedCharge, now: Timestamp) -> u32 {
        let units = self.not_recovered(reserved, now) / u128::from(self.quota.window_micros());
        units.min(u128::from(reserved.units)) as u32
    }

    /// The part of a charge that has certainly not recovered, in 1/limit microseconds.
    ///
    /// Moving TAT back is exact as long as the bucket has not been whole since the charge. Two
    /// lower bounds prove that it has not: TAT after the charge less all unsettled earlier charges,
    /// and TAT for this charge alone.
    fn not_recovered(&self, reserved: &ReservedCharge, now: Timestamp) -> u128 {
        let elapsed = now.as_micros().saturating_sub(reserved.at.as_micros());
        let alone = self
            .units(reserved.units)
            .saturating_sub(u128::from(elapsed) * u128::from(self.limit()));
        let behind_others = self.used(reserved.cell, now).saturating_sub(
            u128::from(self.quota.window_micros()) * u128::from(reserved.unsettled),
        );
        alone.max(behind_others)
    }

    /// A bucket from which `units` units were taken just now, and `owed` more.
    pub(super) fn with_missing(&self, units: u32, owed: u32, now: Timestamp) -> Cell {
        let taken = self.units(units.min(self.burst)) + self.units(owed);
        self.cell(now, taken.min(self.debt_limit(Debt::CARRIED)), Cell::EMPTY)
    }

    /// The cell with this backlog, which was `before`.
    fn cell(&self, now: Timestamp, backlog: u128, before: Cell) -> Cell {
        if backlog == 0 {
            return Cell::EMPTY;
        }
        let ahead = div_ceil(backlog, self.limit());
        let added = u128::from(ahead) * u128::from(self.limit()) - backlog;
        Cell {
            expires: now.as_micros().saturating_add(ahead),
            a: added as u32,
            b: if before.is_live(now) { before.b } else { 0 },
        }
    }

    /// T for each unit, in 1/limit microseconds.
    fn units(&self, cost: u32) -> u128 {
        u128::from(self.quota.window_micros()) * u128::from(cost)
    }

    fn limit(&self) -> u64 {
        u64::from(self.quota.limit())
    }
}
