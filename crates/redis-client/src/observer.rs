//! What a program hears from a client, for its metrics and its log.

use std::fmt::{self, Debug};
use std::time::Duration;

use super::fault::{Fault, FaultKind};
use super::spec::{Address, Target};

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

/// The state of the store as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Some servers have not been reached yet, and none has failed.
    Starting,
    /// All servers answer.
    Up,
    /// At least one server is out of use.
    Down {
        /// The server; `None` if discovery fails.
        server: Option<Address>,
        /// The reason.
        fault: Fault,
    },
}

/// A line of text: `up`, or the fault.
impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Starting => f.write_str("starting"),
            Self::Up => f.write_str("up"),
            Self::Down {
                server: Some(server),
                fault,
            } => write!(f, "down: {server} {fault}"),
            Self::Down { fault, .. } => write!(f, "down: it {fault}"),
        }
    }
}
