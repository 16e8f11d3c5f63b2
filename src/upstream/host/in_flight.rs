//! Requests in flight at a host, up to the bound that `connections.max` sets.

use std::ops::Deref;
use std::sync::Arc;

use super::Host;

/// A request in flight: its host counts it until this is dropped. If the host has a bound, this is
/// one of its slots.
#[derive(Debug)]
pub(in crate::upstream) struct InFlight(Arc<Host>);

impl InFlight {
    /// Counts a request to `host`.
    pub(in crate::upstream) fn begin(host: &Arc<Host>) -> Self {
        host.state.begin_request();
        InFlight(Arc::clone(host))
    }

    /// Counts a request to `host`, if fewer than `max` are in flight.
    pub(in crate::upstream) fn begin_below(host: &Arc<Host>, max: u32) -> Option<Self> {
        let begins = host.state.begin_request_below(max as usize);
        begins.then(|| InFlight(Arc::clone(host)))
    }
}

impl Deref for InFlight {
    type Target = Host;

    fn deref(&self) -> &Host {
        &self.0
    }
}

/// Gives the slot to a request that waits for one.
impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.state.end_request();
        self.0.pending.offer(&self.0);
    }
}

impl Host {
    /// Returns true if fewer than `max` requests are in flight.
    pub(in crate::upstream) fn has_slot(&self, max: u32) -> bool {
        self.state.in_flight() < max as usize
    }
}
