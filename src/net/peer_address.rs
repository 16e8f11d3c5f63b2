//! The other end of an accepted connection.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

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

/// Returns the IPv4 address of a client that comes through NAT64 or SIIT under the well-known prefix
/// `64:ff9b::/96`. Addresses that translators must not embed there (RFC 6052 section 3.1) give `None`.
pub fn translated_ipv4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let [0x64, 0xff9b, 0, 0, 0, 0, _, _] = address.segments() else {
        return None;
    };
    let embedded = Ipv4Addr::from_bits(address.to_bits() as u32);
    let [first, second, ..] = embedded.octets();
    let is_shared = first == 100 && second & 0xc0 == 64;
    let is_local = embedded.is_private() || embedded.is_loopback() || embedded.is_link_local();
    (first != 0 && !is_shared && !is_local).then_some(embedded)
}

/// A peer whose port is not known.
impl From<IpAddr> for PeerAddress {
    fn from(address: IpAddr) -> Self {
        SocketAddr::new(address, 0).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_well_known_prefix_embeds_global_addresses() {
        for (text, embedded) in [
            ("64:ff9b::203.0.113.5", Some([203, 0, 113, 5])),
            ("64:ff9b::100.128.0.1", Some([100, 128, 0, 1])),
            ("64:ff9b::10.0.0.1", None),
            ("64:ff9b::127.0.0.1", None),
            ("64:ff9b::169.254.1.1", None),
            ("64:ff9b::100.64.0.1", None),
            ("64:ff9b::", None),
            ("64:ff9b:1::203.0.113.5", None),
            ("64:ff9b::1:203.0.113.5", None),
            ("2001:db8::203.0.113.5", None),
        ] {
            let address = text.parse().expect("an address");
            assert_eq!(
                translated_ipv4(address),
                embedded.map(Ipv4Addr::from),
                "{text}"
            );
        }
    }
}
