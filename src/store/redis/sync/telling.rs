//! Charges that are told to other machines once it is known what they are.

use std::sync::Arc;

use super::tracker::Tracker;
use crate::limiter::{Fingerprint, Reserved};
use crate::store::redis::naming::Name;

/// Who is told of a charge that may still be settled, and what its bucket is called.
#[derive(Debug)]
pub struct Telling {
    tracker: Arc<Tracker>,
    name: Name,
}

impl Telling {
    /// Of a charge to the table of this tracker, to the bucket that all machines call so.
    pub fn new(tracker: &Arc<Tracker>, name: Name) -> Self {
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
