//! What a program hears from a client, for its metrics and its log.

use std::fmt::Debug;
use std::time::Duration;

use super::fault::FaultKind;
use super::spec::Target;
use super::state::State;

/// An operation, by its purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// The decision of a request, which waits for it.
    Call,
    /// Follow-ups of a request: settled costs, and units that are given back.
    FollowUp,
    /// Calls that no request needs: rounds between machines, renewals of leases, changes by operators.
    Background,
    /// The question whether a server that is out of use is back.
    Probe,
}

impl Operation {
    /// Stable words for a metric's label, by number.
    pub const LABELS: [&str; 4] = ["call", "follow_up", "background", "probe"];
}

/// Hears what a client does. Calls wait meanwhile. All methods do nothing by default, as `()` does.
pub trait Observer: Debug + Send + Sync {
    /// An operation was sent, and answered or failed after this time. A probe's time is none.
    fn sent(&self, _op: Operation, _fault: Option<FaultKind>, _took: Duration) {}

    /// An operation was not sent.
    fn unsent(&self, _op: Operation) {}

    /// All servers are in use, or not. Said after every probe and fault.
    fn set_up(&self, _is_up: bool) {}

    /// The servers of the client are in another state, which is worth a line of a log: each change
    /// comes once, and a server that flaps brings few.
    fn changed(&self, _servers: &Target, _state: &State) {}

    /// A call got no place, the first for a minute.
    fn crowded(&self, _servers: &Target) {}
}

impl Observer for () {}
