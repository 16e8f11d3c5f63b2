//! A semaphore whose size can change while permits are held.

use std::ops::Deref;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use tokio::sync::Semaphore;

/// A number of permits.
#[derive(Debug)]
pub(crate) struct Permits {
    free: Semaphore,
    max: AtomicUsize,
    /// Permits beyond the size since it was lowered: so many end when they are returned.
    excess: AtomicUsize,
}

/// A permit, until dropped.
#[derive(Debug)]
pub(crate) struct Permit<P: Deref<Target = Permits>>(Option<P>);

impl Permits {
    /// The largest size.
    pub(crate) const MAX: usize = Semaphore::MAX_PERMITS;

    pub(crate) const fn new(max: usize) -> Self {
        Self {
            free: Semaphore::const_new(max),
            max: AtomicUsize::new(max),
            excess: AtomicUsize::new(0),
        }
    }

    /// Changes the size. Held permits stay; of those beyond the new size none is given out again.
    /// Not to be called by two threads at once.
    pub(crate) fn resize(&self, max: usize) {
        let before = self.max.swap(max, Relaxed);
        let (more, fewer) = (max.saturating_sub(before), before.saturating_sub(max));
        let unused = self.free.forget_permits(fewer);
        self.excess.fetch_add(fewer - unused, Relaxed);
        let kept = |excess: usize| Some(excess.saturating_sub(more));
        let excess = self.excess.fetch_update(Relaxed, Relaxed, kept);
        let excess = excess.unwrap_or_else(|excess| excess);
        self.free.add_permits(more.saturating_sub(excess));
    }

    pub(crate) fn max(&self) -> usize {
        self.max.load(Relaxed)
    }

    /// The permits that are held.
    pub(crate) fn held(&self) -> usize {
        let all = self.max() + self.excess();
        all.saturating_sub(self.free.available_permits())
    }

    pub(crate) fn available(&self) -> usize {
        self.free.available_permits()
    }

    /// The permits that are held beyond the size.
    pub(crate) fn excess(&self) -> usize {
        self.excess.load(Relaxed)
    }

    /// Returns a permit if one is free.
    pub(crate) fn try_acquire<P: Deref<Target = Self>>(this: P) -> Option<Permit<P>> {
        this.free.try_acquire().ok()?.forget();
        Some(Permit(Some(this)))
    }

    /// Waits for a permit.
    pub(crate) async fn acquire<P: Deref<Target = Self>>(this: P) -> Permit<P> {
        let permit = this.free.acquire().await;
        permit.expect("the semaphore is never closed").forget();
        Permit(Some(this))
    }

    /// Returns a permit whose guard was [forgotten](Permit::forget).
    pub(crate) fn release(&self) {
        let one_less = |excess: usize| excess.checked_sub(1);
        if self
            .excess
            .fetch_update(Relaxed, Relaxed, one_less)
            .is_err()
        {
            self.free.add_permits(1);
        }
    }
}

impl<P: Deref<Target = Permits>> Permit<P> {
    /// Keeps the permit without a guard, until [`Permits::release`].
    pub(crate) fn forget(mut self) {
        self.0 = None;
    }
}

impl<P: Deref<Target = Permits>> Drop for Permit<P> {
    fn drop(&mut self) {
        self.0.iter().for_each(|permits| permits.release());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_more_are_given_out_than_the_latest_size(
            steps in prop::collection::vec((0..3_u8, 0..12_usize), 0..80),
        ) {
            let permits = Arc::new(Permits::new(4));
            let mut held = Vec::new();
            for (step, number) in steps {
                match step {
                    0 => permits.resize(number),
                    1 => drop((number < held.len()).then(|| held.swap_remove(number))),
                    _ => {
                        let given = Permits::try_acquire(Arc::clone(&permits));
                        prop_assert_eq!(given.is_some(), held.len() < permits.max());
                        held.extend(given);
                    }
                }
                prop_assert_eq!(permits.held(), held.len());
                prop_assert_eq!(permits.excess(), held.len().saturating_sub(permits.max()));
                prop_assert_eq!(permits.available(), permits.max().saturating_sub(held.len()));
            }
        }
    }
}
