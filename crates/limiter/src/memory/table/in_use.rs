//! A table's units in use, and the units of charges that may still be given back.

use std::sync::Arc;

use super::{Charge, Table};
use crate::memory::permits::{Permit, Permits};

impl Charge<'_> {
    /// A guard that returns the units of this charge when it is dropped; `None` if they recover
    /// with time. Callers take it once, after the charge: units without a guard stay in use.
    pub fn permit(&self) -> Option<Permit> {
        let permits = self.table.permits.as_ref()?;
        Some(permits.permit(self.key, self.cost))
    }

    /// Takes the units of this charge, or a place in the queue for them, which dropping the permit
    /// gives up. `None` if the queue is full, or if units recover with time. All callers acquire
    /// permits in the same order, which prevents deadlock.
    pub fn acquire(&self) -> Option<Permit> {
        let queue = self.table.algorithm.queueing()?.queue();
        let permits = self.table.permits.as_ref()?;
        permits.acquire(self.key, self.cost, queue)
    }
}

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

    /// The units in use; `None` for tables of cells.
    pub(in crate::memory) fn permits(&self) -> Option<&Permits> {
        self.permits.as_deref()
    }

    /// The units of charges that may still be settled or given back; `None` for concurrency, whose
    /// requests return them.
    pub(in crate::memory) fn unsettled(&self) -> Option<&Permits> {
        self.permits.is_none().then(|| &***self.unsettled)
    }
}
