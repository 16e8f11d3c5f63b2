//! Calendar periods: the days, weeks, months and years of a time zone.
//!
//! The running period is computed once and kept. Until it ends, a decision costs one load and no
//! calendar arithmetic.

mod calendars;

use std::sync::atomic::{AtomicU64, Ordering};

use jiff::civil::{Date, Weekday};
use jiff::tz::TimeZone;
use jiff::{ToSpan, Zoned};

pub use self::calendars::Calendars;
use crate::timestamp::{SLOWER, Timestamp};

/// A period of the calendar. Each begins with the first instant of a day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Period {
    /// 23 to 25 hours long when daylight saving time starts or ends.
    Day,
    /// Starts on Monday.
    Week,
    /// Starts on a day of the month, 1 to 31, or on the last day of a shorter month.
    Month {
        /// The day of the month.
        anchor: i8,
    },
    /// Starts on 1 January.
    Year,
}

/// The periods of one kind in one time zone.
#[derive(Debug)]
pub struct Calendar {
    /// The kind of period.
    pub period: Period,
    zone: TimeZone,
    /// The last computed period, as [`Span::packed`].
    running: AtomicU64,
}

/// The microseconds by which instants are ahead of the wall clock. The process sets it.
static AHEAD: AtomicU64 = AtomicU64::new(0);

/// Sets how far instants are ahead of the wall clock: not at all, unless that was set back. They are
/// losing it, one part in [`SLOWER`].
pub fn set_ahead(micros: u64) {
    AHEAD.store(micros, Ordering::Relaxed);
}

/// The end of a window which `now` opens, and whose `end` is one by the wall clock.
pub(super) fn by_wall_clock(now: Timestamp, end: impl FnOnce(Timestamp) -> u64) -> u64 {
    end_ahead(now, AHEAD.load(Ordering::Relaxed), end)
}

fn end_ahead(now: Timestamp, ahead: u64, end: impl FnOnce(Timestamp) -> u64) -> u64 {
    let wall = now.saturating_sub_micros(ahead);
    let left = end(wall).saturating_sub(wall.as_micros());
    let lost = ahead.min(left / SLOWER);
    now.as_micros().saturating_add(left - lost)
}

/// One period, in whole seconds since the epoch: no time zone has finer offsets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    start: u64,
    end: u64,
}

impl Period {
    /// The length to tell clients, in days: that of the longest month, or of the longest year.
    pub const fn nominal_days(self) -> u64 {
        match self {
            Self::Day => 1,
            Self::Week => 7,
            Self::Month { .. } => 31,
            Self::Year => 366,
        }
    }

    /// The first day of the period that contains `date`.
    fn first_day(self, date: Date) -> Option<Date> {
        match self {
            Self::Day => Some(date),
            Self::Week => date
                .checked_sub(date.weekday().since(Weekday::Monday).days())
                .ok(),
            Self::Month { anchor } => match anchored(date.first_of_month(), anchor) {
                first if first <= date => Some(first),
                _ => Some(anchored(
                    date.first_of_month().checked_sub(1.month()).ok()?,
                    anchor,
                )),
            },
            Self::Year => Some(date.first_of_year()),
        }
    }

    /// The first day of the period after the one that begins with `first`.
    fn next(self, first: Date) -> Option<Date> {
        // So many days later is always the next period, and never the one after it.
        let next = first.checked_add(i64::try_from(self.nominal_days()).ok()?.days());
        self.first_day(next.ok()?)
    }
}

/// The day `anchor` of the month that `first` begins, or its last one.
fn anchored(first: Date, anchor: i8) -> Date {
    let day = anchor.clamp(1, first.days_in_month());
    first.with().day(day).build().unwrap_or(first)
}

impl Calendar {
    /// The periods of this kind in `zone`.
    pub fn new(period: Period, zone: TimeZone) -> Self {
        Self {
            period,
            zone,
            running: AtomicU64::new(0),
        }
    }

    /// The end of the period that contains `now`, in microseconds since the epoch; always after
    /// `now`. Calendars end with the year 9999; all later time is one period.
    pub(super) fn end(&self, now: Timestamp) -> u64 {
        let running = self.running_at(now);
        running.map_or(u64::MAX, |span| span.end * 1_000_000)
    }

    /// Start and end of the period that contains `now`; the end is after `now`.
    pub fn period_at(&self, now: Timestamp) -> (Timestamp, Timestamp) {
        match self.running_at(now) {
            None => (now, Timestamp::MAX),
            Some(span) => {
                let at = |second: u64| Timestamp::from_micros(second * 1_000_000);
                (at(span.start), at(span.end))
            }
        }
    }

    fn running_at(&self, now: Timestamp) -> Option<Span> {
        let second = now.as_micros() / 1_000_000;
        let kept = Span::unpacked(self.running.load(Ordering::Relaxed));
        if kept.contains(second) {
            return Some(kept);
        }
        let span = self.span(second)?;
        self.running.store(span.packed(), Ordering::Relaxed);
        Some(span)
    }

    /// The period that contains `second`.
    fn span(&self, second: u64) -> Option<Span> {
        let now = jiff::Timestamp::from_second(i64::try_from(second).ok()?).ok()?;
        let mut first = self
            .period
            .first_day(now.to_zoned(self.zone.clone()).date())?;
        let mut start = self.begin(first)?;
        if second < start {
            // Clocks that are set forward across midnight leave out the beginning of a day.
            let before = self.period.first_day(first.yesterday().ok()?)?;
            return Some(Span {
                start: self.begin(before)?,
                end: start,
            });
        }
        loop {
            first = self.period.next(first)?;
            let end = self.begin(first)?;
            if second < end {
                return Some(Span { start, end });
            }
            // Clocks that are set back across midnight repeat the end of a day that has ended.
            start = end;
        }
    }

    /// The first second of a day; 0 if it is before the epoch.
    fn begin(&self, date: Date) -> Option<u64> {
        let start: Zoned = date.to_zoned(self.zone.clone()).ok()?;
        Some(u64::try_from(start.timestamp().as_second()).unwrap_or(0))
    }
}

/// Equality ignores the kept period.
impl PartialEq for Calendar {
    fn eq(&self, other: &Self) -> bool {
        (self.period, &self.zone) == (other.period, &other.zone)
    }
}

impl Eq for Calendar {}

impl Span {
    /// Bits for the length: more than a year of seconds. The end has the other 38, up to the year
    /// 10680.
    const LENGTH_BITS: u32 = 26;

    /// Packs both ends into one word, so that they are stored and loaded at once.
    fn packed(self) -> u64 {
        self.end << Self::LENGTH_BITS | (self.end - self.start)
    }

    fn unpacked(word: u64) -> Self {
        let end = word >> Self::LENGTH_BITS;
        let length = word & ((1 << Self::LENGTH_BITS) - 1);
        Self {
            start: end - length,
            end,
        }
    }

    fn contains(self, second: u64) -> bool {
        (self.start..self.end).contains(&second)
    }
}

#[cfg(test)]
mod tests;
