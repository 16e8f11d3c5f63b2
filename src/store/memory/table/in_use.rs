//! What a table counts beside its cells: units in use, and those of charges that may still be given back.

use std::sync::Arc;

use super::Table;
use crate::limiter::Fingerprint;
use crate::store::memory::permits::{Permit, Permits};

impl Table {
    /// The same for a policy whose charges are settled afterwards.
    #[must_use]
    pub fn with_settlement(mut self) -> Self {
        self.settles = true;
        self
    }

    /// Whether charges are settled afterwards.
    pub const fn has_settlement(&self) -> bool {
        self.settles
    }

    /// The same in the place of `before`: what is in use there, or still to be settled, is so here.
    #[must_use]
    pub fn sharing_permits_of(mut self, before: &Self) -> Self {
        if let (Some(own), Some(same)) = (&mut self.permits, &before.permits) {
            *own = Arc::clone(same);
        }
        self.unsettled = Arc::clone(&before.unsettled);
        self
    }

    /// Whether it can [take the place](Self::migrate_to) of `before`: both have cells, or both units in use.
    pub const fn can_succeed(&self, before: &Self) -> bool {
        self.permits.is_some() == before.permits.is_some()
    }

    /// How many units are in use; `None` where they come back with time.
    pub fn in_use(&self) -> Option<u64> {
        self.permits.as_ref().map(|permits| permits.units())
    }

    /// What gives back units of a key that have been taken.
    pub(in crate::store::memory) fn permit(&self, key: Fingerprint, cost: u32) -> Option<Permit> {
        let permits = self.permits.as_ref()?;
        Some(permits.permit(key, cost))
    }

    /// Takes units of a key, or a place in the line for them; `None` where it is full, or there is none.
    pub(in crate::store::memory) fn acquire(&self, key: Fingerprint, cost: u32) -> Option<Permit> {
        let queue = self.algorithm.queueing()?.queue();
        self.permits.as_ref()?.acquire(key, cost, queue)
    }

    /// The units in use, where they are what is counted.
    pub(in crate::store::memory) fn permits(&self) -> Option<&Permits> {
        self.permits.as_deref()
    }

    /// The units of charges that may still be settled, or given back; `None` where they come back when requests end.
    pub(in crate::store::memory) fn unsettled(&self) -> Option<&Permits> {
        self.permits.is_none().then(|| &***self.unsettled)
    }
}
