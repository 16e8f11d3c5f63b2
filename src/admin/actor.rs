//! Callers of the API: their role, and the token that shows it.

use std::fmt;

use crate::net::peer_address::PeerAddress;

/// The role of a token and its callers. Each includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum TokenRole {
    /// Callers may read.
    Read,
    /// Callers may also change what runs.
    Write,
}

/// An authenticated caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Actor {
    pub(super) role: TokenRole,
    /// The place of its token in the configuration, from 1.
    pub(super) number: usize,
    /// The other end of its connection.
    pub(super) peer: PeerAddress,
}

impl Actor {
    /// The role and the place of its token, which tell tokens apart.
    pub(super) fn token(&self) -> (TokenRole, usize) {
        (self.role, self.number)
    }
}

/// The token's role and place: `write#1`.
impl fmt::Display for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{}", <&str>::from(self.role), self.number)
    }
}
