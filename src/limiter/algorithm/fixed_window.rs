//! A count per window that returns to 0 at the window's end.
//!
//! Windows of a fixed length only: calendar months and time zones are not here.

use std::time::Duration;

use super::{Refused, refuse};
use crate::clock::Timestamp;
use crate::limiter::{Cell, Decision, Outcome, Quota};

/// The parameters of a fixed window.
///
/// Cell: `expires` is the end of the window, `a` the units counted in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FixedWindow {
    quota: Quota,
    start: Start,
}

/// When a window starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// Windows follow one another without a gap; one of them starts this long after the epoch.
    Clock {
        /// What the grid of windows is shifted by; anything beyond one window is the same again.
        offset: Duration,
    },
    /// With the first charged request after the last window ended.
    FirstRequest,
}

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

    pub(super) const fn quota(&self) -> Quota {
        self.quota
    }

    pub(super) fn decide(&self, cell: Cell, now: Timestamp, cost: u32) -> Decision {
        let limit = self.quota.limit();
        // A cell that still counts is the running window, even for a `now` before its start.
        let (count, end) = match cell.is_live(now) {
            true => (cell.a, cell.expires),
            false => (0, self.end(now)),
        };
        let charged = count.checked_add(cost).filter(|charged| *charged <= limit);
        let Some(charged) = charged.filter(|_| limit > 0) else {
            let retry_at = (limit > 0 && cost <= limit).then_some(Timestamp::from_micros(end));
            let remaining = limit.saturating_sub(count);
            return refuse(
                cell,
                now,
                Refused {
                    retry_at,
                    remaining,
                    capacity: limit,
                },
            );
        };
        let cell = match charged {
            0 => Cell::EMPTY,
            _ => Cell {
                expires: end,
                a: charged,
                b: 0,
            },
        };
        Decision {
            outcome: Outcome::Admit,
            remaining: limit - charged,
            capacity: limit,
            reset: cell.whole_at(now),
            cell,
        }
    }

    pub(super) fn used(&self, cell: Cell, now: Timestamp) -> u128 {
        if cell.is_live(now) {
            u128::from(cell.a)
        } else {
            0
        }
    }

    /// The larger count until the later end.
    pub(super) fn join(left: Cell, right: Cell) -> Cell {
        Cell {
            expires: left.expires.max(right.expires),
            a: left.a.max(right.a),
            b: 0,
        }
    }

    /// Keeps the count in the window that runs under the new parameters.
    pub(super) fn convert(&self, from: &Self, cell: Cell, now: Timestamp) -> Cell {
        let (old, new) = (from.quota.window_micros(), self.quota.window_micros());
        let started = cell.expires.saturating_sub(old);
        let expires = match self.start {
            Start::Clock { .. } => self.end(now.max(Timestamp::from_micros(started))),
            Start::FirstRequest if new >= old => started.saturating_add(new),
            // A shorter window may be over already: the old one runs on, no longer than a new one.
            Start::FirstRequest => cell.expires.min(self.end(now)),
        };
        Cell {
            expires,
            a: cell.a.min(self.quota.limit()),
            b: 0,
        }
    }

    /// The end of a window in which `now` is the first charge.
    fn end(&self, now: Timestamp) -> u64 {
        let (now, window) = (now.as_micros(), self.quota.window_micros());
        let elapsed = match self.start {
            Start::FirstRequest => 0,
            Start::Clock { offset } => {
                let offset = (offset.as_micros() % u128::from(window)) as u64;
                (now % window + (window - offset)) % window
            }
        };
        now.saturating_add(window - elapsed)
    }
}
