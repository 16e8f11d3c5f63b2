//! The work that the main thread does again and again beside the requests.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval};

use crate::clock::{Clock, ClockChange, SETTLED};
use crate::limiter;
use crate::proxy::Gateway;
use crate::telemetry::metrics::{ClockMetrics, RecentCounts};
use crate::upstream::TICK;

/// The time after which counters are read again, if nobody asks for the status.
const SAMPLED: Duration = Duration::from_secs(15);

/// Does the periodic work once a second. A task of its own: a tick would cut off a wait for changed
/// files.
pub(super) async fn run_periodic_work(
    clock: Arc<Clock>,
    gateway: Arc<Gateway>,
    metrics: ClockMetrics,
    recent: RecentCounts,
) {
    let mut second = interval(Duration::from_secs(1));
    second.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        second.tick().await;
        if let Some(change) = clock.resync() {
            log_clock_change(change, &metrics);
        }
        metrics.lead.set(clock.lead() / 1_000_000);
        limiter::calendar::set_ahead(clock.ahead());
        let ruleset = gateway.ruleset();
        ruleset.clusters().for_each(|one| one.sweep());
        ruleset.sweep(clock.now());
        gateway.activity.collect(clock.now());
        recent.sample(clock.now(), SAMPLED);
        drop(ruleset);
        let unused = gateway.take_unused();
        if !unused.is_empty() {
            spawn_blocking(move || drop(unused));
        }
    }
}

/// Logs what became of the wall clock, and counts its steps.
fn log_clock_change(change: ClockChange, metrics: &ClockMetrics) {
    let length = |by: i64| Duration::from_micros(by.unsigned_abs());
    match change {
        ClockChange::Set(by) => {
            let (direction, steps) = match by {
                1.. => ("forward", &metrics.forward),
                _ => ("back", &metrics.back),
            };
            steps.increment();
            tracing::warn!(
                by = ?length(by),
                "the wall clock was set {direction}: limits follow if it stays so for {} s",
                SETTLED.as_secs()
            );
        }
        ClockChange::Corrected => tracing::info!("the wall clock and that of limits agree again"),
        ClockChange::Followed(by) if by > 0 => {
            tracing::warn!(by = ?length(by), "limits have followed the wall clock forward");
        }
        ClockChange::Followed(by) => tracing::warn!(
            by = ?length(by),
            "the clock of limits runs 3 % slower until the wall clock has caught up"
        ),
    }
}

/// Finds hosts of upstreams that fail, several times a second.
pub(super) async fn tick_upstreams(gateway: Arc<Gateway>) {
    let mut tick = interval(TICK);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        gateway.ruleset().clusters().for_each(|one| one.tick());
    }
}
