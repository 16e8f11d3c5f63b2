//! The state of one bucket: sixteen bytes, the same for every constant-size algorithm.

use crate::Timestamp;

/// The state of one bucket. Each algorithm gives `a` and `b` its own meaning.
///
/// From `expires` on, the cell equals an empty one: the bucket is whole (no unit of it is used),
/// and a store may drop the cell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cell {
    /// The instant, in microseconds since the epoch, at which the bucket is whole again.
    pub expires: u64,
    /// First counter.
    pub a: u32,
    /// Second counter.
    pub b: u32,
}

impl Cell {
    /// The cell of a bucket without charges.
    pub const EMPTY: Self = Self {
        expires: 0,
        a: 0,
        b: 0,
    };

    /// True if the cell still counts at `now`.
    pub const fn is_live(&self, now: Timestamp) -> bool {
        self.expires > now.as_micros()
    }

    /// The instant at which the bucket is whole if it is not charged again; at least `now`.
    pub fn whole_at(&self, now: Timestamp) -> Timestamp {
        Timestamp::from_micros(self.expires).max(now)
    }
}
