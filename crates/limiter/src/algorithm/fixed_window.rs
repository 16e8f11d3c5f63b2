//! A count in each window, which returns to 0 at the window's end. `calendar` computes the periods
//! of calendars.

use std::sync::Arc;
use std::time::Duration;

use super::BucketView;
use super::settle::Refund;
use crate::calendar::Calendar;
use crate::calendar::by_wall_clock;
use crate::{Cell, Decision, Fingerprint, Outcome, Quota, Timestamp};

/// The parameters of a fixed window.
///
/// Cell: `expires` is the end of the window, `a` the units counted in it, as far as they fit: the
/// upper bits of `b` continue them. The end is fixed when the window starts; a later setting
/// applies to the next window.
///
/// If requests set the ends of windows ([`Start::Local`]), the cell outlives its window by as many
/// seconds as the lower bits of `b` say: until a nominal window after its first charge, rounded up
/// to a second. A window that opens before that lasts at least until one period after that charge.
/// So of any three windows, the third begins a period after the first or later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FixedWindow {
    limit: u64,
    window: u64,
    start: Start,
}

/// The start of a window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Start {
    /// Windows follow one another without a gap. One of them starts `offset` after the epoch.
    Clock {
        /// The shift of the windows, modulo the window.
        offset: Duration,
    },
    /// The first charged request after the last window.
    FirstRequest,
    /// Like [`Start::Clock`], but each key has its own offset, so that buckets do not all recover
    /// at the same instant.
    Staggered,
    /// The periods of a calendar, whatever the quota's window is.
    Calendar(Arc<Calendar>),
    /// The periods of the calendar that each request names, or of this one if it names none.
    Local(Arc<Calendar>),
}

/// The end of a window that a request opens, set by that request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowEnd {
    /// The end, after the instant of the request.
    pub at: Timestamp,
    /// The length of the period that ends then, in microseconds.
    pub length: u64,
}

impl WindowEnd {
    /// The end of the period between these two instants.
    pub fn of((start, end): (Timestamp, Timestamp)) -> Self {
        Self {
            at: end,
            length: end.as_micros().saturating_sub(start.as_micros()),
        }
    }
}

const SECOND: u64 = 1_000_000;
/// The bits of `b` that have seconds: more than a year of them.
const SECONDS_BITS: u32 = 25;

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
    /// The most units that a window counts: 2^39 - 1.
    pub const MOST: u64 = (1 << (64 - SECONDS_BITS)) - 1;

    /// The quota's units in each window.
    pub const fn new(quota: Quota, start: Start) -> Self {
        Self {
            limit: quota.limit() as u64,
            window: quota.window_micros(),
            start,
        }
    }

    /// So many units in each window, at most [`FixedWindow::MOST`].
    #[must_use]
    pub fn with_limit(self, limit: u64) -> Self {
        let limit = limit.min(Self::MOST);
        Self { limit, ..self }
    }

    /// `limit` units in each period of a calendar, which starts windows so.
    pub fn periods(limit: u64, calendar: Arc<Calendar>, start: fn(Arc<Calendar>) -> Start) -> Self {
        let days = calendar.period.nominal_days();
        let quota = Quota::new(0, Duration::from_secs(days * 24 * 60 * 60));
        let quota = quota.expect("a year is a window within bounds");
        Self::new(quota, start(calendar)).with_limit(limit)
    }

    /// The units in a window, and its length in microseconds.
    pub(super) const fn quota(&self) -> (u64, u64) {
        (self.limit, self.window)
    }

    /// The cell of a window with this count, which outlives the window by `seconds`.
    pub fn cell(expires: u64, count: u64, seconds: u64) -> Cell {
        let high = (count.min(Self::MOST) >> 32) << SECONDS_BITS;
        let seconds = seconds & ((1 << SECONDS_BITS) - 1);
        Cell {
            expires,
            a: count.min(Self::MOST) as u32,
            b: (high | seconds) as u32,
        }
    }

    /// The units that a cell counts.
    pub const fn units(cell: Cell) -> u64 {
        (cell.b as u64 >> SECONDS_BITS) << 32 | cell.a as u64
    }

    /// The seconds by which a cell outlives its window.
    pub const fn seconds(cell: Cell) -> u64 {
        (cell.b & ((1 << SECONDS_BITS) - 1)) as u64
    }

    /// The same window with another count.
    fn with_units(cell: Cell, count: u64) -> Cell {
        Self::cell(cell.expires, count, Self::seconds(cell))
    }

    /// The start of its windows.
    pub const fn start(&self) -> &Start {
        &self.start
    }

    /// The empty window that opens when the key's last one has ended, if the key or the request
    /// (`named`) sets its end.
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

    /// The key's own window around `now`, with the count of another one.
    pub(super) fn adopt(&self, cell: Cell, key: Fingerprint, now: Timestamp) -> Cell {
        let expires = match &self.start {
            Start::FirstRequest => self.end(now),
            Start::Staggered => self.end_on_grid(now, self.offset_of(key)),
            Start::Clock { .. } | Start::Calendar(_) | Start::Local(_) => return cell,
        };
        Cell { expires, ..cell }
    }

    /// The window up to the end that the request sets, or up to one period after the last window
    /// began if that is later.
    fn open_after(&self, last: Cell, named: WindowEnd, now: Timestamp) -> Cell {
        let nominal = self.window;
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
        Self::cell(expires, 0, (expires - end) / SECOND)
    }

    /// The end of a cell's window, in microseconds since the epoch.
    pub fn end_of(cell: Cell) -> u64 {
        cell.expires.saturating_sub(Self::seconds(cell) * SECOND)
    }

    /// True until the window of the cell ends.
    pub(super) fn is_running(cell: Cell, now: Timestamp) -> bool {
        Self::end_of(cell) > now.as_micros()
    }

    /// The running window, or one that begins now.
    fn running(&self, cell: Cell, now: Timestamp) -> Cell {
        if Self::is_running(cell, now) {
            cell
        } else {
            Cell {
                expires: self.end(now),
                ..Cell::EMPTY
            }
        }
    }

    pub(super) fn decide(&self, cell: Cell, now: Timestamp, cost: u64) -> Decision {
        let limit = self.limit;
        // A live cell is the running window, even for a `now` before its start.
        let window = self.running(cell, now);
        let (count, end) = (
            Self::units(window),
            Timestamp::from_micros(Self::end_of(window)),
        );
        let decide = |outcome, cell, count| Decision {
            reset: if count == 0 { now } else { end.max(now) },
            ..Decision::new(outcome, cell, now, limit.saturating_sub(count), limit)
        };
        let charged = count.checked_add(cost).filter(|charged| *charged <= limit);
        let Some(charged) = charged.filter(|_| limit > 0) else {
            let retry_at = (limit > 0 && cost <= limit).then_some(end);
            // An opened window without charges needs no cell.
            let cell = if Self::units(cell) == 0 {
                Cell::EMPTY
            } else {
                cell
            };
            return decide(Outcome::Refuse { retry_at }, cell, count);
        };
        let cell = match charged {
            0 => Cell::EMPTY,
            _ => Self::with_units(window, charged),
        };
        decide(Outcome::Admit, cell, charged)
    }

    /// The units counted in the running window.
    pub(super) fn count(cell: Cell, now: Timestamp) -> u64 {
        if Self::is_running(cell, now) {
            Self::units(cell)
        } else {
            0
        }
    }

    pub(super) fn bucket_view(&self, cell: Cell, now: Timestamp) -> BucketView {
        let window = self.running(cell, now);
        let runs = Self::is_running(cell, now) || self.start != Start::FirstRequest;
        BucketView::FixedWindow {
            used: Self::units(window),
            limit: self.limit,
            window: Duration::from_micros(self.window),
            ends_in: runs.then(|| Timestamp::from_micros(Self::end_of(window)).since(now)),
        }
    }

    /// Counts units even beyond the limit: all of them leave with the window.
    pub(super) fn force_charge(&self, cell: Cell, now: Timestamp, units: u32) -> Cell {
        let window = self.running(cell, now);
        Self::with_units(window, Self::units(window).saturating_add(units.into()))
    }

    /// Counts less, as long as the window of the charge runs.
    pub(super) fn give_back(&self, cell: Cell, refund: Refund<'_>) -> Cell {
        if Self::end_of(cell) != Self::end_of(refund.reserved.cell) {
            return cell;
        }
        let left = Self::units(cell).saturating_sub(refund.units.into());
        match (left, &self.start) {
            (0, start) if !matches!(start, Start::Local(_)) => Cell::EMPTY,
            _ => Self::with_units(cell, left),
        }
    }

    /// The larger count, up to the later end.
    pub(super) fn join(left: Cell, right: Cell, now: Timestamp) -> Cell {
        let expires = left.expires.max(right.expires);
        let end = Self::end_of(left).max(Self::end_of(right));
        let count = Self::count(left, now).max(Self::count(right, now));
        Self::cell(expires, count, (expires - end) / SECOND)
    }

    /// Keeps the count in the window that runs under the new parameters, also beyond the limit: it
    /// leaves with the window.
    pub(super) fn convert(&self, from: &Self, cell: Cell, now: Timestamp) -> Cell {
        let (old, new) = (from.window, self.window);
        // The request that set the end is gone.
        if matches!(self.start, Start::Local(_)) && new == old {
            return cell;
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
            // A shorter window may have ended already: the old one runs on, for at most a new
            // window.
            Start::FirstRequest | Start::Staggered => end.min(now.as_micros().saturating_add(new)),
        };
        Self::cell(expires, Self::units(cell), 0)
    }

    /// The end of a window that `now` opens.
    fn end(&self, now: Timestamp) -> u64 {
        match &self.start {
            Start::Clock { offset } => {
                let window = u128::from(self.window);
                let offset = (offset.as_micros() % window) as u64;
                by_wall_clock(now, |wall| self.end_on_grid(wall, offset))
            }
            Start::FirstRequest => now.as_micros().saturating_add(self.window),
            Start::Staggered => self.end_on_grid(now, 0),
            Start::Calendar(calendar) | Start::Local(calendar) => {
                by_wall_clock(now, |wall| calendar.end(wall))
            }
        }
    }

    /// The end of the window around `now`, if one window starts `offset` (less than a window) after
    /// the epoch.
    fn end_on_grid(&self, now: Timestamp, offset: u64) -> u64 {
        let (now, window) = (now.as_micros(), self.window);
        let elapsed = (now % window + (window - offset)) % window;
        now.saturating_add(window - elapsed)
    }

    /// The offset of a key's windows. A fingerprint is a keyed hash already. Neighbours in a table
    /// share its upper half, so the lower half comes first.
    pub fn offset_of(&self, key: Fingerprint) -> u64 {
        let fraction = u128::from(key.bits().rotate_left(32));
        ((fraction * u128::from(self.window)) >> 64) as u64
    }
}
