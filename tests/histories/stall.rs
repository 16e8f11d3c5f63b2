//! How long a busy machine lets a thread wait that has work to do.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use crate::history::micros;
use crate::support::now;

/// The sleep whose real length is measured.
const NAP: Duration = Duration::from_millis(5);

/// A thread that sleeps and notes by how much it has overslept.
pub struct Stalls {
    longest: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
}

impl Stalls {
    pub fn watch() -> Self {
        let stalls = Self {
            longest: Arc::new(AtomicU64::new(0)),
            is_over: Arc::new(AtomicBool::new(false)),
        };
        let (longest, is_over) = (Arc::clone(&stalls.longest), Arc::clone(&stalls.is_over));
        thread::spawn(move || {
            while !is_over.load(Relaxed) {
                let begun = now();
                thread::sleep(NAP);
                longest.fetch_max(micros(begun.elapsed() - NAP), Relaxed);
            }
        });
        stalls
    }

    /// The longest so far.
    pub fn longest(&self) -> Duration {
        Duration::from_micros(self.longest.load(Relaxed))
    }
}

impl Drop for Stalls {
    fn drop(&mut self) {
        self.is_over.store(true, Relaxed);
    }
}
