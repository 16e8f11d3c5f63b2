//! The availability of a host: if, and how often, the balancer may pick it. Read by every pick, and
//! changed by ejections and a few times a second.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::counts::HostCounts;
use crate::telemetry::metrics::{EjectionReason, EndpointMetrics};
use crate::telemetry::registry::GaugeGuard;
use crate::upstream::HostCondition;
use crate::upstream::ejection::{FULL, Standing};
use crate::upstream::spec::EjectionSpec;
use crate::upstream::stall::{Load, Progress, Silence};

/// The seconds of which requests count for the failure rate.
const WINDOW: usize = 10;

/// The fewest requests of which a failure rate is computed.
const MIN_REQUESTS: u64 = 100;

/// How a host compares with the others of an upstream, the worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::upstream) enum Readiness {
    /// It gets no requests while there are others.
    LeftOut,
    /// It is on probation, and has its one request.
    OnTrial,
    /// It takes requests.
    Ready,
}

/// The availability of a host.
#[derive(Debug)]
pub(in crate::upstream) struct Availability {
    /// The share of its requests that the host gets, 0 to [`FULL`].
    share: AtomicU32,
    is_on_probation: AtomicBool,
    /// It fails or is on probation, which a good answer ends.
    awaits_answer: AtomicBool,
    /// Counts the picks of a host whose share is not full.
    offers: AtomicU32,
    record: Mutex<Record>,
    /// Notified when the requests that wait must be tried elsewhere: one for each worker, so that
    /// none waits for the lock of another.
    leave: Box<[Notify]>,
}

#[derive(Debug)]
struct Record {
    standing: Standing,
    silence: Silence,
    /// Judged and failed requests at the start of each of the last seconds, the oldest first.
    seconds: VecDeque<(u64, u64)>,
    /// The reason for the last ejection, or why the host fails.
    reason: Option<EjectionReason>,
    /// Health checks fail.
    is_unhealthy: bool,
    /// The endpoint drains.
    is_draining: bool,
    /// Counts the host as available.
    available: Option<GaugeGuard>,
}

impl Availability {
    pub(super) fn new(workers: usize, metrics: &EndpointMetrics) -> Self {
        Availability {
            share: AtomicU32::new(FULL),
            is_on_probation: AtomicBool::new(false),
            awaits_answer: AtomicBool::new(false),
            offers: AtomicU32::new(0),
            record: Mutex::new(Record {
                standing: Standing::new(),
                silence: Silence::new(Instant::now()),
                seconds: VecDeque::new(),
                reason: None,
                is_unhealthy: false,
                is_draining: false,
                available: Some(metrics.available()),
            }),
            leave: (0..workers).map(|_| Notify::new()).collect(),
        }
    }

    pub(super) fn is_on_probation(&self) -> bool {
        self.is_on_probation.load(Relaxed)
    }

    /// Returns true if the host gets no requests while there are others.
    pub(in crate::upstream) fn is_left_out(&self) -> bool {
        self.share.load(Relaxed) == 0
    }

    /// Returns true if the host is in use, and has answered well since it failed.
    pub(super) fn works(&self) -> bool {
        !self.is_left_out() && !self.awaits_answer.load(Relaxed)
    }

    pub(super) fn is_failing(&self) -> bool {
        self.awaits_answer.load(Relaxed) && !self.is_on_probation()
    }

    /// How the host compares with others.
    pub(super) fn readiness(&self, counts: &HostCounts) -> Readiness {
        if self.is_left_out() {
            Readiness::LeftOut
        } else if self.is_on_probation() && counts.waiting() > 0 {
            Readiness::OnTrial
        } else {
            Readiness::Ready
        }
    }

    /// Returns true if the balancer may pick the host, which is offered one of its turns. A host on
    /// probation gets one request at a time.
    pub(super) fn takes_turn(&self, counts: &HostCounts) -> bool {
        let share = self.share.load(Relaxed);
        if self.is_on_probation.load(Relaxed) && counts.waiting() > 0 {
            return false;
        }
        // Multiples of the golden ratio are spread evenly over the shares.
        share == FULL || {
            let offer = self.offers.fetch_add(1, Relaxed).wrapping_mul(0x9E37_79B9);
            (offer >> 24) < share
        }
    }

    /// Waits until the host stalls.
    pub(super) async fn stalled(&self, worker: usize) {
        self.leave[worker].notified().await;
    }

    /// Begins the slow start of a host that is new beside others.
    pub(in crate::upstream) fn start_slowly(&self, slow_start: Duration, now: Instant) {
        let mut record = self.record.lock();
        record.standing.start_slowly(now);
        self.publish(&record, slow_start, now);
    }

    /// Ejects the host; shortly after an outage of all hosts. Returns for how long, or `None` if it
    /// is ejected already. The caller has made sure that enough others are left.
    pub(super) fn eject(
        &self,
        spec: &EjectionSpec,
        reason: EjectionReason,
        is_after_outage: bool,
        now: Instant,
    ) -> Option<Duration> {
        let mut record = self.record.lock();
        let length = record.standing.eject(spec, is_after_outage, now)?;
        record.reason = Some(reason);
        record.available = None;
        self.publish(&record, Duration::ZERO, now);
        drop(record);
        if reason == EjectionReason::Stalled {
            self.leave.iter().for_each(Notify::notify_waiters);
        }
        Some(length)
    }

    /// Keeps the host in use although it fails. Returns true if it worked before.
    pub(super) fn fail(
        &self,
        reason: EjectionReason,
        metrics: &EndpointMetrics,
        now: Instant,
    ) -> bool {
        let mut record = self.record.lock();
        record.reason = Some(reason);
        let did_work = record.standing.is_good();
        record.standing.fail();
        self.show(&mut record, metrics, Duration::MAX, now);
        did_work
    }

    /// Uses an ejected host, and one on probation, as the others, which are no better.
    pub(super) fn share_outage(&self, metrics: &EndpointMetrics, now: Instant) {
        if !self.is_left_out() && !self.is_on_probation() {
            return;
        }
        let mut record = self.record.lock();
        if record.standing.is_ejected() || record.standing.is_on_probation() {
            record.standing.fail();
            self.show(&mut record, metrics, Duration::MAX, now);
        }
    }

    /// Ends an ejection: now, or once it has lasted as long as it should.
    pub(super) fn end_ejection(&self, is_early: bool, metrics: &EndpointMetrics, now: Instant) {
        let mut record = self.record.lock();
        let is_over = match is_early {
            true => record.standing.pardon(now),
            false => record.standing.end_ejection(now),
        };
        if is_over {
            self.show(&mut record, metrics, Duration::MAX, now);
        }
    }

    /// Ends an ejection for the lack of a connection, since there was one.
    pub(super) fn end_connect_failure(&self, metrics: &EndpointMetrics, now: Instant) {
        let reason = self.record.lock().reason;
        if reason == Some(EjectionReason::ConnectFailure) {
            self.end_ejection(true, metrics, now);
        }
    }

    /// Forgets all failures. Returns true if the host was ejected.
    pub(super) fn readmit(&self, metrics: &EndpointMetrics, now: Instant) -> bool {
        let mut record = self.record.lock();
        let was_ejected = record.standing.readmit();
        self.show(&mut record, metrics, Duration::MAX, now);
        was_ejected
    }

    pub(super) fn is_ejected(&self) -> bool {
        self.record.lock().standing.is_ejected()
    }

    /// Returns true if a host that was left out a moment ago may answer: its ejection is over by now,
    /// or is one that a restart ends. A stalled host would keep a request waiting.
    pub(in crate::upstream) fn may_be_back(&self) -> bool {
        let record = self.record.lock();
        let is_stalled = record.reason == Some(EjectionReason::Stalled);
        let is_left_out = record.is_unhealthy || record.is_draining;
        !(is_left_out || is_stalled && record.standing.is_ejected())
    }

    /// Leaves the host out while it is unhealthy. It comes back with a slow start.
    pub(super) fn set_health(&self, is_healthy: bool, metrics: &EndpointMetrics, now: Instant) {
        let mut record = self.record.lock();
        record.is_unhealthy = !is_healthy;
        if is_healthy {
            record.standing.start_slowly(now);
        }
        self.show(&mut record, metrics, Duration::MAX, now);
    }

    /// Leaves the host out while its endpoint drains.
    pub(super) fn set_draining(
        &self,
        is_draining: bool,
        load: &Load,
        metrics: &EndpointMetrics,
        now: Instant,
    ) {
        let mut record = self.record.lock();
        record.is_draining = is_draining;
        record.silence.restart(load, now);
        self.show(&mut record, metrics, Duration::MAX, now);
    }

    /// The condition of the host at `now`.
    pub(super) fn condition(&self, now: Instant) -> HostCondition {
        let record = self.record.lock();
        match (record.standing.ejected_until(), record.reason) {
            _ if record.is_draining => HostCondition::Draining,
            (Some(until), Some(reason)) => HostCondition::Ejected {
                reason,
                left: until.saturating_duration_since(now),
            },
            _ if record.is_unhealthy => HostCondition::Unhealthy,
            _ if record.standing.is_on_probation() => HostCondition::Probation,
            (_, Some(reason)) if record.standing.is_failing() => HostCondition::Failing(reason),
            _ => HostCondition::Available,
        }
    }

    /// Notes a good answer, which ends a probation and a failing.
    pub(super) fn record_answer(&self, metrics: &EndpointMetrics) {
        if self.awaits_answer.load(Relaxed) {
            let mut record = self.record.lock();
            if record.standing.pass() {
                self.is_on_probation.store(false, Relaxed);
                self.awaits_answer.store(false, Relaxed);
                record.count(metrics);
            }
        }
    }

    /// Brings the share up to date.
    pub(in crate::upstream) fn update_share(&self, slow_start: Duration, now: Instant) {
        if self.share.load(Relaxed) != FULL {
            self.publish(&self.record.lock(), slow_start, now);
        }
    }

    /// Its progress since the last look at its silence.
    pub(in crate::upstream) fn progress(&self, load: &Load) -> Progress {
        self.record.lock().silence.progress(load)
    }

    /// Returns true if the host is stalled. `others` is the progress of the others since the last
    /// look.
    pub(in crate::upstream) fn is_stalled(
        &self,
        load: &Load,
        others: Progress,
        now: Instant,
    ) -> bool {
        let mut record = self.record.lock();
        let is_on_probation = record.standing.is_on_probation();
        if self.is_left_out() || (is_on_probation && load.waiting == 0) {
            record.silence.restart(load, now);
            return false;
        }
        record.silence.observe(load, others, now);
        match is_on_probation {
            true => record.silence.is_stall_on_probation(load, now),
            false => record.silence.is_stall(load, now),
        }
    }

    /// Returns true if too many of the last requests failed. Must be called once a second.
    pub(super) fn fails_too_often(&self, percent: u32, counts: &HostCounts) -> bool {
        let (judged, failed) = counts.judged();
        let mut record = self.record.lock();
        let &(old_judged, old_failed) = record.seconds.front().unwrap_or(&(judged, failed));
        record.seconds.push_back((judged, failed));
        if record.seconds.len() > WINDOW {
            record.seconds.pop_front();
        }
        let (judged, failed) = (judged - old_judged, failed - old_failed);
        let is_often = judged >= MIN_REQUESTS && failed * 100 >= judged * u64::from(percent);
        if is_often {
            record.seconds.clear();
        }
        is_often
    }

    /// Shows a change of the standing to the balancer and in metrics.
    fn show(
        &self,
        record: &mut Record,
        metrics: &EndpointMetrics,
        slow_start: Duration,
        now: Instant,
    ) {
        record.count(metrics);
        self.publish(record, slow_start, now);
    }

    /// Shows the standing to the balancer.
    fn publish(&self, record: &Record, slow_start: Duration, now: Instant) {
        let standing = &record.standing;
        let share = match record.is_unhealthy || record.is_draining {
            true => 0,
            false => standing.share(slow_start, now),
        };
        let is_on_probation = standing.is_on_probation();
        self.is_on_probation.store(is_on_probation, Relaxed);
        let awaits_answer = is_on_probation || standing.is_failing();
        self.awaits_answer.store(awaits_answer, Relaxed);
        self.share.store(share, Relaxed);
    }
}

impl Record {
    /// Counts the host as available if it is in use and works, or no longer.
    fn count(&mut self, metrics: &EndpointMetrics) {
        let is_available = !self.is_unhealthy && !self.is_draining && self.standing.is_good();
        self.available = is_available.then(|| metrics.available());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::registry::Registry;

    const SPEC: EjectionSpec = EjectionSpec {
        consecutive_failures: 5,
        failure_rate: None,
        base: Duration::from_secs(10),
        max: Duration::from_secs(300),
        max_ejected: 50,
    };

    /// A host that is ejected for this reason since a moment.
    fn ejected(reason: EjectionReason) -> (Availability, EndpointMetrics, Instant) {
        let metrics = EndpointMetrics::new(&Registry::default(), &"upstream".into(), "endpoint");
        let (host, now) = (Availability::new(1, &metrics), Instant::now());
        assert!(host.eject(&SPEC, reason, false, now).is_some());
        (host, metrics, now)
    }

    #[test]
    fn a_host_may_be_back_also_once_its_ejection_has_ended() {
        let (host, metrics, now) = ejected(EjectionReason::ConnectFailure);
        assert!(host.is_left_out() && host.may_be_back());
        // The ejection may end between the two questions: another request found the other hosts down.
        host.share_outage(&metrics, now);
        assert!(host.may_be_back());
        let (host, metrics, now) = ejected(EjectionReason::ConnectFailure);
        host.end_ejection(false, &metrics, now + SPEC.base);
        assert!(host.may_be_back());
    }

    #[test]
    fn a_host_that_keeps_requests_waiting_is_no_last_resort() {
        let (host, metrics, now) = ejected(EjectionReason::Stalled);
        assert!(!host.may_be_back());
        host.end_ejection(false, &metrics, now + SPEC.base);
        assert!(host.may_be_back());
        host.set_health(false, &metrics, now);
        assert!(!host.may_be_back(), "health checks fail");
    }
}
