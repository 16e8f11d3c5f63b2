//! How a store is, for people.

use std::fmt;

use super::fault::Fault;
use super::spec::Address;

/// What can be said of the store as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Not all servers have been reached yet, and none has been found wanting.
    Starting,
    /// All servers answer.
    Up,
    /// At least one server is of no use.
    Down {
        /// Which; none where it is not known which servers there are.
        server: Option<Address>,
        /// Why.
        fault: Fault,
    },
}

/// As a line of text: `up`, or what is wrong.
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
