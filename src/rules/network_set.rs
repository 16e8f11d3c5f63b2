//! A set of networks. A look-up takes one search for each length of prefix, however many networks
//! there are.

use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;

use crate::net::peer_address::translated_ipv4;

/// Networks of both families. Copies share them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct NetworkSet {
    /// The lengths of prefixes that occur.
    lengths: Arc<[u8]>,
    /// Sorted.
    networks: Arc<[IpNet]>,
}

impl FromIterator<IpNet> for NetworkSet {
    fn from_iter<I: IntoIterator<Item = IpNet>>(networks: I) -> Self {
        let mut networks: Vec<_> = networks
            .into_iter()
            .map(|network| network.trunc())
            .collect();
        networks.sort_unstable();
        networks.dedup();
        let mut lengths: Vec<_> = networks.iter().map(IpNet::prefix_len).collect();
        lengths.sort_unstable();
        lengths.dedup();
        Self {
            lengths: lengths.into(),
            networks: networks.into(),
        }
    }
}

impl NetworkSet {
    /// Returns true if a network has this address, or the IPv4 address behind a translator.
    pub fn contains(&self, address: IpAddr) -> bool {
        let embedded = match address {
            IpAddr::V4(_) => None,
            IpAddr::V6(address) => translated_ipv4(address),
        };
        self.has(address) || embedded.is_some_and(|embedded| self.has(embedded.into()))
    }

    fn has(&self, address: IpAddr) -> bool {
        self.lengths.iter().any(|&length| {
            let network = IpNet::new(address, length);
            network.is_ok_and(|network| self.networks.binary_search(&network.trunc()).is_ok())
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_client_behind_a_translator_is_in_networks_of_both_families() {
        let set = |text: &str| -> NetworkSet { text.parse::<IpNet>().into_iter().collect() };
        let client = "64:ff9b::203.0.113.5".parse().expect("an address");
        for (network, within) in [
            ("203.0.113.0/24", true),
            ("64:ff9b::/96", true),
            ("::/0", true),
            ("203.0.114.0/24", false),
            ("64:ff9b:1::/48", false),
        ] {
            assert_eq!(set(network).contains(client), within, "{network}");
        }
        let local = "64:ff9b::10.0.0.1".parse().expect("an address");
        assert!(!set("10.0.0.0/8").contains(local));
    }

    fn any_network() -> impl Strategy<Value = IpNet> {
        // Few addresses, so that some networks have them.
        let four = (0_u32..8, 0_u8..=32).prop_map(|(high, length)| {
            IpNet::new(IpAddr::V4((high << 29).into()), length).expect("a length")
        });
        let six = (0_u128..8, 0_u8..=128).prop_map(|(high, length)| {
            IpNet::new(IpAddr::V6((high << 125).into()), length).expect("a length")
        });
        prop_oneof![four, six]
    }

    proptest! {
        #[test]
        fn has_the_addresses_of_its_networks(
            networks in proptest::collection::vec(any_network(), 0..6),
            asked in any_network(),
        ) {
            let set: NetworkSet = networks.iter().copied().collect();
            let is_in_one = networks.iter().any(|network| network.contains(&asked.addr()));
            prop_assert_eq!(set.contains(asked.addr()), is_in_one);
        }
    }
}
