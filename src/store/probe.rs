//! A request that is only looked at.

use crate::limiter::{Demand, WindowEnd};

/// The request of a key's facts, which is not charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Units that it needs of the first bucket.
    pub demand: Demand,
    /// The end of a window that it opens, if requests decide it, in the time of this machine.
    pub window_end: Option<WindowEnd>,
}

impl Probe {
    /// The units that it needs of the bucket of this overflow tier: only the first has other bursts.
    pub(super) fn demand_of(&self, tier: usize) -> Demand {
        let kept = if tier == 0 { self.demand.kept } else { 0 };
        Demand {
            kept,
            ..self.demand
        }
    }
}
