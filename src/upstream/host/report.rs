//! The faults of a host, as outlier detection, metrics and the log learn of them.

use tokio::time::Instant;

use super::{Host, Readiness};
use crate::telemetry::metrics::{EjectionReason, EndpointFailure};
use crate::upstream::attempt::{Attempt, HostEvidence};
use crate::upstream::outliers::Ejection;
use crate::upstream::spec::EjectionSpec;
use crate::upstream::stall::Load;
use crate::upstream::{HostStatus, UpstreamError};

impl Host {
    /// Returns true if the balancer may pick the host while it has the choice.
    pub(in crate::upstream) fn is_available(&self) -> bool {
        self.availability.takes_turn(&self.counts)
    }

    /// How the host compares with the others of the upstream.
    pub(in crate::upstream) fn readiness(&self) -> Readiness {
        self.availability.readiness(&self.counts)
    }

    /// Returns true if the host is in use, and has answered well since it failed.
    pub(in crate::upstream) fn works(&self) -> bool {
        self.availability.works()
    }

    /// Returns true if the host is in use, and fails.
    pub(in crate::upstream) fn is_failing(&self) -> bool {
        self.availability.is_failing()
    }

    /// Returns true if the host gets no requests while there are others.
    pub(in crate::upstream) fn is_left_out(&self) -> bool {
        self.availability.is_left_out()
    }

    /// Leaves the host out while its endpoint drains.
    pub(in crate::upstream) fn set_draining(&self, is_draining: bool, now: Instant) {
        let availability = &self.availability;
        availability.set_draining(is_draining, &self.load(), &self.metrics, now);
    }

    /// The state of the host at `now`, for operators.
    pub(in crate::upstream) fn status(&self, now: Instant) -> HostStatus {
        HostStatus {
            address: self.connector.address().to_string(),
            condition: self.availability.condition(now),
            in_flight: self.state.in_flight(),
            failures: self.counts.failures_in_a_row(),
        }
    }

    /// Notes a new connection, which ends an ejection for the lack of one.
    pub(super) fn record_connection(&self) {
        if self.is_left_out() {
            let now = Instant::now();
            self.availability.end_connect_failure(&self.metrics, now);
        }
    }

    /// Its load.
    pub(in crate::upstream) fn load(&self) -> Load {
        self.counts.load()
    }

    /// Counts a response that the host did not finish.
    pub(in crate::upstream) fn record_broken_body(&self, reason: EndpointFailure) {
        self.metrics.failure(reason);
        self.counts.record_broken_body();
    }

    /// Counts a response that has ended well.
    pub(in crate::upstream) fn record_whole_body(&self) {
        self.counts.record_whole_body();
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
            HostEvidence::Failed if self.availability.is_on_probation() => {
                Some(EjectionReason::Probation)
            }
            HostEvidence::Failed if row >= most => Some(EjectionReason::ConsecutiveFailures),
            HostEvidence::Failed => None,
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
        let is_often = self.availability.fails_too_often(percent?, &self.counts);
        is_often.then_some(EjectionReason::FailureRate)
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
        let availability = &self.availability;
        let time = availability.eject(spec, reason, is_after_outage, now)?;
        self.counts.forgive();
        self.metrics.ejection(reason);
        Some(Ejection { reason, time })
    }

    /// Keeps the host in use although it fails. Returns true if it worked before.
    pub(in crate::upstream) fn fail(&self, reason: EjectionReason, now: Instant) -> bool {
        self.availability.fail(reason, &self.metrics, now)
    }

    /// Uses an ejected host, and one on probation, as the others, which are no better.
    pub(in crate::upstream) fn share_outage(&self, now: Instant) {
        self.availability.share_outage(&self.metrics, now);
    }

    /// Notes a good answer. A request that was sent although the host was ejected ends that.
    pub(in crate::upstream) fn record_answer(&self, was_left_out: bool) {
        if was_left_out {
            let now = Instant::now();
            self.availability.end_ejection(true, &self.metrics, now);
        }
        self.availability.record_answer(&self.metrics);
    }

    /// Forgets all failures of the host. Returns true if it was ejected.
    pub(in crate::upstream) fn readmit(&self, now: Instant) -> bool {
        self.counts.forgive();
        self.availability.readmit(&self.metrics, now)
    }

    /// Ends an ejection, since none is ejected any more.
    pub(in crate::upstream) fn forget_ejection(&self, now: Instant) {
        if self.is_left_out() && self.availability.is_ejected() {
            self.readmit(now);
        }
    }

    /// Ends an ejection that has lasted as long as it should.
    pub(in crate::upstream) fn end_ejection(&self, now: Instant) {
        self.availability.end_ejection(false, &self.metrics, now);
    }

    /// Counts a failed attempt, and logs when the host begins to fail, is ejected, or answers again.
    pub(in crate::upstream) fn report(&self, attempt: &Attempt, ejection: Option<Ejection>) {
        let is_told = match attempt.error() {
            None if attempt.evidence() == HostEvidence::Good => {
                self.report_answer();
                false
            }
            None => false,
            Some(error) => self.report_failure(error, ejection),
        };
        if let Some(ejection) = ejection.filter(|_| !is_told) {
            self.report_ejection(ejection);
        }
    }

    fn report_answer(&self) {
        if let Some(failures) = self.state.record_response() {
            let (upstream, endpoint) = (self.metrics.upstream(), &**self.metrics.endpoint());
            let address = self.connector.address();
            tracing::info!(upstream, endpoint, %address, failures, "the endpoint answers again");
        }
    }

    /// Returns true if a line tells of the failure.
    fn report_failure(&self, error: &UpstreamError, ejection: Option<Ejection>) -> bool {
        let Some(reason) = error.reason() else {
            return false;
        };
        self.metrics.failure(reason);
        let is_told = self.state.record_failure();
        if is_told {
            let (upstream, endpoint) = (self.metrics.upstream(), &**self.metrics.endpoint());
            let address = self.connector.address();
            let (reason, error) = (reason.as_str(), error as &dyn std::error::Error);
            let ejected = ejection.map(|ejection| tracing::field::debug(ejection.time));
            tracing::warn!(upstream, endpoint, %address, reason, error, ejected, "the endpoint fails");
        }
        is_told
    }

    /// Logs that no endpoint is left that works, unless a line said so lately.
    pub(in crate::upstream) fn report_outage(&self, reason: EjectionReason) {
        if self.state.record_ejection() {
            let (upstream, reason) = (self.metrics.upstream(), reason.as_str());
            tracing::warn!(upstream, reason, "no endpoint of the upstream works");
        }
    }

    /// Logs an ejection, unless lines said so lately.
    pub(in crate::upstream) fn report_ejection(&self, ejection: Ejection) {
        if self.state.record_ejection() {
            let (upstream, endpoint) = (self.metrics.upstream(), &**self.metrics.endpoint());
            let address = self.connector.address();
            let (reason, ejected) = (ejection.reason.as_str(), ejection.time);
            tracing::warn!(upstream, endpoint, %address, reason, ?ejected, "the endpoint is ejected");
        }
    }
}

#[cfg(test)]
impl Host {
    /// Counts an attempt with this evidence, as [`send`](Self::send) does.
    pub(in crate::upstream) fn count(&self, evidence: HostEvidence) {
        let has_head = evidence == HostEvidence::Good;
        self.counts.begin().end(evidence, has_head);
    }
}
