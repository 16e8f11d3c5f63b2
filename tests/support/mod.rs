//! Support for the black-box tests: the proxy, origins behind it and clients before it. A module,
//! not a test, hence `mod.rs`. Every wait has a deadline; every port is 0.
#![allow(
    dead_code,
    unreachable_pub,
    reason = "a library to tests, each of which uses a part"
)]

pub mod admin;
pub mod browser;
pub mod client;
pub mod collector;
pub mod costs;
pub mod fault_proxy;
pub mod frames;
pub mod gateway;
pub mod http2_origin;
pub mod origin;
pub mod outage;
pub mod prometheus;
pub mod redis;
pub mod redis_store;
pub mod replay;
pub mod scripts;
pub mod shared;
pub mod slow;
pub mod steering;
pub mod synchronised;
pub mod tls;
pub mod token_budgets;
pub mod watched;

use std::thread;
use std::time::{Duration, Instant};

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

/// Polls until there is a value.
///
/// # Panics
/// When there is none within `DEADLINE`.
pub fn wait_for<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let started = now();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(
            started.elapsed() < DEADLINE,
            "waited {DEADLINE:?} in vain for {what}"
        );
        thread::sleep(Duration::from_millis(5));
    }
}
