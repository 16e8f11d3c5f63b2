//! Active health checks: a request of the proxy's own to each host, now and then. Here is the
//! record of one host, at instants that the caller gives.
//!
//! Not here: the exchange (`check`, `grpc`), and the effect on a host (`host/health.rs`).

mod check;
mod grpc;

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use tokio::time::Instant;

pub(super) use check::{CheckFailure, check};

use super::spec::HealthSpec;

/// The longest time before the first check of a host.
const MAX_FIRST_PAUSE: Duration = Duration::from_secs(5);

/// The record of a host: the instant of its next check, and its state. One check runs at a time.
#[derive(Debug, Default)]
pub(super) struct CheckRecord {
    /// `None` while no check is planned.
    due: Option<Instant>,
    is_running: bool,
    is_unhealthy: bool,
    /// Results in a row that speak against the state.
    contrary: u32,
}

impl CheckRecord {
    /// Begins a check if one is due and none runs. The caller must then run it, and
    /// [`end`](Self::end) it.
    pub(super) fn begin(&mut self, every: Duration, now: Instant) -> bool {
        // The first checks of all hosts are spread over an interval.
        let first = || now + part(every.min(MAX_FIRST_PAUSE), 0, 1000);
        // A reload may have shortened the interval.
        let longest = now + every + every / 10;
        let due = self.due.map_or_else(first, |due| due.min(longest));
        let begins = due <= now && !self.is_running;
        self.is_running |= begins;
        self.due = Some(if begins {
            now + part(every, 900, 1100)
        } else {
            due
        });
        begins
    }

    pub(super) fn is_healthy(&self) -> bool {
        !self.is_unhealthy
    }

    /// True if the host is unhealthy, or its last check failed.
    pub(super) fn has_failed(&self) -> bool {
        self.is_unhealthy || self.contrary > 0
    }

    /// Ends a check: it has passed or failed, or tells nothing (`None`). Returns true if that changes
    /// the state.
    pub(super) fn end(&mut self, result: Option<bool>, spec: &HealthSpec) -> bool {
        self.is_running = false;
        let Some(is_passed) = result.filter(|_| self.due.is_some()) else {
            return false;
        };
        self.contrary = if is_passed != self.is_unhealthy {
            0
        } else {
            self.contrary + 1
        };
        let enough = if is_passed {
            spec.healthy_after
        } else {
            spec.unhealthy_after
        };
        let is_changed = self.contrary >= enough.max(1);
        if is_changed {
            (self.is_unhealthy, self.contrary) = (!is_passed, 0);
        }
        is_changed
    }

    /// An unhealthy host, until enough checks pass.
    pub(super) fn fail(&mut self) {
        (self.is_unhealthy, self.contrary) = (true, 0);
    }

    /// Forgets all results, since hosts are checked no longer. Returns true if it was unhealthy.
    pub(super) fn forget(&mut self) -> bool {
        let was_unhealthy = self.is_unhealthy;
        *self = CheckRecord {
            is_running: self.is_running,
            ..CheckRecord::default()
        };
        was_unhealthy
    }
}

/// A random part of `time` from `low` to `high` thousandths.
fn part(time: Duration, low: u32, high: u32) -> Duration {
    let random = RandomState::new().hash_one(0) % u64::from(high - low + 1);
    time / 1000 * (low + random as u32)
}

#[cfg(test)]
mod tests {
    use http::uri::PathAndQuery;

    use super::*;
    use crate::upstream::HealthRequest;

    const SECOND: Duration = Duration::from_secs(1);

    fn spec(unhealthy_after: u32, healthy_after: u32) -> HealthSpec {
        HealthSpec {
            request: HealthRequest::Get {
                path: PathAndQuery::from_static("/"),
                statuses: vec![200..=299, 401..=401],
            },
            host: None,
            every: SECOND,
            timeout: SECOND,
            unhealthy_after,
            healthy_after,
        }
    }

    /// The changes after each of these results, `+` or `-`, or `?` for none.
    fn changes(record: &mut CheckRecord, results: &str) -> String {
        let spec = spec(3, 2);
        let mut now = Instant::now();
        let change = |result: char| {
            while !record.begin(spec.every, now) {
                now += SECOND / 10;
            }
            let result = (result != '?').then_some(result == '+');
            match (record.end(result, &spec), record.is_healthy()) {
                (false, _) => '.',
                (true, true) => 'H',
                (true, false) => 'U',
            }
        };
        results.chars().map(change).collect()
    }

    #[test]
    fn the_state_changes_after_enough_results_in_a_row() {
        let mut record = CheckRecord::default();
        assert_eq!(changes(&mut record, "+--+--+---"), ".........U");
        assert_eq!(changes(&mut record, "--+-+-++"), ".......H");
        assert_eq!(changes(&mut record, "-?-?-"), "....U");
        assert!(record.forget());
        assert!(!record.forget(), "it counts as healthy");
        assert_eq!(changes(&mut record, "---"), "..U");
    }

    #[test]
    fn one_check_runs_at_a_time_and_the_next_follows_after_the_interval() {
        let (mut record, start, spec) = (CheckRecord::default(), Instant::now(), spec(1, 1));
        record.begin(SECOND, start);
        let mut now = start + SECOND;
        assert!(record.is_running || record.begin(SECOND, now), "the first");
        now += 100 * SECOND;
        assert!(!record.begin(SECOND, now), "it still runs");
        record.end(Some(true), &spec);
        assert!(record.begin(SECOND, now));
        record.end(Some(true), &spec);
        assert!(!record.begin(SECOND, now + SECOND * 89 / 100));
        assert!(record.begin(SECOND, now + SECOND * 111 / 100));
    }

    #[test]
    fn a_shorter_interval_holds_at_once() {
        let (mut record, start) = (CheckRecord::default(), Instant::now());
        let hour = 3_600 * SECOND;
        record.begin(hour, start);
        assert!(record.is_running || record.begin(hour, start + MAX_FIRST_PAUSE));
        record.end(Some(true), &spec(1, 1));
        let now = start + 10 * SECOND;
        assert!(!record.begin(SECOND, now));
        assert!(record.begin(SECOND, now + 2 * SECOND));
    }

    #[test]
    fn the_result_of_a_check_that_outlived_its_option_is_dropped() {
        let (mut record, start, spec) = (CheckRecord::default(), Instant::now(), spec(1, 1));
        record.begin(SECOND, start);
        record.begin(SECOND, start + SECOND);
        assert!(!record.forget());
        assert!(!record.end(Some(false), &spec));
    }
}
