//! A semaphore whose size can change while permits are held.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use tokio::sync::{Semaphore, SemaphorePermit};

/// A number of permits.
#[derive(Debug)]
pub(crate) struct Permits {
    free: Semaphore,
    max: AtomicUsize,
    /// Permits beyond the size since it was lowered: so many end when they are returned.
    excess: AtomicUsize,
}

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

    /// Takes a permit, until its [`release`](Self::release). Returns false if none is free.
    pub(crate) fn try_acquire(&self) -> bool {
        let permit = self.free.try_acquire();
        permit.map(SemaphorePermit::forget).is_ok()
    }

    /// Waits for a permit, and takes it until its [`release`](Self::release).
    pub(crate) async fn acquire(&self) {
        let permit = self.free.acquire().await;
        permit.expect("the semaphore is never closed").forget();
    }

    /// Returns a permit.
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_more_are_given_out_than_the_latest_size(
            steps in prop::collection::vec((0..3_u8, 0..12_usize), 0..80),
        ) {
            let permits = Permits::new(4);
            let mut held = 0;
            for (step, number) in steps {
                match step {
                    0 => permits.resize(number),
                    1 => if number < held {
                        permits.release();
                        held -= 1;
                    },
                    _ => {
                        let is_given = permits.try_acquire();
                        prop_assert_eq!(is_given, held < permits.max());
                        held += usize::from(is_given);
                    }
                }
                prop_assert_eq!(permits.held(), held);
                prop_assert_eq!(permits.excess(), held.saturating_sub(permits.max()));
                prop_assert_eq!(permits.available(), permits.max().saturating_sub(held));
            }
        }
    }
}
