//! The state of a store, for people.

use std::fmt;

use super::fault::Fault;
use super::spec::Address;

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
