//! A table's units in use, and the units of charges that may still be given back.

use std::sync::Arc;

use super::Table;
use crate::limiter::Fingerprint;
use crate::store::memory::permits::{Permit, Permits};

impl Table {
    /// Enables settlement of charges.
    #[must_use]
    pub fn with_settlement(mut self) -> Self {
        self.settles = true;
        self
    }

    /// True if charges are settled after the response.
    pub const fn has_settlement(&self) -> bool {
        self.settles
    }

    /// Shares the units in use and the unsettled units of `before`, whose place this table takes.
    #[must_use]
    pub fn sharing_permits_of(mut self, before: &Self) -> Self {
        if let (Some(own), Some(same)) = (&mut self.permits, &before.permits) {
            *own = Arc::clone(same);
        }
        self.unsettled = Arc::clone(&before.unsettled);
        self
    }

    /// True if this table can [replace](Self::migrate_to) `before`: both have cells, or both units
    /// in use.
    pub const fn can_succeed(&self, before: &Self) -> bool {
        self.permits.is_some() == before.permits.is_some()
    }

    /// A guard of taken units of a key; `None` for tables of cells.
    pub(in crate::store::memory) fn permit(&self, key: Fingerprint, cost: u32) -> Option<Permit> {
        let permits = self.permits.as_ref()?;
        Some(permits.permit(key, cost))
    }

    /// Takes units of a key, or a place in its queue; `None` if the queue is full, or if there is
    /// none.
    pub(in crate::store::memory) fn acquire(&self, key: Fingerprint, cost: u32) -> Option<Permit> {
        let queue = self.algorithm.queueing()?.queue();
        self.permits.as_ref()?.acquire(key, cost, queue)
    }

    /// The units in use; `None` for tables of cells.
    pub(in crate::store::memory) fn permits(&self) -> Option<&Permits> {
        self.permits.as_deref()
    }

    /// The units of charges that may still be settled or given back; `None` for concurrency, whose
    /// requests return them.
    pub(in crate::store::memory) fn unsettled(&self) -> Option<&Permits> {
        self.permits.is_none().then(|| &***self.unsettled)
    }
}
