//! A count per window that returns to 0 at the window's end.
//!
//! When the periods of a calendar end is the business of `calendar`.

use std::sync::Arc;
use std::time::Duration;

use super::{Refusal, ReservedCharge, refuse};
use crate::clock::Timestamp;
use crate::limiter::{Calendar, Cell, Decision, Fingerprint, Outcome, Quota};

/// The parameters of a fixed window.
///
/// Cell: `expires` is the end of the window, `a` the units counted in it. The window's end is settled
/// when it starts: whatever else would set another end waits until this one has passed.
///
/// Where requests say when windows end ([`Start::Local`]), the cell outlives its window by `b` seconds, until a nominal
/// window after its first charge, rounded up to a second. A window that is opened until then lasts at least until a
/// period after that charge. So of any three windows the third begins a period after the first or later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FixedWindow {
    quota: Quota,
    start: Start,
}

/// When a window starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Start {
    /// Windows follow one another without a gap; one of them starts this long after the epoch.
    Clock {
        /// What the grid of windows is shifted by; anything beyond one window is the same again.
        offset: Duration,
    },
    /// With the first charged request after the last window ended.
    FirstRequest,
    /// Like [`Start::Clock`], but each key has an offset of its own, so that not all buckets are whole
    /// again at the same instant.
    Staggered,
    /// With the periods of a calendar, whatever the quota's window says.
    Calendar(Arc<Calendar>),
    /// With those of the calendar that each request names; of this one where it names none.
    Local(Arc<Calendar>),
}

/// The end of a window that a request opens, where it says that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowEnd {
    /// After the instant of the request.
    pub at: Timestamp,
    /// The length of the period that ends then, in microseconds.
    pub length: u64,
}

impl WindowEnd {
    /// The end of a period from its start to its end.
    pub fn of((start, end): (Timestamp, Timestamp)) -> Self {
        Self {
            at: end,
            length: end.as_micros().saturating_sub(start.as_micros()),
        }
    }
}

/// Microseconds of a second.
const SECOND: u64 = 1_000_000;

impl Start {
    /// Windows aligned to the Unix epoch: hours, and days in UTC.
    pub const EPOCH: Self = Self::Clock {
        offset: Duration::ZERO,
    };
    /// Weeks that start on Monday, in UTC: the epoch was a Thursday.
    pub const MONDAY: Self = Self::Clock {
        offset: Duration::from_secs(4 * 24 * 60 * 60),
    };
}

impl FixedWindow {
    /// The quota's units in each window, which starts as `start` says.
    pub const fn new(quota: Quota, start: Start) -> Self {
        Self { quota, start }
    }

    /// `limit` units in each period of a calendar.
    pub fn calendar(limit: u32, calendar: Arc<Calendar>) -> Self {
        Self {
            quota: nominal_quota(limit, &calendar),
            start: Start::Calendar(calendar),
        }
    }

    /// `limit` units in each period of the calendar that requests name, or of this one.
    pub fn local(limit: u32, calendar: Arc<Calendar>) -> Self {
        Self {
            quota: nominal_quota(limit, &calendar),
            start: Start::Local(calendar),
        }
    }

    pub(super) const fn quota(&self) -> Quota {
        self.quota
    }

    /// When its windows start.
    pub const fn start(&self) -> &Start {
        &self.start
    }

    /// The running window of a key whose last one has ended, where it is the key that says when it ends, or the
    /// request (`named`): nothing is counted in it yet.
    pub(super) fn open(
        &self,
        cell: Cell,
        key: Fingerprint,
        named: Option<WindowEnd>,
        now: Timestamp,
    ) -> Cell {
        match &self.start {
            Start::Staggered => Cell {
                expires: self.end_on_grid(now, self.offset_of(key)),
                ..Cell::EMPTY
            },
            Start::Local(calendar) => {
                let named = named.unwrap_or_else(|| WindowEnd::of(calendar.period_at(now)));
                self.open_after(cell, named, now)
            }
            _ => cell,
        }
    }

    /// The window that ends as a request says, or a period after the last one began, if that is later.
    fn open_after(&self, last: Cell, named: WindowEnd, now: Timestamp) -> Cell {
        let nominal = self.quota.window_micros();
        let mut end = named.at.as_micros();
        if last.is_live(now) {
            let began = last.expires.saturating_sub(nominal);
            end = end.max(began.saturating_add(named.length));
        }
        let kept = now.as_micros().saturating_add(nominal);
        let expires = kept
            .checked_next_multiple_of(SECOND)
            .unwrap_or(kept)
            .max(end);
        Cell {
            expires,
            a: 0,
            b: u32::try_from((expires - end) / SECOND).unwrap_or(0),
        }
    }

    /// When the window of a cell ends, in microseconds since the epoch.
    pub fn end_of(cell: Cell) -> u64 {
        cell.expires.saturating_sub(u64::from(cell.b) * SECOND)
    }

    /// Whether the window of a cell runs.
    pub(super) fn is_running(cell: Cell, now: Timestamp) -> bool {
        Self::end_of(cell) > now.as_micros()
    }

    /// The window of a cell, with so many units.
    fn counting(&self, cell: Cell, units: u32) -> Cell {
        match (units, &self.start) {
            (0, Start::Local(_)) => Cell { a: 0, ..cell },
            (0, _) => Cell::EMPTY,
            (units, _) => Cell { a: units, ..cell },
        }
    }

    /// The window that runs, or one that begins now.
    fn running(&self, cell: Cell, now: Timestamp) -> Cell {
        match Self::is_running(cell, now) {
            true => cell,
            false => Cell {
                expires: self.end(now),
                ..Cell::EMPTY
            },
        }
    }

    pub(super) fn decide(&self, cell: Cell, now: Timestamp, cost: u32) -> Decision {
        let limit = self.quota.limit();
        // A cell that still counts is the running window, even for a `now` before its start.
        let window = self.running(cell, now);
        let (count, end) = (window.a, Self::end_of(window));
        let reset = |count| match count {
            0 => now,
            _ => Timestamp::from_micros(end).max(now),
        };
        let charged = count.checked_add(cost).filter(|charged| *charged <= limit);
        let Some(charged) = charged.filter(|_| limit > 0) else {
            let retry_at = (limit > 0 && cost <= limit).then_some(Timestamp::from_micros(end));
            let remaining = limit.saturating_sub(count);
            // Nothing is counted in a window that was only opened.
            let cell = if cell.a == 0 { Cell::EMPTY } else { cell };
            let refused = Refusal {
                retry_at,
                remaining,
                capacity: limit,
            };
            return Decision {
                reset: reset(count),
                ..refuse(cell, now, refused)
            };
        };
        let cell = match charged {
            0 => Cell::EMPTY,
            _ => Cell {
                a: charged,
                ..window
            },
        };
        Decision {
            outcome: Outcome::Admit,
            remaining: limit - charged,
            capacity: limit,
            reset: reset(charged),
            more_at: None,
            cell,
        }
    }

    pub(super) fn used(&self, cell: Cell, now: Timestamp) -> u128 {
        if Self::is_running(cell, now) {
            u128::from(cell.a)
        } else {
            0
        }
    }

    /// Counts units beyond the limit, too: all of them leave with the window.
    pub(super) fn force_charge(&self, cell: Cell, now: Timestamp, units: u32) -> Cell {
        let window = self.running(cell, now);
        Cell {
            a: window.a.saturating_add(units),
            ..window
        }
    }

    /// Counts less, while the window lasts that the units were counted in.
    pub(super) fn give_back(&self, cell: Cell, reserved: &ReservedCharge, units: u32) -> Cell {
        if Self::end_of(cell) != Self::end_of(reserved.cell) {
            return cell;
        }
        self.counting(cell, cell.a.saturating_sub(units))
    }

    /// The larger count of those that run until the later end.
    pub(super) fn join(left: Cell, right: Cell, now: Timestamp) -> Cell {
        let count = |cell| {
            if Self::is_running(cell, now) {
                cell.a
            } else {
                0
            }
        };
        let expires = left.expires.max(right.expires);
        let end = Self::end_of(left).max(Self::end_of(right));
        Cell {
            expires,
            a: count(left).max(count(right)),
            b: u32::try_from((expires - end) / SECOND).unwrap_or(0),
        }
    }

    /// Keeps the count in the window that runs under the new parameters.
    pub(super) fn convert(&self, from: &Self, cell: Cell, now: Timestamp) -> Cell {
        let (old, new) = (from.quota.window_micros(), self.quota.window_micros());
        // What set the end was a request that is gone.
        if matches!(self.start, Start::Local(_)) && new == old {
            let a = cell.a.min(self.quota.limit());
            return Cell { a, ..cell };
        }
        if !Self::is_running(cell, now) {
            return Cell::EMPTY;
        }
        let end = Self::end_of(cell);
        let started = end.saturating_sub(old);
        let expires = match self.start {
            Start::Clock { .. } | Start::Calendar(_) | Start::Local(_) => {
                self.end(now.max(Timestamp::from_micros(started)))
            }
            Start::FirstRequest | Start::Staggered if new >= old => started.saturating_add(new),
            // A shorter window may be over already: the old one runs on, no longer than a new one.
            Start::FirstRequest | Start::Staggered => end.min(now.as_micros().saturating_add(new)),
        };
        Cell {
            expires,
            a: cell.a.min(self.quota.limit()),
            b: 0,
        }
    }

    /// The end of a window in which `now` is the first charge.
    fn end(&self, now: Timestamp) -> u64 {
        match &self.start {
            Start::Clock { offset } => {
                let window = u128::from(self.quota.window_micros());
                self.end_on_grid(now, (offset.as_micros() % window) as u64)
            }
            Start::FirstRequest => now.as_micros().saturating_add(self.quota.window_micros()),
            Start::Staggered => self.end_on_grid(now, 0),
            Start::Calendar(calendar) | Start::Local(calendar) => calendar.end(now),
        }
    }

    /// The end of the window that `now` is in, when one starts `offset` (less than a window) after the
    /// epoch.
    fn end_on_grid(&self, now: Timestamp, offset: u64) -> u64 {
        let (now, window) = (now.as_micros(), self.quota.window_micros());
        let elapsed = (now % window + (window - offset)) % window;
        now.saturating_add(window - elapsed)
    }

    /// What the windows of a key are shifted by. A fingerprint is a keyed hash already; its lower half
    /// goes first, since neighbours in a table have the upper one in common.
    pub fn offset_of(&self, key: Fingerprint) -> u64 {
        let fraction = u128::from(key.bits().rotate_left(32));
        ((fraction * u128::from(self.quota.window_micros())) >> 64) as u64
    }
}

/// So many units in a period, as long as it is taken to be.
fn nominal_quota(limit: u32, calendar: &Calendar) -> Quota {
    let days = calendar.period().nominal_days();
    let quota = Quota::new(limit, Duration::from_secs(days * 24 * 60 * 60));
    quota.expect("a year is a window within bounds")
}
