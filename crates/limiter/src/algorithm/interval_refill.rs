//! A token bucket that is refilled in steps: a number of tokens at a regular interval, which starts
//! when the bucket stops being full.

use std::time::Duration;

use super::debt::Debt;
use super::settle::Refund;
use super::{BucketView, Recount, ReservedCharge};
use crate::{Cell, Decision, Outcome, Quota, QuotaError, Timestamp};

/// The parameters of a bucket that is refilled in steps.
///
/// Cell: `expires` is the refill that makes the bucket full, and earlier refills lie whole
/// intervals before it. That last refill adds `a` tokens (1 to `amount`), each earlier one
/// `amount`. `b` are the units that a lower quota has cut off (`Recount`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IntervalRefill {
    capacity: u32,
    amount: u32,
    interval: u64,
    /// The capacity, in the time that an empty bucket takes to fill.
    pub(super) quota: Quota,
}

/// The missing tokens, and the next refill: at most an interval away.
#[derive(Clone, Copy)]
struct View {
    missing: u64,
    next: u64,
    cut: u32,
}

impl IntervalRefill {
    /// `amount` tokens each `interval`, up to `capacity`. A capacity of 0 refuses always.
    ///
    /// # Errors
    /// The amount is 0, the interval is no window ([`Quota::new`]), or an empty bucket takes longer
    /// than [`Quota::MAX_WINDOW`] to fill.
    pub fn new(capacity: u32, amount: u32, interval: Duration) -> Result<Self, QuotaError> {
        let interval = Quota::new(amount, interval)?.window_micros();
        if amount == 0 {
            return Err(QuotaError::RefillZero);
        }
        let intervals = u64::from(capacity.div_ceil(amount).max(1));
        let whole = intervals
            .checked_mul(interval)
            .ok_or(QuotaError::BurstTooLong)?;
        let quota = Quota::new(capacity, Duration::from_micros(whole))
            .map_err(|_| QuotaError::BurstTooLong)?;
        Ok(Self {
            capacity,
            amount,
            interval,
            quota,
        })
    }

    /// Tokens of a refill, and the interval in microseconds.
    pub const fn refill(&self) -> (u32, u64) {
        (self.amount, self.interval)
    }

    pub(super) fn decide(&self, cell: Cell, now: Timestamp, cost: u32) -> Decision {
        let view = self.view(cell, now);
        let missing = view.missing.saturating_add(u64::from(cost));
        let left = |missing| u64::from(self.capacity).saturating_sub(missing) as u32;
        let refuse = |retry_at| {
            let outcome = Outcome::Refuse { retry_at };
            Decision::new(outcome, cell, now, left(view.missing), self.capacity)
        };
        if self.capacity == 0 || cost > self.capacity {
            return refuse(None);
        }
        let excess = missing.checked_sub(u64::from(self.capacity) + 1);
        // A cost of 0 is admitted even in debt.
        if let Some(excess) = excess.filter(|_| cost > 0) {
            let refills = excess / u64::from(self.amount);
            let retry_at = (view.next + refills * self.interval).min(cell.expires);
            return refuse(Some(Timestamp::from_micros(retry_at)));
        }
        let cell = self.cell(View { missing, ..view });
        Decision::new(Outcome::Admit, cell, now, left(missing), self.capacity)
    }

    /// The longest time, in microseconds, that the bucket takes to fill in debt.
    pub fn max_debt(&self, debt: Debt) -> u64 {
        let window = self.quota.window_micros();
        match debt {
            Debt::Refused => window,
            Debt::Windows(windows) => (u64::from(windows) + 1)
                .saturating_mul(window)
                .min(Quota::MAX_WINDOW.as_micros() as u64),
        }
    }

    /// The bucket without the tokens charged at `at` that have not been refilled since, even if it
    /// lacks them.
    pub(super) fn owe(
        &self,
        cell: Cell,
        at: Timestamp,
        now: Timestamp,
        units: u32,
        debt: Debt,
    ) -> Cell {
        let refills = (now.as_micros() - at.as_micros()) / self.interval;
        let back = refills.saturating_mul(u64::from(self.amount));
        let left = u64::from(units).saturating_sub(back);
        let view = self.view(cell, now);
        let most = self.max_missing(&view, now, debt);
        if view.missing >= most {
            return cell;
        }
        let missing = (view.missing + left).min(most);
        self.cell(View { missing, ..view })
    }

    /// The most tokens that may be missing in debt.
    fn max_missing(&self, view: &View, now: Timestamp, debt: Debt) -> u64 {
        let full = now.saturating_add_micros(self.max_debt(debt));
        let refills = full.as_micros().saturating_sub(view.next) / self.interval + 1;
        refills.saturating_mul(u64::from(self.amount))
    }

    pub(super) fn used(&self, cell: Cell, now: Timestamp) -> u128 {
        u128::from(self.view(cell, now).missing)
    }

    pub(super) fn bucket_view(&self, cell: Cell, now: Timestamp) -> BucketView {
        let view = self.view(cell, now);
        let next = Timestamp::from_micros(view.next).since(now);
        BucketView::IntervalRefill {
            missing: view.missing,
            capacity: self.capacity,
            amount: self.amount,
            interval: Duration::from_micros(self.interval),
            next: (view.missing > 0).then_some(next),
        }
    }

    /// The larger debt, with the later of the two refills.
    pub(super) fn join(&self, left: Cell, right: Cell, now: Timestamp) -> Cell {
        let (left, right) = (self.view(left, now), self.view(right, now));
        self.cell(View {
            missing: left.missing.max(right.missing),
            next: left.next.max(right.next),
            cut: left.cut.max(right.cut),
        })
    }

    /// The same capacity and interval, with `amount` tokens each.
    pub(super) fn with_rate(&self, amount: u32) -> Option<Self> {
        Self::new(self.capacity, amount, Duration::from_micros(self.interval)).ok()
    }

    /// As many tokens are missing, and the next refill comes when it would have.
    pub(super) fn convert_rate(&self, cell: Cell, amount: u32, now: Timestamp) -> Cell {
        let view = Self { amount, ..*self }.view(cell, now);
        let most = self.max_missing(&view, now, Debt::CARRIED);
        self.cell(View {
            missing: view.missing.min(most),
            ..view
        })
    }

    /// Keeps the missing tokens, at most a whole bucket and the debt, and the next refill unless
    /// that is more than a new interval away.
    pub(super) fn convert(&self, from: &Self, cell: Cell, now: Timestamp) -> Cell {
        let view = from.view(cell, now);
        let mut recount = Recount::of(cell, from.capacity.into(), self.capacity.into());
        let owed = view.missing.saturating_sub(u64::from(from.capacity));
        let all = view.missing.min(u64::from(from.capacity)) + u64::from(recount.returned);
        let held = all.min(u64::from(self.capacity));
        recount.cut_off(all - held);
        let kept = View {
            missing: held + owed,
            next: view.next.min(now.as_micros().saturating_add(self.interval)),
            cut: recount.cut,
        };
        let missing = kept
            .missing
            .min(self.max_missing(&kept, now, Debt::CARRIED));
        self.cell(View { missing, ..kept })
    }

    pub(super) fn give_back(&self, cell: Cell, refund: Refund<'_>) -> Cell {
        let view = self.view(cell, refund.now);
        let back = (refund.units).min(self.returnable(refund.reserved, refund.now));
        // Units that a lower quota has cut off go first: those that count were used, too.
        let from_cut = back.min(view.cut);
        self.cell(View {
            missing: view.missing.saturating_sub(u64::from(back - from_cut)),
            cut: view.cut - from_cut,
            ..view
        })
    }

    /// Tokens of a charge that have certainly not been refilled. Two lower bounds count: the tokens
    /// still missing after it less all unsettled earlier charges, and this charge less the refills
    /// since. While tokens are missing, refills come when they came then.
    pub(super) fn returnable(&self, reserved: &ReservedCharge, now: Timestamp) -> u32 {
        let missing = self.view(reserved.cell, now).missing;
        let behind_others = missing.saturating_sub(reserved.unsettled);
        let next = self.view(reserved.cell, reserved.at).next;
        let since = now.as_micros().checked_sub(next);
        let refills = since.map_or(0, |since| (since / self.interval).saturating_add(1));
        let refilled = refills.saturating_mul(u64::from(self.amount));
        let alone = u64::from(reserved.units).saturating_sub(refilled);
        behind_others.max(alone).min(u64::from(reserved.units)) as u32
    }

    /// A bucket from which `missing` tokens were taken just now, and `owed` more.
    pub(super) fn with_missing(&self, missing: u32, owed: u32, now: Timestamp) -> Cell {
        let empty = self.view(Cell::EMPTY, now);
        let taken = u64::from(missing.min(self.capacity)) + u64::from(owed);
        let missing = taken.min(self.max_missing(&empty, now, Debt::CARRIED));
        self.cell(View { missing, ..empty })
    }

    fn view(&self, cell: Cell, now: Timestamp) -> View {
        let now = now.as_micros();
        match cell.expires.checked_sub(now) {
            None | Some(0) => View {
                missing: 0,
                next: now.saturating_add(self.interval),
                cut: 0,
            },
            Some(ahead) => {
                let full = (ahead - 1) / self.interval;
                View {
                    // A `now` long before the first charge may count more refills than fit.
                    missing: full
                        .saturating_mul(u64::from(self.amount))
                        .saturating_add(u64::from(cell.a)),
                    next: cell.expires - full * self.interval,
                    cut: cell.b,
                }
            }
        }
    }

    fn cell(&self, view: View) -> Cell {
        let Some(below) = view.missing.checked_sub(1) else {
            return Cell::EMPTY;
        };
        let amount = u64::from(self.amount);
        Cell {
            expires: view.next.saturating_add(below / amount * self.interval),
            a: (below % amount + 1) as u32,
            b: view.cut,
        }
    }
}
