//! The generic cell rate algorithm (ITU-T I.371, as a virtual scheduling algorithm), with bursts.
//!
//! A bucket is one *theoretical arrival time* (TAT), the instant at which it is whole again. A unit
//! moves it by `T = window / limit`; it may lie at most `tau = T * burst` ahead. The fraction of
//! TAT below a microsecond is kept as a numerator over the limit, so that 3/1s never drifts: every
//! sum here is in units of 1/limit microseconds.

use super::{Refusal, ReservedCharge, div_ceil, div_floor, refuse};
use crate::clock::Timestamp;
use crate::limiter::{Cell, Decision, Outcome, Quota, QuotaError};

/// The parameters of GCRA, and of a token bucket with continuous refill.
///
/// Cell: `expires` is TAT rounded up to a microsecond, `a / limit` what the rounding added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gcra {
    quota: Quota,
    burst: u32,
    /// tau, in 1/limit microseconds.
    whole: u128,
}

/// A span of time that need not be whole microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FractionalDuration {
    /// Those that are whole.
    pub micros: u64,
    /// What is over, over the quota's limit; below that.
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

    /// The same where TAT may lie at most `whole / limit` microseconds ahead, whole units or not.
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

    /// The most units that can be taken at one instant.
    pub const fn burst(&self) -> u32 {
        self.burst
    }

    /// The quota at whose rate it recovers.
    pub const fn quota(&self) -> Quota {
        self.quota
    }

    /// How far ahead TAT may lie.
    pub fn tau(&self) -> FractionalDuration {
        self.span(self.whole)
    }

    /// How far so many units move TAT.
    pub fn step(&self, units: u32) -> FractionalDuration {
        self.span(self.units(units))
    }

    /// How far ahead it may lie in debt.
    pub fn max_debt(&self) -> FractionalDuration {
        self.span(self.debt_limit())
    }

    fn span(&self, parts: u128) -> FractionalDuration {
        let limit = u128::from(self.quota.limit()).max(1);
        FractionalDuration {
            micros: u64::try_from(parts / limit).unwrap_or(u64::MAX),
            rest: (parts % limit) as u32,
        }
    }

    fn debt_limit(&self) -> u128 {
        self.units(self.quota.limit()).max(self.whole)
    }

    pub(super) fn decide(&self, cell: Cell, now: Timestamp, cost: u32) -> Decision {
        let backlog = self.used(cell, now);
        if self.burst == 0 || cost > self.burst {
            return self.refuse(cell, now, backlog, None);
        }
        let charged = backlog + self.units(cost);
        // Who asks for nothing is refused by no debt.
        let in_debt = (cost == 0).then_some(0);
        let Some(left) = self.whole.checked_sub(charged).or(in_debt) else {
            let wait = div_ceil(charged - self.whole, self.limit());
            return self.refuse(cell, now, backlog, Some(now.saturating_add_micros(wait)));
        };
        let cell = self.cell(now, charged);
        Decision {
            outcome: Outcome::Admit,
            remaining: div_floor(left, self.quota.window_micros()) as u32,
            capacity: self.burst,
            reset: cell.whole_at(now),
            more_at: None,
            cell,
        }
    }

    /// The bucket without `cost` units that were taken from it, as if nothing else had come since.
    pub(super) fn returned(&self, cell: Cell, now: Timestamp, cost: u32) -> Cell {
        let backlog = self.used(cell, now).saturating_sub(self.units(cost));
        self.cell(now, backlog)
    }

    /// The bucket in debt: TAT may lie a window ahead, or what the burst takes if that is more.
    pub(super) fn charge_refused(&self, cell: Cell, now: Timestamp, cost: u32) -> Cell {
        let backlog = self.used(cell, now);
        let owed = (backlog + self.units(cost)).min(self.debt_limit());
        self.cell(now, owed.max(backlog))
    }

    /// The bucket with what has not come back of units since `at`; TAT may lie what the burst takes and a window ahead.
    pub(super) fn charge_remote(
        &self,
        cell: Cell,
        at: Timestamp,
        now: Timestamp,
        units: u32,
    ) -> Cell {
        let back = u128::from(now.as_micros() - at.as_micros()) * u128::from(self.limit());
        let most = self.whole + self.units(self.quota.limit());
        let backlog = self.used(cell, now);
        let owed = backlog + self.units(units).saturating_sub(back);
        self.cell(now, owed.min(most).max(backlog))
    }

    /// How far TAT lies ahead of `now`, in 1/limit microseconds.
    pub(super) fn used(&self, cell: Cell, now: Timestamp) -> u128 {
        let ahead = cell.expires.saturating_sub(now.as_micros());
        (u128::from(ahead) * u128::from(self.limit())).saturating_sub(u128::from(cell.a))
    }

    /// The later TAT.
    pub(super) fn join(left: Cell, right: Cell) -> Cell {
        let tat = |cell: Cell| (cell.expires, std::cmp::Reverse(cell.a));
        if tat(left) >= tat(right) { left } else { right }
    }

    /// Keeps units, and what there is of a further one, rounded up.
    pub(super) fn convert(&self, from: &Self, cell: Cell, now: Timestamp) -> Cell {
        let backlog = from.used(cell, now);
        let (old, new) = (
            u128::from(from.quota.window_micros()),
            u128::from(self.quota.window_micros()),
        );
        let carried = backlog / old * new + (backlog % old * new).div_ceil(old);
        self.cell(now, carried.min(self.whole))
    }

    /// Moves TAT back.
    pub(super) fn give_back(
        &self,
        cell: Cell,
        reserved: &ReservedCharge,
        units: u32,
        now: Timestamp,
    ) -> Cell {
        let back = self.units(units).min(self.not_recovered(reserved, now));
        self.cell(now, self.used(cell, now).saturating_sub(back))
    }

    /// Whole units of a charge that have not come back with time.
    pub(super) fn returnable(&self, reserved: &ReservedCharge, now: Timestamp) -> u32 {
        let units = self.not_recovered(reserved, now) / u128::from(self.quota.window_micros());
        units.min(u128::from(reserved.units)) as u32
    }

    /// What of a charge has certainly not come back with time, in 1/limit microseconds.
    ///
    /// As long as the bucket has not been whole since, giving back makes TAT what it would be without those units.
    /// It has not been as long as `now` is before where TAT came to lie, also if all earlier charges that were to be
    /// settled were given back; nor before where it came to lie at the least, by the charge alone.
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

    /// A bucket from which so many units were taken just now, but never more than it holds.
    pub(super) fn with_missing(&self, units: u32, now: Timestamp) -> Cell {
        self.cell(now, self.units(units.min(self.burst)))
    }

    fn refuse(
        &self,
        cell: Cell,
        now: Timestamp,
        backlog: u128,
        retry_at: Option<Timestamp>,
    ) -> Decision {
        let left = self.whole.saturating_sub(backlog);
        let remaining = div_floor(left, self.quota.window_micros()) as u32;
        refuse(
            cell,
            now,
            Refusal {
                retry_at,
                remaining,
                capacity: self.burst,
            },
        )
    }

    /// The cell whose TAT lies `backlog` ahead of `now`.
    fn cell(&self, now: Timestamp, backlog: u128) -> Cell {
        if backlog == 0 {
            return Cell::EMPTY;
        }
        let ahead = div_ceil(backlog, self.limit());
        let added = u128::from(ahead) * u128::from(self.limit()) - backlog;
        Cell {
            expires: now.as_micros().saturating_add(ahead),
            a: added as u32,
            b: 0,
        }
    }

    /// `cost` units: T each, in 1/limit microseconds.
    fn units(&self, cost: u32) -> u128 {
        u128::from(self.quota.window_micros()) * u128::from(cost)
    }

    fn limit(&self) -> u64 {
        u64::from(self.quota.limit())
    }
}
