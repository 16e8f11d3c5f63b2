//! The other end of an accepted connection.

use std::net::{IpAddr, SocketAddr};

use derive_more::Display;

/// The address of a peer, or of the client that it names in a preamble.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display)]
pub enum PeerAddress {
    /// Over TCP. An IPv4 address mapped into IPv6 is converted to IPv4.
    Tcp(SocketAddr),
    /// Over a Unix socket, whose peers have no address.
    #[display("unix:")]
    Unix,
}

impl PeerAddress {
    /// Returns the IP address, if the peer has one.
    pub fn ip(self) -> Option<IpAddr> {
        match self {
            Self::Tcp(address) => Some(address.ip()),
            Self::Unix => None,
        }
    }
}

impl From<SocketAddr> for PeerAddress {
    fn from(address: SocketAddr) -> Self {
        Self::Tcp(SocketAddr::new(address.ip().to_canonical(), address.port()))
    }
}

/// A peer whose port is not known.
impl From<IpAddr> for PeerAddress {
    fn from(address: IpAddr) -> Self {
        SocketAddr::new(address, 0).into()
    }
}
