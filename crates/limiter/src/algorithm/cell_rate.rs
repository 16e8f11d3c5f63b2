//! Cells of one kind and window under different quotas. Counts and instants of units are the same
//! under any; other cells depend on the rate under which they were written.

use super::Algorithm;
use crate::{Cell, Timestamp};

impl Algorithm {
    /// The rate that cells depend on: the units of a window, or of a refill. `None` if they depend on
    /// none.
    pub const fn cell_rate(&self) -> Option<u32> {
        match self {
            Self::Gcra(gcra) | Self::TokenBucket(gcra) => Some(gcra.quota().limit()),
            Self::LeakyBucket(bucket) => Some(bucket.line().quota().limit()),
            Self::IntervalRefill(bucket) => Some(bucket.refill().0),
            _ => None,
        }
    }

    /// The algorithm with the same capacity under this [rate](Self::cell_rate): it decides as this one
    /// on a bucket that goes on to recover at that rate. `None` if the capacity would take too long.
    pub fn with_rate(&self, rate: u32) -> Option<Self> {
        Some(match self {
            Self::Gcra(gcra) => Self::Gcra(gcra.with_rate(rate)?),
            Self::TokenBucket(gcra) => Self::TokenBucket(gcra.with_rate(rate)?),
            Self::LeakyBucket(bucket) => Self::LeakyBucket(bucket.with_rate(rate)?),
            Self::IntervalRefill(bucket) => Self::IntervalRefill(bucket.with_rate(rate)?),
            _ => return None,
        })
    }

    /// The cell with as many used units as `cell`, which was written under another
    /// [rate](Self::cell_rate), in full.
    pub fn convert_rate(&self, cell: Cell, rate: u32, now: Timestamp) -> Cell {
        match self {
            _ if self.cell_rate() == Some(rate) || !cell.is_live(now) => cell,
            Self::Gcra(gcra) | Self::TokenBucket(gcra) => gcra.convert_rate(cell, rate, now),
            Self::LeakyBucket(bucket) => bucket.line().convert_rate(cell, rate, now),
            Self::IntervalRefill(bucket) => bucket.convert_rate(cell, rate, now),
            _ => cell,
        }
    }
}
