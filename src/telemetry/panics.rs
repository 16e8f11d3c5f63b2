//! Panics in the process's own log: where and why, a line a second at most.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::panic::{PanicHookInfo, set_hook};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// The least time between two lines.
const INTERVAL: Duration = Duration::from_secs(1);

/// When the last line was logged, and how many panics had none since.
#[derive(Debug, Default)]
struct Throttle(Mutex<(Option<Instant>, u64)>);

impl Throttle {
    /// How many panics had no line since the last one; `None` if this has none either.
    fn admit(&self, now: Instant) -> Option<u64> {
        let mut state = self.0.lock();
        let (last, omitted) = &mut *state;
        if last.is_some_and(|last| now < last + INTERVAL) {
            *omitted += 1;
            return None;
        }
        *last = Some(now);
        Some(std::mem::take(omitted))
    }
}

/// Has every panic of the process logged, in place of the lines that the standard library writes to stderr.
pub fn log() {
    let throttle = Throttle::default();
    set_hook(Box::new(move |panic| {
        if let Some(omitted) = throttle.admit(Instant::now()) {
            write(panic, omitted);
        }
    }));
}

fn write(panic: &PanicHookInfo<'_>, omitted: u64) {
    let reason = panic.payload_as_str().unwrap_or("no message");
    let location = panic.location().map(ToString::to_string);
    let location = location.as_deref().unwrap_or("unknown");
    let thread = std::thread::current();
    let thread = thread.name().unwrap_or("unnamed");
    let backtrace = Backtrace::capture();
    match backtrace.status() {
        BacktraceStatus::Captured => {
            tracing::error!(location, reason, thread, omitted, %backtrace, "panic");
        }
        _ => tracing::error!(location, reason, thread, omitted, "panic"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_panic_a_second_is_logged_and_the_rest_counted() {
        let (throttle, start) = (Throttle::default(), Instant::now());
        let at = |millis| throttle.admit(start + Duration::from_millis(millis));
        assert_eq!(
            [at(0), at(1), at(999), at(1_000), at(3_000)],
            [Some(0), None, None, Some(2), Some(0)]
        );
    }
}
