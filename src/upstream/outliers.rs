//! Outlier detection: ejects the hosts of an upstream that fail, as long as others work, and lets
//! them return. If none works, all are used.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::attempt::HostEvidence;
use super::host::Host;
use super::host_set::WeightedHost;
use super::spec::EjectionSpec;
use super::stall::{Load, Progress};
use super::{Balance, ClusterSpec};
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

/// An ejection that has begun.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ejection {
    pub reason: EjectionReason,
    /// Its length.
    pub time: Duration,
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
            host.record_answer(was_left_out);
            return None;
        }
        let reason = host.reason_to_eject(self.most, evidence)?;
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
        if host.is_left_out() {
            return None;
        }
        let mut others = hosts.iter().filter(|one| !std::ptr::eq(&*one.host, host));
        if !others.any(|one| one.host.works()) {
            *outage = Some(now);
            if host.fail(reason, now) {
                host.report_outage(reason);
            }
            hosts.iter().for_each(|one| one.host.share_outage(now));
            return None;
        }
        // A host that takes no connection can serve nobody, and no client can bring that about.
        let is_bounded = reason != EjectionReason::ConnectFailure;
        let left_out = || hosts.iter().filter(|one| one.host.is_left_out()).count();
        let is_ejected =
            |spec: &&EjectionSpec| !is_bounded || left_out() < spec.most_ejected(hosts.len());
        let Some(spec) = self.ejection.as_ref().filter(is_ejected) else {
            host.fail(reason, now);
            return None;
        };
        let is_after_outage =
            outage.is_some_and(|last| now.saturating_duration_since(last) < spec.base);
        host.eject(spec, reason, is_after_outage, now)
    }

    /// Begins the slow start of hosts that are new beside others.
    pub(super) fn start_slowly(&self, host: &Host, now: Instant) {
        host.availability().start_slowly(self.slow_start, now);
    }

    /// Lets hosts return, and finds those that are stalled. Must be called several times a second.
    pub(super) fn tick(&self, hosts: &[WeightedHost], now: Instant) {
        for WeightedHost { host, .. } in hosts {
            match self.ejection {
                Some(_) => host.end_ejection(now),
                None => host.forget_ejection(now),
            }
            host.availability().update_share(self.slow_start, now);
        }
        if self.ejection.is_some() && self.finds_stalls && hosts.len() > 1 {
            self.find_stalls(hosts, now);
        }
    }

    /// Finds hosts with too many failures in the last seconds. Must be called once a second.
    pub(super) fn sweep(&self, hosts: &[WeightedHost], now: Instant) {
        let percent = self.ejection.and_then(|spec| spec.failure_rate);
        for WeightedHost { host, .. } in hosts {
            if let Some(reason) = host.reason_of_late(self.most, percent)
                && let Some(ejection) = self.eject(hosts, host, reason, now)
            {
                host.report_ejection(ejection);
            }
        }
    }

    fn find_stalls(&self, hosts: &[WeightedHost], now: Instant) {
        let loads = hosts.iter().map(|one| {
            let load = one.host.load();
            (load, one.host.availability().progress(&load))
        });
        let loads: Vec<(Load, Progress)> = loads.collect();
        let parts = loads.iter().map(|(_, progress)| *progress);
        let all = parts.fold(Progress::default(), Progress::and);
        for (one, (load, progress)) in hosts.iter().zip(&loads) {
            let others = all.without(*progress);
            if one.host.availability().is_stalled(load, others, now)
                && let Some(ejection) = self.eject(hosts, &one.host, EjectionReason::Stalled, now)
            {
                one.host.report_ejection(ejection);
            }
        }
    }
}

#[cfg(test)]
mod tests;
