//! The addresses of a name, as far as a server may have them.

use std::net::{IpAddr, SocketAddr};

/// The most addresses of a name that are used.
const MAX_ADDRESSES: usize = 64;

/// The addresses that a resolver found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ResolvedAddresses {
    /// At most 64, in ascending order: machines with the same answer use the same.
    pub usable: Vec<SocketAddr>,
    /// Addresses that no server has: unspecified, multicast and broadcast.
    pub unusable: Vec<IpAddr>,
    /// The number of further usable addresses.
    pub omitted: usize,
}

impl ResolvedAddresses {
    /// The address of an endpoint that is configured by it.
    pub(super) fn literal(address: SocketAddr) -> Self {
        ResolvedAddresses {
            usable: vec![address],
            ..ResolvedAddresses::default()
        }
    }

    /// The answer with these addresses in any order. IPv4 addresses that are mapped into IPv6 are
    /// converted.
    pub(super) fn of(found: &[SocketAddr]) -> Self {
        let (mut usable, unusable): (Vec<_>, Vec<_>) =
            found.iter().copied().map(canonical).partition(is_usable);
        usable.sort_unstable();
        usable.dedup();
        let omitted = usable.len().saturating_sub(MAX_ADDRESSES);
        usable.truncate(MAX_ADDRESSES);
        let mut unusable: Vec<_> = unusable.iter().map(SocketAddr::ip).collect();
        unusable.sort_unstable();
        unusable.dedup();
        unusable.truncate(MAX_ADDRESSES);
        ResolvedAddresses {
            usable,
            unusable,
            omitted,
        }
    }

    /// The usable addresses that `other` lacks.
    pub(super) fn beyond(&self, other: &Self) -> Vec<IpAddr> {
        let missing = |address: &&SocketAddr| !other.usable.contains(address);
        self.usable
            .iter()
            .filter(missing)
            .map(SocketAddr::ip)
            .collect()
    }
}

fn canonical(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        // Keeps the scope of link-local addresses.
        IpAddr::V6(_) => address,
        ip => SocketAddr::new(ip, address.port()),
    }
}

fn is_usable(address: &SocketAddr) -> bool {
    let is_broadcast = address.ip() == IpAddr::from([255; 4]);
    !is_broadcast && !address.ip().is_unspecified() && !address.ip().is_multicast()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(addresses: &[&str]) -> ResolvedAddresses {
        let parse = |text: &&str| SocketAddr::new(text.parse().expect("an address"), 80);
        ResolvedAddresses::of(&addresses.iter().map(parse).collect::<Vec<_>>())
    }

    fn shown(addresses: impl IntoIterator<Item = IpAddr>) -> Vec<String> {
        addresses.into_iter().map(|ip| ip.to_string()).collect()
    }

    #[test]
    fn addresses_of_no_server_are_left_out() {
        let found = answer(&[
            "10.0.0.2",
            "0.0.0.0",
            "::",
            "224.0.0.1",
            "ff02::1",
            "255.255.255.255",
            "10.0.0.1",
            "::ffff:10.0.0.2",
            "::ffff:0.0.0.0",
            "2001:db8::1",
        ]);
        let usable = found.usable.iter().map(SocketAddr::ip);
        assert_eq!(shown(usable), ["10.0.0.1", "10.0.0.2", "2001:db8::1"]);
        let unusable = ["0.0.0.0", "224.0.0.1", "255.255.255.255", "::", "ff02::1"];
        assert_eq!(shown(found.unusable), unusable);
    }

    #[test]
    fn machines_with_one_huge_answer_use_the_same_addresses() {
        let all: Vec<_> = (0..=255).map(|last| format!("10.0.0.{last}")).collect();
        let all: Vec<_> = all.iter().map(String::as_str).collect();
        let reversed: Vec<_> = all.iter().rev().copied().collect();
        let found = answer(&all);
        assert_eq!((found.usable.len(), found.omitted), (64, 192));
        assert_eq!(found, answer(&reversed));
    }
}
