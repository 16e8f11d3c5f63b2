//! Charges that are reported to other machines once their cost is known.

use std::sync::Arc;

use super::tracker::Tracker;
use crate::limiter::{Fingerprint, ReservedCharge, SettlementReport};
use crate::store::redis::naming::BucketName;

/// The tracker and the bucket name of a charge that may still be settled.
#[derive(Debug)]
pub struct PendingReport {
    tracker: Arc<Tracker>,
    name: BucketName,
}

impl PendingReport {
    /// For a charge to this tracker's table, in the bucket with this name on all machines.
    pub fn new(tracker: &Arc<Tracker>, name: BucketName) -> Self {
        Self {
            tracker: Arc::clone(tracker),
            name,
        }
    }
}

impl SettlementReport for PendingReport {
    /// Records the charge with its actual cost.
    fn tell(self: Box<Self>, key: Fingerprint, units: u32, made: &ReservedCharge) {
        let made = (made.cell, made.at);
        self.tracker.record_late(key, units, made, self.name);
    }
}
