//! Outlier detection: ejects the hosts of an upstream that fail, as long as enough others are left,
//! and lets them return.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::attempt::{Attempt, HostEvidence};
use super::ejection::EjectionSpec;
use super::host::Host;
use super::host_set::WeightedHost;
use super::stall::{Load, Progress};
use super::{Balance, ClusterSpec};
use crate::telemetry::metrics::EjectionReason;

/// The outlier detection of an upstream.
#[derive(Debug)]
pub(super) struct OutlierDetection {
    /// `None` if no host is ejected.
    ejection: Option<EjectionSpec>,
    slow_start: Duration,
    /// Requests are shared evenly: only then tells the silence of a host that it is stalled.
    finds_stalls: bool,
    /// Held while hosts are counted and one is ejected.
    turn: Mutex<()>,
}

/// An ejection that has begun.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ejection {
    pub reason: EjectionReason,
    /// Its length.
    pub time: Duration,
}

impl OutlierDetection {
    pub(super) fn new(spec: &ClusterSpec) -> Self {
        OutlierDetection {
            ejection: spec.ejection,
            slow_start: spec.slow_start,
            finds_stalls: spec.balance != Balance::Hash,
            turn: Mutex::default(),
        }
    }

    /// Judges a host by an attempt that was counted. Returns the ejection if one begins.
    pub(super) fn judge(
        &self,
        hosts: &[WeightedHost],
        host: &Host,
        attempt: &Attempt,
    ) -> Option<Ejection> {
        let spec = self.ejection.as_ref()?;
        let evidence = attempt.evidence();
        if evidence == HostEvidence::Good {
            host.availability().record_answer();
            return None;
        }
        let reason = host.reason_to_eject(spec, evidence)?;
        self.eject(spec, hosts, host, reason, Instant::now())
    }

    /// Ejects a host if enough others are left.
    fn eject(
        &self,
        spec: &EjectionSpec,
        hosts: &[WeightedHost],
        host: &Host,
        reason: EjectionReason,
        now: Instant,
    ) -> Option<Ejection> {
        let _turn = self.turn.lock();
        let left_out = hosts.iter().filter(|one| one.host.is_left_out());
        let left_out = left_out.count();
        if host.is_left_out() {
            return None;
        }
        if left_out + 1 >= hosts.len() {
            // The last one takes no connection: the others are no worse.
            if reason == EjectionReason::ConnectFailure {
                hosts
                    .iter()
                    .for_each(|one| one.host.end_ejection(true, now));
            }
            return None;
        }
        // A host that takes no connection can serve nobody, and no client can bring that about.
        let is_bounded = reason != EjectionReason::ConnectFailure;
        if is_bounded && left_out >= spec.most_ejected(hosts.len()) {
            return None;
        }
        host.eject(spec, reason, now)
    }

    /// Begins the slow start of hosts that are new beside others.
    pub(super) fn start_slowly(&self, host: &Host, now: Instant) {
        host.availability().start_slowly(self.slow_start, now);
    }

    /// Lets hosts return, and finds those that are stalled. Must be called several times a second.
    pub(super) fn tick(&self, hosts: &[WeightedHost], now: Instant) {
        for one in hosts {
            one.host.end_ejection(false, now);
            one.host.availability().update_share(self.slow_start, now);
        }
        let Some(spec) = &self.ejection else {
            return;
        };
        if self.finds_stalls && hosts.len() > 1 {
            self.find_stalls(spec, hosts, now);
        }
    }

    /// Finds hosts with too many failures in the last seconds. Must be called once a second.
    pub(super) fn sweep(&self, hosts: &[WeightedHost], now: Instant) {
        let Some(spec) = &self.ejection else {
            return;
        };
        for WeightedHost { host, .. } in hosts {
            if let Some(reason) = host.reason_of_late(spec)
                && let Some(ejection) = self.eject(spec, hosts, host, reason, now)
            {
                host.report_ejection(ejection);
            }
        }
    }

    fn find_stalls(&self, spec: &EjectionSpec, hosts: &[WeightedHost], now: Instant) {
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
                && let Some(ejection) =
                    self.eject(spec, hosts, &one.host, EjectionReason::Stalled, now)
            {
                one.host.report_ejection(ejection);
            }
        }
    }
}
