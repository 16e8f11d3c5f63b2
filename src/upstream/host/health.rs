//! The health of a host: if, and how often, the balancer may pick it. Read by every pick, and changed
//! by attempts, health checks, operators, and a few times a second.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::counts::{HostCounts, HostEvidence};
use crate::telemetry::metrics::{EjectionReason, EndpointMetrics};
use crate::telemetry::registry::GaugeGuard;
use crate::upstream::ejection::{FULL, Standing};
use crate::upstream::health::CheckRecord;
use crate::upstream::spec::{EjectionSpec, HealthSpec};
use crate::upstream::stall::{Progress, Silence};

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

/// The availability of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum HostState {
    /// In use.
    Available,
    /// Ejected for its failures.
    Ejected,
    /// In use although it fails.
    Failing,
    /// Gets no requests while its health checks fail.
    Unhealthy,
    /// Back from an ejection, without a good answer so far.
    Probation,
    /// Gets no requests because its endpoint drains.
    Draining,
}

impl HostState {
    /// True if the host takes requests, and does not fail them.
    pub fn works(self) -> bool {
        matches!(self, Self::Available | Self::Probation)
    }

    /// The state for people, in the words that follow "is", with the reason for it.
    pub(super) fn text(self, reason: Option<EjectionReason>) -> String {
        let why = match reason {
            None => "",
            Some(EjectionReason::ConnectFailure) => "it accepts no connections",
            Some(EjectionReason::ConsecutiveFailures) => "too many requests in a row failed",
            Some(EjectionReason::FailureRate) => "too large a part of its requests failed",
            Some(EjectionReason::Stalled) => "it answered no request, while others did",
            Some(EjectionReason::Probation) => "its first request after an ejection failed",
        };
        match self {
            Self::Available => "available".to_owned(),
            Self::Ejected => format!("ejected: {why}"),
            Self::Failing => format!("failing, but in use, because too few others work: {why}"),
            Self::Unhealthy => "unhealthy: it fails its health checks".to_owned(),
            Self::Probation => "on probation: its first failure ejects it again".to_owned(),
            Self::Draining => "draining: it gets no new requests".to_owned(),
        }
    }
}

/// An ejection that has begun.
#[derive(Clone, Copy, Debug)]
pub(in crate::upstream) struct Ejection {
    pub reason: EjectionReason,
    /// Its length.
    pub time: Duration,
}

/// The health of a host.
#[derive(Debug)]
pub(in crate::upstream) struct HostHealth {
    pub counts: HostCounts,
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
    metrics: Arc<EndpointMetrics>,
}

#[derive(Debug)]
struct Record {
    standing: Standing,
    silence: Silence,
    checks: CheckRecord,
    /// The endpoint drains.
    is_draining: bool,
    /// Judged and failed requests at the start of each of the last seconds, the oldest first.
    seconds: VecDeque<(u64, u64)>,
    /// The reason for the last ejection, or why the host fails.
    reason: Option<EjectionReason>,
    /// The time in which its share grows, once known.
    slow_start: Duration,
    /// Counts the host as available.
    available: Option<GaugeGuard>,
}

impl HostHealth {
    pub(super) fn new(workers: usize, metrics: Arc<EndpointMetrics>) -> Self {
        HostHealth {
            counts: HostCounts::default(),
            share: AtomicU32::new(FULL),
            is_on_probation: AtomicBool::new(false),
            awaits_answer: AtomicBool::new(false),
            offers: AtomicU32::new(0),
            record: Mutex::new(Record {
                standing: Standing::new(),
                silence: Silence::new(Progress::default(), Instant::now()),
                checks: CheckRecord::default(),
                is_draining: false,
                seconds: VecDeque::new(),
                reason: None,
                slow_start: Duration::MAX,
                available: Some(metrics.available.hold(1)),
            }),
            leave: (0..workers).map(|_| Notify::new()).collect(),
            metrics,
        }
    }

    /// Returns true if the host gets no requests while there are others.
    pub(in crate::upstream) fn is_left_out(&self) -> bool {
        self.share.load(Relaxed) == 0
    }

    /// Returns true if the host is in use, and has answered well since it failed.
    pub(in crate::upstream) fn works(&self) -> bool {
        !self.is_left_out() && !self.awaits_answer.load(Relaxed)
    }

    /// Returns true if the host is in use, and fails.
    pub(in crate::upstream) fn is_failing(&self) -> bool {
        self.awaits_answer.load(Relaxed) && !self.is_on_probation.load(Relaxed)
    }

    /// Returns true if the host is on probation, and has its one request.
    fn is_on_trial(&self) -> bool {
        self.is_on_probation.load(Relaxed) && self.counts.waiting() > 0
    }

    /// How the host compares with the others of the upstream.
    pub(in crate::upstream) fn readiness(&self) -> Readiness {
        if self.is_left_out() {
            Readiness::LeftOut
        } else if self.is_on_trial() {
            Readiness::OnTrial
        } else {
            Readiness::Ready
        }
    }

    /// Returns true if the balancer may pick the host, which is offered one of its turns. A host on
    /// probation gets one request at a time.
    pub(in crate::upstream) fn takes_turn(&self) -> bool {
        let share = self.share.load(Relaxed);
        if self.is_on_trial() {
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

    /// Returns true if a host that was left out a moment ago may answer: its ejection is over by now,
    /// or is one that a restart ends. A stalled host would keep a request waiting.
    pub(in crate::upstream) fn may_be_back(&self) -> bool {
        let record = self.record.lock();
        let is_stalled = record.reason == Some(EjectionReason::Stalled);
        !(record.is_left_out() || is_stalled && record.standing.phase.is_ejected())
    }

    /// The state of the host at `now`, for operators: why it is ejected or fails, and the rest of an ejection.
    pub(super) fn state(
        &self,
        now: Instant,
    ) -> (HostState, Option<EjectionReason>, Option<Duration>) {
        let record = self.record.lock();
        let phase = record.standing.phase;
        match record.standing.ejected_until() {
            _ if record.is_draining => (HostState::Draining, None, None),
            Some(until) => {
                let left = until.saturating_duration_since(now);
                (HostState::Ejected, record.reason, Some(left))
            }
            None if record.is_left_out() => (HostState::Unhealthy, None, None),
            None if phase.is_probation() => (HostState::Probation, None, None),
            None if phase.is_failing() => (HostState::Failing, record.reason, None),
            None => (HostState::Available, None, None),
        }
    }

    /// Changes the record, and shows it to the balancer and in metrics.
    fn change<T>(&self, now: Instant, change: impl FnOnce(&mut Record) -> T) -> T {
        let mut record = self.record.lock();
        let result = change(&mut record);
        let (standing, is_left_out) = (&record.standing, record.is_left_out());
        let is_on_probation = standing.phase.is_probation();
        let awaits_answer = is_on_probation || standing.phase.is_failing();
        let is_available = !is_left_out && standing.phase.is_good();
        let share = if is_left_out {
            0
        } else {
            standing.share(record.slow_start, now)
        };
        // Every pick reads these: an unchanged value is not stored again.
        if self.is_on_probation.load(Relaxed) != is_on_probation {
            self.is_on_probation.store(is_on_probation, Relaxed);
        }
        if self.awaits_answer.load(Relaxed) != awaits_answer {
            self.awaits_answer.store(awaits_answer, Relaxed);
        }
        if self.share.load(Relaxed) != share {
            self.share.store(share, Relaxed);
        }
        if is_available != record.available.is_some() {
            record.available = is_available.then(|| self.metrics.available.hold(1));
        }
        result
    }

    /// Begins the slow start of a host that is new beside others.
    pub(in crate::upstream) fn start_slowly(&self, slow_start: Duration, now: Instant) {
        self.change(now, |record| {
            record.slow_start = slow_start;
            record.standing.start_slowly(now);
        });
    }

    /// Ends an ejection that has lasted as long as it should, or any if the upstream ejects no hosts
    /// any more, and brings the share up to date.
    pub(in crate::upstream) fn tick(
        &self,
        ejection: Option<&EjectionSpec>,
        slow_start: Duration,
        now: Instant,
    ) {
        self.change(now, |record| {
            record.slow_start = slow_start;
            if let Some(spec) = ejection {
                record.standing.end_ejection(spec, now);
            } else if record.standing.phase.is_ejected() {
                self.counts.forgive();
                record.standing = Standing::new();
            }
        });
    }

    /// The reason to eject the host for the failed attempt that was counted last, if there is one:
    /// `most` failures in a row, or less.
    pub(in crate::upstream) fn reason_to_eject(
        &self,
        most: u32,
        evidence: HostEvidence,
    ) -> Option<EjectionReason> {
        let row = self.counts.failures_in_a_row();
        match evidence {
            HostEvidence::Good | HostEvidence::Excused => None,
            HostEvidence::NoConnection => Some(EjectionReason::ConnectFailure),
            HostEvidence::Failed if self.is_on_probation.load(Relaxed) => {
                Some(EjectionReason::Probation)
            }
            HostEvidence::Failed => (row >= most).then_some(EjectionReason::ConsecutiveFailures),
        }
    }

    /// The reason to eject the host for its last seconds, if there is one: `most` broken responses
    /// in a row, or this percentage of failures. Must be called once a second.
    pub(in crate::upstream) fn reason_of_late(
        &self,
        most: u32,
        percent: Option<u32>,
    ) -> Option<EjectionReason> {
        if self.counts.broken_bodies_in_a_row() >= most {
            return Some(EjectionReason::ConsecutiveFailures);
        }
        let percent = u64::from(percent?);
        let (judged, failed) = self.counts.judged();
        let seconds = &mut self.record.lock().seconds;
        let &(old_judged, old_failed) = seconds.front().unwrap_or(&(judged, failed));
        seconds.push_back((judged, failed));
        if seconds.len() > WINDOW {
            seconds.pop_front();
        }
        let (judged, failed) = (judged - old_judged, failed - old_failed);
        if judged < MIN_REQUESTS || failed * 100 < judged * percent {
            return None;
        }
        seconds.clear();
        Some(EjectionReason::FailureRate)
    }

    /// Ejects the host; shortly after an outage of all hosts. Returns `None` if it is ejected
    /// already. The caller has made sure that enough others are left.
    pub(in crate::upstream) fn eject(
        &self,
        spec: &EjectionSpec,
        reason: EjectionReason,
        is_after_outage: bool,
        now: Instant,
    ) -> Option<Ejection> {
        let time = self.change(now, |record| {
            let time = record.standing.eject(spec, is_after_outage, now)?;
            record.reason = Some(reason);
            Some(time)
        })?;
        if reason == EjectionReason::Stalled {
            self.leave.iter().for_each(Notify::notify_waiters);
        }
        self.counts.forgive();
        self.metrics.ejections.record(reason);
        Some(Ejection { reason, time })
    }

    /// Keeps the host in use although it fails. Returns true if it worked before.
    pub(in crate::upstream) fn fail(&self, reason: EjectionReason, now: Instant) -> bool {
        self.change(now, |record| {
            record.reason = Some(reason);
            let did_work = record.standing.phase.is_good();
            record.standing.fail();
            did_work
        })
    }

    /// Uses an ejected host, and one on probation, as the others, which are no better.
    pub(in crate::upstream) fn share_outage(&self, now: Instant) {
        if self.is_left_out() || self.is_on_probation.load(Relaxed) {
            self.change(now, |record| {
                let standing = &mut record.standing;
                if standing.phase.is_ejected() || standing.phase.is_probation() {
                    standing.fail();
                }
            });
        }
    }

    /// Notes a good answer, which ends a probation and a failing. That to a request that was sent
    /// although the host was ejected ends that, too.
    pub(in crate::upstream) fn record_answer(&self, was_left_out: bool) {
        if was_left_out || self.awaits_answer.load(Relaxed) {
            let now = Instant::now();
            self.change(now, |record| {
                if was_left_out {
                    record.standing.pardon(now);
                }
                record.standing.pass();
            });
        }
    }

    /// Notes a new connection, which ends an ejection for the lack of one.
    pub(super) fn record_connection(&self) {
        if self.is_left_out() {
            let now = Instant::now();
            self.change(now, |record| record.end_connect_failure(now));
        }
    }

    /// Returns true if the host is ejected, also while it drains.
    pub(in crate::upstream) fn is_ejected(&self) -> bool {
        self.record.lock().standing.phase.is_ejected()
    }

    /// Forgets all failures. Returns true if the host was ejected.
    pub(in crate::upstream) fn readmit(&self, now: Instant) -> bool {
        self.counts.forgive();
        let readmit =
            |record: &mut Record| std::mem::replace(&mut record.standing, Standing::new());
        self.change(now, readmit).phase.is_ejected()
    }

    /// Leaves the host out while its endpoint drains. The end of that ends an ejection, too: the
    /// operator has looked after the host.
    pub(in crate::upstream) fn set_draining(&self, is_draining: bool, now: Instant) {
        self.change(now, |record| {
            if record.is_draining && !is_draining {
                record.standing.pardon(now);
            }
            record.is_draining = is_draining;
            record.silence = Silence::new(self.counts.progress(), now);
        });
    }

    /// Returns true if a check is due, which begins: the caller must run it, and
    /// [`end`](Self::end_check) it.
    pub(super) fn begin_check(&self, every: Duration, now: Instant) -> bool {
        self.record.lock().checks.begin(every, now)
    }

    /// Notes that a check has passed or failed, or tells nothing (`None`). The host is left out while
    /// it is unhealthy, and comes back with a slow start. Returns true if that has changed.
    pub(super) fn end_check(&self, result: Option<bool>, spec: &HealthSpec, now: Instant) -> bool {
        if let Some(is_passed) = result {
            self.metrics.health_check(is_passed);
        }
        self.change(now, |record| {
            let had_failed = record.checks.has_failed();
            let is_changed = record.checks.end(result, spec);
            if result == Some(true) {
                record.end_connect_failure(now);
                // The check sees what the host was ejected for, and that it is over.
                if had_failed || record.reason == Some(EjectionReason::Stalled) {
                    record.standing.trust_check(now);
                }
            }
            if is_changed && record.checks.is_healthy() {
                record.standing.start_slowly(now);
            }
            is_changed
        })
    }

    /// Counts the host as unhealthy.
    pub(in crate::upstream) fn fail_checks(&self, now: Instant) {
        self.change(now, |record| record.checks.fail());
    }

    /// Counts the host as healthy, since it is checked no longer.
    pub(in crate::upstream) fn forget_checks(&self, now: Instant) {
        if self.record.lock().checks.forget() {
            self.change(now, |record| record.standing.start_slowly(now));
        }
    }

    /// Its progress since the last look at its silence, from the counts so far.
    pub(in crate::upstream) fn progress(&self, counts: Progress) -> Progress {
        self.record.lock().silence.progress(counts)
    }

    /// Returns true if the host is stalled, by its counts so far. `others` is the progress of the
    /// others since the last look.
    pub(in crate::upstream) fn is_stalled(
        &self,
        counts: Progress,
        others: Progress,
        now: Instant,
    ) -> bool {
        let is_waiting = self.counts.waiting() > 0;
        let mut record = self.record.lock();
        let is_on_probation = record.standing.phase.is_probation();
        if self.is_left_out() || (is_on_probation && !is_waiting) {
            record.silence = Silence::new(counts, now);
            return false;
        }
        record.silence.observe(counts, others, now);
        is_waiting
            && if is_on_probation {
                record.silence.is_stall_on_probation(now)
            } else {
                record.silence.is_stall(now)
            }
    }
}

impl Record {
    /// Returns true if the host is left out for another reason than its failures.
    fn is_left_out(&self) -> bool {
        self.is_draining || !self.checks.is_healthy()
    }

    /// Ends an ejection for the lack of a connection, since there was one.
    fn end_connect_failure(&mut self, now: Instant) {
        if self.reason == Some(EjectionReason::ConnectFailure) {
            self.standing.pardon(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::registry::Registry;
    use crate::upstream::HealthRequest;

    const SPEC: EjectionSpec = EjectionSpec {
        consecutive_failures: 5,
        failure_rate: None,
        base: Duration::from_secs(10),
        max: Duration::from_secs(300),
        max_ejected: 50,
    };

    /// A host that is ejected for this reason since a moment.
    fn ejected(reason: EjectionReason) -> (HostHealth, Instant) {
        let metrics = EndpointMetrics::new(&Registry::default(), "upstream", "endpoint");
        let (host, now) = (HostHealth::new(1, Arc::new(metrics)), Instant::now());
        assert!(host.eject(&SPEC, reason, false, now).is_some());
        (host, now)
    }

    #[test]
    fn a_host_may_be_back_also_once_its_ejection_has_ended() {
        let (host, now) = ejected(EjectionReason::ConnectFailure);
        assert!(host.is_left_out() && host.may_be_back());
        // The ejection may end between the two questions: another request found the other hosts down.
        host.share_outage(now);
        assert!(host.may_be_back());
        let (host, now) = ejected(EjectionReason::ConnectFailure);
        host.tick(Some(&SPEC), Duration::ZERO, now + SPEC.base);
        assert!(host.may_be_back());
    }

    #[test]
    fn a_host_that_keeps_requests_waiting_is_no_last_resort() {
        let (host, now) = ejected(EjectionReason::Stalled);
        assert!(!host.may_be_back());
        host.tick(Some(&SPEC), Duration::ZERO, now + SPEC.base);
        assert!(host.may_be_back());
        host.set_draining(true, now);
        assert!(!host.may_be_back(), "its endpoint drains");
    }

    #[test]
    fn an_ejection_ends_with_a_draining_and_a_check_that_sees_the_end_of_a_hang() {
        let (host, now) = ejected(EjectionReason::FailureRate);
        host.set_draining(true, now);
        host.set_draining(false, now);
        assert_eq!(host.state(now).0, HostState::Probation);
        let spec = HealthSpec {
            request: HealthRequest::Grpc {
                service: String::new(),
            },
            host: None,
            every: Duration::from_secs(1),
            timeout: Duration::from_secs(1),
            unhealthy_after: 3,
            healthy_after: 1,
        };
        let check = |host: &HostHealth, is_passed| {
            let later = now + 100 * spec.every;
            assert!(host.begin_check(spec.every, now) || host.begin_check(spec.every, later));
            host.end_check(Some(is_passed), &spec, now);
            host.is_left_out()
        };
        let (stalled, _) = ejected(EjectionReason::Stalled);
        assert!(!check(&stalled, true));
        // Its checks pass while it fails requests.
        let (failing, _) = ejected(EjectionReason::FailureRate);
        assert!(check(&failing, true));
        assert!(check(&failing, false));
        assert!(!check(&failing, true), "what failed is right again");
    }
}
