//! Slots: with `connections.max`, a request needs one at a host before it is sent there, or waits
//! until one is free. Hosts with a free slot come first. Without the bound each request has one.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::Cluster;
use crate::telemetry::metrics::{PendingMetrics, PendingRefusal};
use crate::upstream::attempt::OutboundRequest;
use crate::upstream::error::{UpstreamError, UpstreamErrorKind};
use crate::upstream::host::InFlight;
use crate::upstream::host_set::{HostSet, Tried};
use crate::upstream::pending::{Slot, SlotClaim, UNBOUNDED};
use crate::upstream::spec::ConnectionBound;

/// The bound of the requests in flight at each host, of a cluster that has one.
#[derive(Debug)]
pub(in crate::upstream) struct Bound {
    pub spec: ConnectionBound,
    pub metrics: PendingMetrics,
    /// The upstream's name.
    pub upstream: Arc<str>,
}

impl Cluster {
    /// The most requests in flight at each host.
    pub(super) fn max_in_flight(&self) -> u32 {
        match &self.bound {
            Some(_) => self.pending.max(),
            None => UNBOUNDED,
        }
    }

    /// Takes a slot at the host that the balancer has picked, or else at another one that may take
    /// the request.
    ///
    /// # Errors
    /// The bound, if no host has a free slot.
    pub(super) fn take_slot(
        &self,
        set: &HostSet,
        picked: usize,
        tried: &[usize],
    ) -> Result<Slot, &Bound> {
        let hosts = &set.hosts;
        let Some(bound) = &self.bound else {
            return Ok((picked, InFlight::begin(&hosts[picked].host)));
        };
        let max = self.pending.max();
        // The balancer picks a host that is left out only if there is no other.
        let is_pick = |number: usize| number == picked && hosts[number].host.health.is_left_out();
        let from_picked = (picked..hosts.len()).chain(0..picked);
        let mut numbers =
            from_picked.filter(|&number| is_pick(number) || set.may_take(number, tried));
        let slot = numbers.find_map(|number| {
            let host = &hosts[number].host;
            // Requests that wait come first.
            self.pending.offer(host);
            Some((number, InFlight::begin_below(host, max)?))
        });
        slot.ok_or(bound)
    }

    /// Waits for a slot at a host of `set`, or of the one that replaces it meanwhile.
    ///
    /// # Errors
    /// When too many wait, or there is none in time.
    pub(super) async fn wait_for_slot(
        &self,
        bound: &Bound,
        set: &mut Arc<HostSet>,
        tried: &mut Tried,
        outbound: &OutboundRequest<'_>,
    ) -> Result<Slot, UpstreamError> {
        let max_wait = bound.spec.max_wait;
        let hosts = tried.iter().map(|&number| &set.hosts[number].host);
        let claim = SlotClaim {
            hosts: Arc::clone(&self.hosts),
            tried: hosts.map(Arc::clone).collect(),
        };
        let wait = Wait::begin(outbound.pending);
        let Some(mut pending) = self.pending.enter(claim, bound.spec.max_pending) else {
            let error = UpstreamErrorKind::PendingFull(bound.spec.max_pending);
            return Err(bound.refuse(PendingRefusal::Full, error));
        };
        // A slot may have become free before the request was in the queue.
        self.offer_slots();
        let end = wait.since + max_wait.saturating_sub(wait.before());
        let deadline = outbound.deadline.filter(|(at, _)| *at <= end);
        let until = deadline.map_or(end, |(at, _)| at);
        let _waiting = bound.metrics.pending.hold(1);
        let Ok(assignment) = timeout_at(until, pending.assigned()).await else {
            let (reason, error) = match deadline {
                Some((_, time)) => (PendingRefusal::Deadline, UpstreamErrorKind::Deadline(time)),
                None => (
                    PendingRefusal::Timeout,
                    UpstreamErrorKind::PendingTimeout(max_wait),
                ),
            };
            return Err(bound.refuse(reason, error));
        };
        bound.metrics.wait.record(wait.since.elapsed());
        let before = std::mem::replace(set, assignment.set);
        let renumbered = tried.iter().map(|&number| &before.hosts[number].host);
        *tried = renumbered.filter_map(|host| set.number_of(host)).collect();
        Ok(assignment.slot)
    }

    /// Gives free slots to the requests that wait for them.
    pub(super) fn offer_slots(&self) {
        if self.pending.is_empty() {
            return;
        }
        for one in &self.hosts.load().hosts {
            self.pending.offer(&one.host);
        }
    }
}

impl Bound {
    /// Counts a request that gets no slot.
    fn refuse(&self, reason: PendingRefusal, error: UpstreamErrorKind) -> UpstreamError {
        self.metrics.refused.record(reason);
        UpstreamError::new(&self.upstream, error)
    }
}

/// A wait of a request. Its end, whatever that is, adds it to the waits before.
struct Wait<'a> {
    since: Instant,
    total: &'a Cell<Option<Duration>>,
}

impl<'a> Wait<'a> {
    fn begin(total: &'a Cell<Option<Duration>>) -> Self {
        Wait {
            since: Instant::now(),
            total,
        }
    }

    /// The time of the waits before this.
    fn before(&self) -> Duration {
        self.total.get().unwrap_or_default()
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        self.total.set(Some(self.before() + self.since.elapsed()));
    }
}

#[cfg(test)]
mod tests;
