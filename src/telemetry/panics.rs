//! Panics in the process's own log: where and why, a line a second at most.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::panic::{PanicHookInfo, set_hook};
use std::time::Duration;

use super::log_throttle::LogThrottle;

/// The least time between two lines.
const INTERVAL: Duration = Duration::from_secs(1);

/// Has every panic of the process logged, in place of the lines that the standard library writes to
/// stderr.
pub fn install_hook() {
    let throttle = LogThrottle::new(INTERVAL);
    set_hook(Box::new(move |panic| {
        if let Some(omitted) = throttle.admit_now() {
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
