//! The preamble of a connection: bytes ahead of TLS and HTTP that name the client.

use std::io::{self, ErrorKind};

use tokio::io::{AsyncRead, AsyncReadExt};

use crate::net::peer_address::PeerAddress;

mod proxy_protocol;

/// Reads a header of the PROXY protocol, and no byte behind it. Returns the client that it names,
/// with the port that the client connected to; `peer` if it names none.
///
/// # Errors
/// [`ErrorKind::InvalidData`] for bytes that are no header, also if they end within one.
pub(crate) async fn read(
    socket: &mut (impl AsyncRead + Unpin),
    peer: PeerAddress,
) -> io::Result<(PeerAddress, Option<u16>)> {
    let invalid = |error| io::Error::new(ErrorKind::InvalidData, error);
    let mut header = Vec::new();
    loop {
        let missing = proxy_protocol::missing(&header).map_err(invalid)?;
        if missing == 0 {
            break;
        }
        let read = socket.take(missing as u64).read_buf(&mut header).await?;
        if read == 0 {
            return Err(if header.is_empty() {
                ErrorKind::UnexpectedEof.into()
            } else {
                io::Error::new(ErrorKind::InvalidData, "the preamble is incomplete")
            });
        }
    }
    let client = proxy_protocol::parse(&header).map_err(invalid)?;
    Ok(client.unwrap_or((peer, None)))
}
