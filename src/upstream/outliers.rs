//! Outlier detection: ejects the hosts of an upstream that fail, as long as others work, and lets
//! them return. If none works, all are used.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::host::{Ejection, Host, HostEvidence};
use super::host_set::WeightedHost;
use super::spec::{Balance, ClusterSpec, EjectionSpec};
use super::stall::Progress;
use crate::telemetry::metrics::EjectionReason;

/// The failures in a row after which a host fails, where none is ejected.
const FAILURES: u32 = 5;

/// The outlier detection of an upstream.
#[derive(Debug)]
pub(super) struct OutlierDetection {
    /// `None` if no host is ejected.
    ejection: Option<EjectionSpec>,
    /// Failures in a row after which a host fails.
    most: u32,
    slow_start: Duration,
    /// Requests are shared evenly: only then tells the silence of a host that it is stalled.
    finds_stalls: bool,
    /// The last instant at which no host worked. Locked while hosts are counted and one is ejected.
    outage: Mutex<Option<Instant>>,
}

impl OutlierDetection {
    /// The outlier detection of an upstream, which goes on from that before a reload.
    pub(super) fn new(spec: &ClusterSpec, previous: Option<&Self>) -> Self {
        OutlierDetection {
            ejection: spec.ejection,
            most: spec
                .ejection
                .map_or(FAILURES, |one| one.consecutive_failures),
            slow_start: spec.slow_start,
            finds_stalls: spec.balance != Balance::Hash,
            outage: Mutex::new(previous.and_then(|previous| *previous.outage.lock())),
        }
    }

    /// Judges a host by an attempt that was counted, and that began while the host was left out or
    /// not. Returns the ejection if one begins.
    pub(super) fn judge(
        &self,
        hosts: &[WeightedHost],
        host: &Host,
        was_left_out: bool,
        evidence: HostEvidence,
    ) -> Option<Ejection> {
        if evidence == HostEvidence::Good {
            host.health.record_answer(was_left_out);
            return None;
        }
        let reason = host.health.reason_to_eject(self.most, evidence)?;
        self.eject(hosts, host, reason, Instant::now())
    }

    /// Ejects a host if others work, and not too many are ejected. Else it is used although it
    /// fails; and so are all, if none works.
    fn eject(
        &self,
        hosts: &[WeightedHost],
        host: &Host,
        reason: EjectionReason,
        now: Instant,
    ) -> Option<Ejection> {
        let mut outage = self.outage.lock();
        if host.health.is_left_out() {
            return None;
        }
        let mut others = hosts.iter().filter(|one| !std::ptr::eq(&*one.host, host));
        if !others.any(|one| one.host.health.works()) {
            *outage = Some(now);
            if host.health.fail(reason, now) {
                host.report_outage(reason);
            }
            hosts
                .iter()
                .for_each(|one| one.host.health.share_outage(now));
            return None;
        }
        // A host that takes no connection can serve nobody, and no client can bring that about.
        let is_bounded = reason != EjectionReason::ConnectFailure;
        let is_left_out = |one: &&WeightedHost| one.host.health.is_left_out();
        let left_out = || hosts.iter().filter(is_left_out).count();
        let is_ejected =
            |spec: &&EjectionSpec| !is_bounded || left_out() < spec.most_ejected(hosts.len());
        let Some(spec) = self.ejection.as_ref().filter(is_ejected) else {
            host.health.fail(reason, now);
            return None;
        };
        let is_after_outage =
            outage.is_some_and(|last| now.saturating_duration_since(last) < spec.base);
        host.health.eject(spec, reason, is_after_outage, now)
    }

    /// Lets hosts return, and finds those that are stalled. Must be called several times a second.
    pub(super) fn tick(&self, hosts: &[WeightedHost], now: Instant) {
        for WeightedHost { host, .. } in hosts {
            let ejection = self.ejection.as_ref();
            host.health.tick(ejection, self.slow_start, now);
        }
        if self.may_find_stalls(hosts) {
            self.find_stalls(hosts, now);
        }
    }

    /// Returns true if one of these hosts may be found stalled. A request that is sent before a
    /// reload changes that stays where it is.
    pub(super) fn may_find_stalls(&self, hosts: &[WeightedHost]) -> bool {
        self.ejection.is_some() && self.finds_stalls && hosts.len() > 1
    }

    /// Finds hosts with too many failures in the last seconds. Must be called once a second.
    pub(super) fn sweep(&self, hosts: &[WeightedHost], now: Instant) {
        let percent = self.ejection.and_then(|spec| spec.failure_rate);
        for WeightedHost { host, .. } in hosts {
            if let Some(reason) = host.health.reason_of_late(self.most, percent)
                && let Some(ejection) = self.eject(hosts, host, reason, now)
            {
                host.report_ejection(ejection);
            }
        }
    }

    fn find_stalls(&self, hosts: &[WeightedHost], now: Instant) {
        let looks = hosts.iter().map(|one| {
            let counts = one.host.health.counts.progress();
            (counts, one.host.health.progress(counts))
        });
        let looks: Vec<_> = looks.collect();
        let parts = looks.iter().map(|(_, progress)| *progress);
        let all = parts.fold(Progress::default(), Progress::and);
        for (WeightedHost { host, .. }, (counts, progress)) in hosts.iter().zip(looks) {
            let others = all.without(progress);
            if host.health.is_stalled(counts, others, now)
                && let Some(ejection) = self.eject(hosts, host, EjectionReason::Stalled, now)
            {
                host.report_ejection(ejection);
            }
        }
    }
}

#[cfg(test)]
mod tests;
