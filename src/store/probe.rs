//! A request that is only looked at.

use crate::limiter::WindowEnd;

/// The request of a key's facts, which is not charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Units that it costs.
    pub cost: u32,
    /// Units that it has to leave in the first bucket.
    pub kept: u32,
    /// The end of a window that it opens, if requests decide it, in the time of this machine.
    pub window_end: Option<WindowEnd>,
}

impl Probe {
    /// A request of one unit.
    pub const UNIT: Self = Self {
        cost: 1,
        kept: 0,
        window_end: None,
    };

    /// The same request of a bucket in this overflow tier; only the first has to keep units.
    #[must_use]
    pub(crate) const fn in_tier(self, tier: usize) -> Self {
        let kept = if tier == 0 { self.kept } else { 0 };
        Self { kept, ..self }
    }
}
