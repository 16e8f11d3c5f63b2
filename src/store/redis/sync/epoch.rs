//! Epochs: the spans in which totals are counted. A total that only grows does not say when its
//! units were charged, so each belongs to an epoch. Its length and its end identify an epoch.

use crate::clock::Timestamp;
use crate::limiter::algorithms::FixedWindow;
use crate::limiter::{Algorithm, Cell};

/// The shortest grid, in microseconds: far above an interval, the difference of clocks and a
/// batch's deadline. A charge is reported while its epoch is one of the last two.
const SHORTEST: u64 = 4_000_000;
/// At least the longest grant, in microseconds.
const LONGEST_GRANT: u64 = 366 * 24 * 3_600 * 1_000_000;
/// The time after a window's end in which its last total may still be reported, in microseconds.
const REPORT_GRACE: u64 = 2_000_000;

/// The epochs of a policy, each length in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Epochs {
    /// Buckets recover continuously: epochs of this length by the server's clock, aligned to the
    /// Unix epoch. Charges from before the last two have been refilled.
    Grid(u64),
    /// Windows of this nominal length, which all keys have in common, by each machine's own clock.
    /// A charge counts only in its window.
    Windows(u64),
    /// The time of a grant, up to its end by each machine's own clock.
    Grants,
}

/// An instant on this machine's clock and on the server's.
#[derive(Clone, Copy, Debug)]
pub(super) struct SyncInstant {
    pub(super) local: Timestamp,
    /// How far the server's clock is ahead, in microseconds.
    pub(super) clock_offset: i64,
}

impl SyncInstant {
    pub(super) fn server_micros(&self) -> u64 {
        self.at(self.local)
    }

    /// The server's time at another local instant, in microseconds.
    pub(super) fn at(&self, local: Timestamp) -> u64 {
        local.saturating_add_signed(self.clock_offset).as_micros()
    }
}

impl Epochs {
    /// `None` if machines cannot charge buckets for each other.
    pub(super) fn of(algorithm: &Algorithm) -> Option<Self> {
        if !algorithm.can_charge_remote() {
            return None;
        }
        if matches!(algorithm, Algorithm::Grant(_)) {
            return Some(Self::Grants);
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

    /// The end of the epoch for a charge that left this cell; `None` if its window is unknown.
    pub(super) fn end(self, cell: Cell, now: SyncInstant) -> Option<u64> {
        match self {
            Self::Grid(length) => {
                let server_micros = now.server_micros();
                Some((server_micros - server_micros % length).saturating_add(length))
            }
            Self::Windows(_) => {
                let end = FixedWindow::end_of(cell);
                (end > now.local.as_micros()).then_some(end)
            }
            Self::Grants => (cell.expires > now.local.as_micros()).then_some(cell.expires),
        }
    }

    /// The end of the epoch before, in which others may have made charges that still count.
    pub(super) fn before(self, end: u64) -> Option<u64> {
        match self {
            Self::Grid(length) => end.checked_sub(length),
            Self::Windows(_) | Self::Grants => None,
        }
    }

    /// True if `now` is in the epoch with this end, as far as the clocks agree.
    pub(super) fn is_running(self, end: u64, now: SyncInstant) -> bool {
        match self {
            Self::Grid(length) => {
                let server_micros = now.server_micros();
                server_micros < end && end - server_micros <= length
            }
            Self::Windows(_) | Self::Grants => now.local.as_micros() < end,
        }
    }

    /// True if nothing of the epoch with this end matters any more.
    pub(super) fn is_over(self, end: u64, now: SyncInstant) -> bool {
        match self {
            Self::Grid(length) => now.server_micros() >= end.saturating_add(length),
            Self::Windows(_) | Self::Grants => {
                now.local.as_micros() >= end.saturating_add(REPORT_GRACE)
            }
        }
    }

    /// True if charges of the epoch with this end may still count.
    pub(super) fn counts(self, end: u64, now: SyncInstant) -> bool {
        !self.depends_on_bucket() || self.is_running(end, now)
    }

    /// The milliseconds for which Redis keeps an epoch's totals: until it has been over for its own
    /// length.
    pub(super) fn ttl_millis(self, end: u64, now: SyncInstant) -> u64 {
        let (length, now) = match self {
            Self::Grid(length) => (length, now.server_micros()),
            Self::Windows(length) => (length.max(SHORTEST), now.local.as_micros()),
            Self::Grants => {
                let left = end.saturating_sub(now.local.as_micros());
                return left.saturating_add(SHORTEST).div_ceil(1_000);
            }
        };
        let left = end.saturating_sub(now).min(length);
        left.saturating_add(length).div_ceil(1_000)
    }

    /// The length, in microseconds.
    pub(super) const fn length(self) -> u64 {
        match self {
            Self::Grid(length) | Self::Windows(length) => length,
            Self::Grants => LONGEST_GRANT,
        }
    }

    /// True if the last charge's bucket tells the epoch, not the clock alone.
    pub(super) const fn depends_on_bucket(self) -> bool {
        matches!(self, Self::Windows(_) | Self::Grants)
    }

    /// The last reset of a bucket at `reset`, in the server's time, as far as it concerns the epoch
    /// with this end; 0 if it does not. All machines find the same.
    pub(super) fn reset_in(self, end: u64, reset: u64) -> u64 {
        match self {
            Self::Grid(length) | Self::Windows(length) if end.saturating_sub(length) < reset => {
                reset
            }
            _ => 0,
        }
    }

    /// The time after a reset for which epochs that it concerns may still count, in microseconds.
    pub(super) const fn reset_kept(self) -> u64 {
        match self {
            Self::Grid(length) | Self::Windows(length) => {
                length.saturating_mul(2).saturating_add(SHORTEST)
            }
            Self::Grants => 0,
        }
    }
}
