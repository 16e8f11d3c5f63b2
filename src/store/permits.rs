//! Units in use: what limits count whose units come back when requests end, and not with time; and what other limits
//! have still to settle.
//!
//! They are no cells of a [`Table`](super::Table): nothing evicts them, and nothing expires. There are never more
//! entries than requests in flight.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use crate::limiter::{Cell, Concurrency, Fingerprint};

/// So that requests of different keys rarely wait for each other.
const SHARDS: usize = 16;

/// The units in use of one policy, by key. Tables that succeed each other share them.
#[derive(Debug, Default)]
pub(super) struct Permits {
    shards: [Shard; SHARDS],
}

/// Some of the keys: how many units are in use of each that has any.
#[derive(Debug, Default)]
pub(super) struct Shard(Mutex<HashMap<u64, u64>>);

/// A shard that is locked.
#[derive(Debug)]
pub(super) struct InUse<'a>(MutexGuard<'a, HashMap<u64, u64>>);

/// Units that are in use as long as this lives.
#[derive(Debug)]
#[must_use = "the units come back when it is dropped"]
pub struct Permit {
    permits: Arc<Permits>,
    key: Fingerprint,
    units: u32,
}

impl Permits {
    /// The shard of a key.
    pub(super) fn shard(&self, key: Fingerprint) -> &Shard {
        &self.shards[(key.bits() % SHARDS as u64) as usize]
    }

    /// How many keys have units in use.
    pub(super) fn keys(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().0.len()).sum()
    }

    /// How many units are in use in all.
    pub(super) fn units(&self) -> u64 {
        let units = |shard: &Shard| shard.lock().0.values().sum::<u64>();
        self.shards.iter().map(units).sum()
    }

    /// What gives back so many units of `key`, which have been taken.
    pub(super) fn permit(self: &Arc<Self>, key: Fingerprint, units: u32) -> Permit {
        Permit {
            permits: Arc::clone(self),
            key,
            units,
        }
    }
}

impl Shard {
    pub(super) fn lock(&self) -> InUse<'_> {
        InUse(self.0.lock())
    }
}

impl InUse<'_> {
    /// The units in use of a key.
    pub(super) fn units(&self, key: Fingerprint) -> u64 {
        self.0.get(&key.bits()).copied().unwrap_or(0)
    }

    /// The same as the cell of a bucket, of which there are never more than such a cell holds.
    pub(super) fn cell(&self, key: Fingerprint) -> Cell {
        Concurrency::cell(u32::try_from(self.units(key)).unwrap_or(u32::MAX))
    }

    /// Takes units that were found to be there.
    pub(super) fn take(&mut self, key: Fingerprint, units: u32) {
        if units > 0 {
            *self.0.entry(key.bits()).or_default() += u64::from(units);
        }
    }

    /// Gives back units that were taken.
    pub(super) fn give_back(&mut self, key: Fingerprint, units: u32) {
        if let Some(in_use) = self.0.get_mut(&key.bits()) {
            *in_use = in_use.saturating_sub(u64::from(units));
            if *in_use == 0 {
                self.0.remove(&key.bits());
            }
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut in_use = self.permits.shard(self.key).lock();
        in_use.give_back(self.key, self.units);
    }
}

#[cfg(test)]
mod tests;
