//! What is remembered of one bucket: sixteen bytes, the same for every constant-size algorithm.

use crate::clock::Timestamp;

/// The state of one bucket. What `a` and `b` count is the algorithm's own business.
///
/// From `expires` on the cell is worth as much as none: its bucket is whole, and a store may drop
/// it.
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
    /// The cell of a bucket that nobody has charged.
    pub const EMPTY: Self = Self {
        expires: 0,
        a: 0,
        b: 0,
    };

    /// Whether the cell still counts at `now`.
    pub const fn is_live(&self, now: Timestamp) -> bool {
        self.expires > now.as_micros()
    }

    /// When the bucket is whole if nothing more comes: `now` if it is already.
    pub fn whole_at(&self, now: Timestamp) -> Timestamp {
        Timestamp::from_micros(self.expires).max(now)
    }
}
