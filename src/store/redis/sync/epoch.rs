//! Since when totals are counted. A total that only ever grows says nothing of when its units were charged, so each is for an
//! epoch; an epoch is known by its length and its end.

use crate::clock::Timestamp;
use crate::limiter::{Algorithm, Cell, FixedWindow};

/// The shortest grid, in microseconds: far above an interval, the clocks' disagreement and a batch's deadline, so that what is
/// noted in an epoch is told while it is one of the last two.
const SHORTEST: u64 = 4_000_000;
/// How long a window's last total may still be told, in microseconds.
const LINGER: u64 = 2_000_000;

/// The epochs of a policy, each in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Epochs {
    /// Buckets recover all the time: epochs of this length by the server's clock, aligned to the Unix epoch. What was charged
    /// before the last two has come back.
    Grid(u64),
    /// The windows, which all have in common, nominally so long, by each machine's own clock: what was charged in one is
    /// nothing in the next.
    Windows(u64),
}

/// An instant, as this machine knows it and as the server does.
#[derive(Clone, Copy, Debug)]
pub(super) struct SyncInstant {
    pub(super) here: Timestamp,
    /// By how many microseconds the server's clock is ahead.
    pub(super) ahead: i64,
}

impl SyncInstant {
    pub(super) fn there(&self) -> u64 {
        self.at(self.here)
    }

    /// What the server's clock says at another instant of this machine's.
    pub(super) fn at(&self, here: Timestamp) -> u64 {
        here.saturating_add_signed(self.ahead).as_micros()
    }
}

impl Epochs {
    /// `None` where machines cannot charge buckets for each other.
    pub(super) fn of(algorithm: &Algorithm) -> Option<Self> {
        if !algorithm.can_charge_elsewhere() {
            return None;
        }
        let window = u64::try_from(algorithm.window()?.as_micros()).ok()?;
        let whole = match algorithm {
            Algorithm::Gcra(gcra) | Algorithm::TokenBucket(gcra) => gcra.tau().micros + 1,
            _ => 0,
        };
        Some(match algorithm {
            Algorithm::FixedWindow(_) => Self::Windows(window),
            _ => Self::Grid(window.max(whole).max(SHORTEST)),
        })
    }

    /// The end of the epoch in which a charge is noted that left this cell; `None` where nobody knows its window.
    pub(super) fn end(self, cell: Cell, now: SyncInstant) -> Option<u64> {
        match self {
            Self::Grid(length) => {
                let there = now.there();
                Some((there - there % length).saturating_add(length))
            }
            Self::Windows(_) => {
                let end = FixedWindow::end_of(cell);
                (end > now.here.as_micros()).then_some(end)
            }
        }
    }

    /// The epoch before the one that ends then, in which others may have charged what still counts.
    pub(super) fn before(self, end: u64) -> Option<u64> {
        match self {
            Self::Grid(length) => end.checked_sub(length),
            Self::Windows(_) => None,
        }
    }

    /// Whether `now` is in the epoch that ends then, as far as the clocks agree.
    pub(super) fn is_running(self, end: u64, now: SyncInstant) -> bool {
        match self {
            Self::Grid(length) => {
                let there = now.there();
                there < end && end - there <= length
            }
            Self::Windows(_) => now.here.as_micros() < end,
        }
    }

    /// Whether nothing of the epoch that ended then matters any more.
    pub(super) fn is_over(self, end: u64, now: SyncInstant) -> bool {
        match self {
            Self::Grid(length) => now.there() >= end.saturating_add(length),
            Self::Windows(_) => now.here.as_micros() >= end.saturating_add(LINGER),
        }
    }

    /// Whether what was charged in the epoch that ends then may still count.
    pub(super) fn counts(self, end: u64, now: SyncInstant) -> bool {
        match self {
            Self::Grid(_) => true,
            Self::Windows(_) => now.here.as_micros() < end,
        }
    }

    /// For how many milliseconds Redis keeps the totals of the epoch that ends then: until it has been over for as long as it
    /// lasted.
    pub(super) fn lasts(self, end: u64, now: SyncInstant) -> u64 {
        let (length, now) = match self {
            Self::Grid(length) => (length, now.there()),
            Self::Windows(length) => (length.max(SHORTEST), now.here.as_micros()),
        };
        let left = end.saturating_sub(now).min(length);
        left.saturating_add(length).div_ceil(1_000)
    }

    /// Its length, in microseconds.
    pub(super) const fn length(self) -> u64 {
        match self {
            Self::Grid(length) | Self::Windows(length) => length,
        }
    }
}
