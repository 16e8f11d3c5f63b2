//! Charges that are told to other machines once it is known what they are.

use std::sync::Arc;

use super::tracker::Tracker;
use crate::limiter::{Fingerprint, Reserved};
use crate::store::redis::naming::BucketName;

/// Who is told of a charge that may still be settled, and what its bucket is called.
#[derive(Debug)]
pub struct PendingReport {
    tracker: Arc<Tracker>,
    name: BucketName,
}

impl PendingReport {
    /// Of a charge to the table of this tracker, to the bucket that all machines call so.
    pub fn new(tracker: &Arc<Tracker>, name: BucketName) -> Self {
        Self {
            tracker: Arc::clone(tracker),
            name,
        }
    }

    /// Notes the charge as one of `units`.
    pub(in crate::store) fn tell(self, key: Fingerprint, units: u32, made: &Reserved) {
        let made = (made.cell, made.at);
        self.tracker.note_late(key, units, made, self.name);
    }
}
