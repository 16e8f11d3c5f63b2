//! Addresses to listen on, and networks.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use ipnet::IpNet;

use derive_more::Display;

use super::{Failure, TextValue, failure, text_value};
use crate::net::socket::StreamAddress;

/// An IP address and a port; port 0 takes any free one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display)]
pub struct SocketAddress(SocketAddr);

// The default is that of `admin.address`.
text_value!(SocketAddress: SocketAddr = "127.0.0.1:9980");

impl TextValue for SocketAddress {
    const EXPECTED: &'static str = "an IP address with a port, as in `0.0.0.0:8080` or `[::]:8080`";
    const PATTERN: &'static str = "[0-9.]+:[0-9]+|\\[[0-9A-Fa-f:.]+\\]:[0-9]+";

    fn read(text: &str) -> Result<Self, Failure> {
        text.parse().map(Self).map_err(|_| listen_help(text).into())
    }
}

fn listen_help(text: &str) -> String {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let port = text.strip_prefix(':').unwrap_or(text);
    if digits(port) {
        return format!(
            "on all addresses: `0.0.0.0:{port}`; on this machine only: `127.0.0.1:{port}`"
        );
    }
    match text.parse() {
        Ok(IpAddr::V4(ip)) => format!("it needs a port: `{ip}:8080`"),
        Ok(IpAddr::V6(ip)) => format!("it needs brackets and a port: `[{ip}]:8080`"),
        Err(_) if text.starts_with("localhost:") => {
            text.replacen("localhost", "it needs an IP address: `127.0.0.1", 1) + "`"
        }
        Err(_) => "write an IP address and a port, as in `0.0.0.0:8080` or `[::]:8080`".to_owned(),
    }
}

text_value!(StreamAddress = "127.0.0.1:0");

/// The longest path of a Unix socket, in bytes (unix(7)).
const MAX_SOCKET_PATH: usize = 107;

impl TextValue for StreamAddress {
    const NAME: &'static str = "ListenAddress";
    const EXPECTED: &'static str =
        "an IP address with a port, as in `0.0.0.0:8080`, or `unix:/run/sluicegate.sock`";
    const PATTERN: &'static str = "[0-9.]+:[0-9]+|\\[[0-9A-Fa-f:.]+\\]:[0-9]+|unix:/.+";

    fn read(text: &str) -> Result<Self, Failure> {
        match text.strip_prefix("unix:") {
            Some(path) => read_socket_path(path).map(Self::Unix),
            None if text.starts_with('/') => {
                Err(format!("for a Unix socket write `unix:{text}`").into())
            }
            None => SocketAddress::read(text).map(|address| address.0.into()),
        }
    }
}

/// The path of a Unix socket, after `unix:`.
pub(super) fn read_socket_path(path: &str) -> Result<Arc<Path>, Failure> {
    let is_file = path.starts_with('/') && !path.ends_with('/') && !path.contains('\0');
    if is_file && path.len() <= MAX_SOCKET_PATH {
        return Ok(Path::new(path).into());
    }
    let help = format!(
        "write the whole path, at most {MAX_SOCKET_PATH} bytes, as in `unix:/run/sluicegate.sock`"
    );
    Err(failure("isn't the path of a socket", help))
}

/// A network, or a single address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Display)]
pub struct Cidr(IpNet);

// The host bits of the network are zero.
text_value!(Cidr: IpNet);

impl TextValue for Cidr {
    const EXPECTED: &'static str = "a network or an address, as in `10.0.0.0/8` or `2001:db8::1`";
    const PATTERN: &'static str = "[0-9A-Fa-f.:]+(/[0-9]+)?";

    fn read(text: &str) -> Result<Self, Failure> {
        if let Ok(address) = text.parse::<IpAddr>() {
            return Ok(Self(address.to_canonical().into()));
        }
        let help = "write `10.0.0.0/8`, `2001:db8::/32` or a single address";
        let network: IpNet = text.parse().map_err(|_| help)?;
        let address = text.split('/').next().unwrap_or_default();
        if address.parse::<IpAddr>().is_err() {
            let help = "some programs read a leading zero as octal";
            return Err(format!("{help}: write `{network}` for that network").into());
        }
        let (is_network, network) = (network.trunc() == network, unmapped(network));
        let (whole, address) = (network.trunc(), network.addr());
        is_network.then_some(Self(network)).ok_or_else(|| {
            let help = format!("the network is `{whole}`, the single address `{address}`");
            failure("has bits set beyond its prefix", help)
        })
    }
}

/// Returns the IPv4 network of one in IPv4-mapped form (RFC 4291 section 2.5.5.2), because mapped
/// clients count as IPv4. Larger IPv6 networks stay as they are, and have no IPv4 client.
fn unmapped(network: IpNet) -> IpNet {
    let address = network.addr().to_canonical();
    let length = network.prefix_len().checked_sub(96);
    let mapped = length.filter(|_| address.is_ipv4() && network.addr().is_ipv6());
    let unmapped = mapped.and_then(|length| IpNet::new(address, length).ok());
    unmapped.unwrap_or(network)
}

/// A trusted proxy: a network, or all peers over Unix sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Display)]
pub enum TrustedProxy {
    /// Peers in this network.
    Network(Cidr),
    /// Peers over Unix sockets.
    #[display("unix")]
    Unix,
}

text_value!(TrustedProxy = "0.0.0.0/0");

impl TextValue for TrustedProxy {
    const EXPECTED: &'static str =
        "a network or an address, as in `10.0.0.0/8`, or `unix` for peers over Unix sockets";
    const PATTERN: &'static str = "unix|[0-9A-Fa-f.:]+(/[0-9]+)?";

    fn read(text: &str) -> Result<Self, Failure> {
        match text {
            "unix" => Ok(Self::Unix),
            _ => Cidr::read(text).map(Self::Network),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listens_on_addresses_with_ports() {
        for text in ["0.0.0.0:8080", "[::1]:0"] {
            assert_eq!(
                SocketAddress::parse(text).map(|address| address.to_string()),
                Ok(text.to_owned())
            );
        }
        for (text, help) in [
            (
                "8080",
                "on all addresses: `0.0.0.0:8080`; on this machine only: `127.0.0.1:8080`",
            ),
            (
                ":80",
                "on all addresses: `0.0.0.0:80`; on this machine only: `127.0.0.1:80`",
            ),
            ("10.0.0.1", "it needs a port: `10.0.0.1:8080`"),
            ("::1", "it needs brackets and a port: `[::1]:8080`"),
            ("localhost:80", "it needs an IP address: `127.0.0.1:80`"),
        ] {
            assert_eq!(
                SocketAddress::parse(text).map_err(|error| (error.message, error.help)),
                Err((
                    format!("`{text}` isn't an IP address with a port"),
                    Some(help.to_owned())
                ))
            );
        }
    }

    #[test]
    fn listens_on_unix_sockets() {
        let longest = format!("unix:/{}", "x".repeat(MAX_SOCKET_PATH - 1));
        for text in ["unix:/run/s.sock", "0.0.0.0:8080", &longest] {
            let address = StreamAddress::parse(text).map(|address| address.to_string());
            assert_eq!(address, Ok(text.to_owned()));
        }
        let longer = format!("{longest}x");
        for text in ["unix:run/s.sock", "unix:", "unix:/run/", &longer] {
            assert!(StreamAddress::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn takes_networks_and_single_addresses() {
        assert_eq!(
            Cidr::parse("10.0.0.1").map(|cidr| cidr.to_string()),
            Ok("10.0.0.1/32".to_owned())
        );
        assert_eq!(
            Cidr::parse("2001:db8::/32").map(|cidr| cidr.to_string()),
            Ok("2001:db8::/32".to_owned())
        );
        for (mapped, network) in [
            ("::ffff:10.0.0.0/104", "10.0.0.0/8"),
            ("::ffff:a00:0/104", "10.0.0.0/8"),
            ("::ffff:0:0/96", "0.0.0.0/0"),
            ("::ffff:192.0.2.1/128", "192.0.2.1/32"),
            ("::ffff:192.0.2.1", "192.0.2.1/32"),
            ("::ffc0:0:0/90", "::ffc0:0:0/90"),
            ("::/0", "::/0"),
            ("::10.0.0.0/104", "::a00:0/104"),
        ] {
            let cidr = Cidr::parse(mapped).map(|cidr| cidr.to_string());
            assert_eq!(cidr, Ok(network.to_owned()), "{mapped}");
        }
        for octal in ["010.0.0.0/8", "10.00.0.0/8", "::ffff:010.0.0.0/104"] {
            let error = Cidr::parse(octal).expect_err("a leading zero");
            assert_eq!(
                error.message,
                format!("`{octal}` isn't a network or an address")
            );
        }
        for wrong in [
            "010.0.0.1",
            "10.0.0.0/33",
            "10.0.0.0/+8",
            "::ffff:10.0.0.0/129",
        ] {
            assert!(Cidr::parse(wrong).is_err(), "{wrong}");
        }
        for (text, address) in [
            ("::ffff:10.1.0.0/104", "10.1.0.0"),
            ("10.0.0.1/8", "10.0.0.1"),
        ] {
            let error = Cidr::parse(text).expect_err("bits beyond the prefix");
            let message = format!("`{text}` has bits set beyond its prefix");
            let help = format!("the network is `10.0.0.0/8`, the single address `{address}`");
            assert_eq!((error.message, error.help), (message, Some(help)));
        }
    }
}
