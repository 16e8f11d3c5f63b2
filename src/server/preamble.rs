//! The preamble of a connection: bytes ahead of TLS and HTTP that state the client's address.

use std::io;

use crate::net::listener::Accepted;
use crate::net::peer_address::PeerAddress;

/// Reads the preamble, and returns the client's address and port. No listener expects a preamble:
/// the client is the peer.
pub(super) async fn read(accepted: &Accepted) -> io::Result<PeerAddress> {
    Ok(accepted.peer)
}
