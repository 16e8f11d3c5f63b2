//! The header of the PROXY protocol, version 2, that names a client to an endpoint.
//!
//! HAProxy's `proxy-protocol.txt` specifies it.

use std::net::{IpAddr, SocketAddr};

use smallvec::SmallVec;

use crate::http::connection::ClientConnection;
use crate::net::peer_address::PeerAddress;
use crate::net::socket::StreamAddress;

const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";

/// A header; the longest has 52 bytes.
type Header = SmallVec<[u8; 52]>;

/// The header for requests of `client`. LOCAL without a client or its address, as for connections
/// of the proxy itself.
pub(super) fn header(client: Option<&ClientConnection>) -> Header {
    let mut header = Header::from_slice(SIGNATURE);
    match client.map(|client| (client.peer, &client.local)) {
        Some((PeerAddress::Tcp(source), StreamAddress::Tcp(destination))) => {
            write_addresses(source, *destination, &mut header);
        }
        _ => header.extend_from_slice(&[0x20, 0x00, 0, 0]),
    }
    header
}

/// Writes the addresses of TCP over IPv4, or of TCP over IPv6 if one is of IPv6.
fn write_addresses(source: SocketAddr, destination: SocketAddr, header: &mut Header) {
    let addresses = [source, destination].map(|address| address.ip().to_canonical());
    match addresses {
        [IpAddr::V4(source), IpAddr::V4(destination)] => {
            header.extend_from_slice(&[0x21, 0x11, 0, 12]);
            header.extend_from_slice(&source.octets());
            header.extend_from_slice(&destination.octets());
        }
        addresses => {
            header.extend_from_slice(&[0x21, 0x21, 0, 36]);
            for address in addresses {
                let address = match address {
                    IpAddr::V4(address) => address.to_ipv6_mapped(),
                    IpAddr::V6(address) => address,
                };
                header.extend_from_slice(&address.octets());
            }
        }
    }
    for port in [source.port(), destination.port()] {
        header.extend_from_slice(&port.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::http::connection::Scheme;
    use crate::net::drain::DrainWatcher;

    /// The header behind the signature.
    fn header_of(peer: PeerAddress, local: Option<&str>) -> Vec<u8> {
        let local = match local {
            Some(text) => StreamAddress::Tcp(text.parse().expect("an address")),
            None => StreamAddress::Unix(Path::new("/run/a.sock").into()),
        };
        let header = header(Some(&ClientConnection {
            id: 0,
            peer,
            local,
            asked_port: None,
            scheme: Scheme::Http,
            tls_version: None,
            server_name: None,
            worker: 0,
            informational: Default::default(),
            drain: DrainWatcher::default(),
        }));
        header
            .strip_prefix(SIGNATURE)
            .expect("it begins so")
            .to_vec()
    }

    fn tcp(text: &str) -> PeerAddress {
        PeerAddress::Tcp(text.parse().expect("an address"))
    }

    #[test]
    fn addresses_of_both_families_are_written() {
        let v4 = [
            &[0x21, 0x11, 0, 12, 192, 0, 2, 1, 10, 0, 0, 1][..],
            &[1, 2, 3, 4],
        ]
        .concat();
        assert_eq!(header_of(tcp("192.0.2.1:258"), Some("10.0.0.1:772")), v4);
        let mapped = Some("[::ffff:10.0.0.1]:772");
        assert_eq!(header_of(tcp("192.0.2.1:258"), mapped), v4);

        let mixed = header_of(tcp("[2001:db8::1]:258"), Some("10.0.0.1:772"));
        assert_eq!((mixed.len(), &mixed[..4]), (40, &[0x21, 0x21, 0, 36][..]));
        assert_eq!(mixed[4..8], [0x20, 0x01, 0x0d, 0xb8]);
        assert_eq!(mixed[30..], [0xff, 0xff, 10, 0, 0, 1, 1, 2, 3, 4]);
    }

    #[test]
    fn clients_without_an_address_are_local() {
        const LOCAL: [u8; 4] = [0x20, 0, 0, 0];
        assert_eq!(header_of(PeerAddress::Unix, None), LOCAL);
        assert_eq!(header_of(tcp("192.0.2.1:258"), None), LOCAL);
        assert_eq!(header(None)[12..], LOCAL);
    }
}
