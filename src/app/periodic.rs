//! The work that the main thread does again and again beside the requests.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval};

use crate::clock::Clock;
use crate::proxy::Gateway;
use crate::upstream::TICK;

/// Does the periodic work once a second. A task of its own: a tick would cut off a wait for changed
/// files.
pub(super) async fn run_periodic_work(clock: Arc<Clock>, gateway: Arc<Gateway>) {
    let mut second = interval(Duration::from_secs(1));
    second.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        second.tick().await;
        clock.resync();
        let ruleset = gateway.ruleset();
        for upstream in &ruleset.upstreams {
            upstream.sweep();
        }
        ruleset.sweep(clock.now());
        gateway.activity().collect(clock.now());
        drop(ruleset);
        let unused = gateway.take_unused();
        if !unused.is_empty() {
            spawn_blocking(move || drop(unused));
        }
    }
}

/// Finds hosts of upstreams that fail, several times a second.
pub(super) async fn tick_upstreams(gateway: Arc<Gateway>) {
    let mut tick = interval(TICK);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        for upstream in &gateway.ruleset().upstreams {
            upstream.tick();
        }
    }
}
