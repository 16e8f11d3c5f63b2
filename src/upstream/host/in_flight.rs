//! Requests in flight at a host.

use std::ops::Deref;
use std::sync::Arc;

use super::Host;

/// A request in flight: its host counts it until this is dropped.
#[derive(Debug)]
pub(in crate::upstream) struct InFlight(Arc<Host>);

impl InFlight {
    /// Counts a request to `host`.
    pub(in crate::upstream) fn begin(host: &Arc<Host>) -> Self {
        host.state.begin_request();
        InFlight(Arc::clone(host))
    }
}

impl Deref for InFlight {
    type Target = Host;

    fn deref(&self) -> &Host {
        &self.0
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.state.end_request();
    }
}
