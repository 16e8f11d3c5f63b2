//! Waiting in real time, with a deadline.

use std::thread;
use std::time::{Duration, Instant, SystemTime};

/// Far above any duration in a test on a busy machine; only a failure waits that long.
pub const DEADLINE: Duration = Duration::from_secs(20);

/// The time, for bounds on waiting.
#[expect(
    clippy::disallowed_methods,
    reason = "a test of a real process waits in real time"
)]
pub fn now() -> Instant {
    Instant::now()
}

/// The wall clock.
#[expect(
    clippy::disallowed_methods,
    reason = "a test of a real process compares its times with the real time"
)]
pub fn wall_clock() -> SystemTime {
    SystemTime::now()
}

/// The deadline of what may take a third of `DEADLINE` on an idle machine, as rates do and pages that show them.
const PATIENCE: Duration = Duration::from_secs(60);

/// Polls until there is a value.
///
/// # Panics
/// When there is none within `PATIENCE`.
pub fn wait_for<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let started = now();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(
            started.elapsed() < PATIENCE,
            "waited {PATIENCE:?} in vain for {what}"
        );
        thread::sleep(Duration::from_millis(5));
    }
}
