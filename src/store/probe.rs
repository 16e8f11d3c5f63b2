//! A request that is only looked at.

use crate::limiter::WindowEnd;

/// The request of a key's facts, which is not charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Units that it costs.
    pub cost: u32,
    /// The end of a window that it opens, if requests decide it, in the time of this machine.
    pub window_end: Option<WindowEnd>,
}

impl Probe {
    /// A request of one unit.
    pub const UNIT: Self = Self {
        cost: 1,
        window_end: None,
    };
}
