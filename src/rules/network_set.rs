//! A set of networks. A look-up takes one search for each length of prefix, however many networks
//! there are.

use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;

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
    /// Returns true if a network has this address.
    pub fn contains(&self, address: IpAddr) -> bool {
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
