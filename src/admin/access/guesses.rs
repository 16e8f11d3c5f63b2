//! Brakes wrong tokens: an address has some at once, then one a second. Right ones are never braked,
//! because operators share addresses with others.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use parking_lot::Mutex;

use crate::clock::Timestamp;
use crate::net::peer_address::translated_ipv4;

/// The wrong tokens that an address may send at once.
const AT_ONCE: u32 = 10;
/// The time after which an address has another.
const INTERVAL: Duration = Duration::from_secs(1);
/// The most addresses that are remembered. Others push out the one that has waited longest.
const MAX_ADDRESSES: usize = 4_096;

/// The wrong tokens of each address, as instants at which all of them are forgiven (GCRA).
///
/// A wrong token beyond the bound costs nothing: the wait never grows beyond a second, however much an
/// address asks, and ends with its guesses.
#[derive(Debug, Default)]
pub(super) struct Guesses(Mutex<HashMap<IpAddr, Timestamp>>);

impl Guesses {
    /// Lets a wrong token pass.
    ///
    /// # Errors
    /// The time until the address may try another.
    pub(super) fn check(&self, address: IpAddr, now: Timestamp) -> Result<(), Duration> {
        let forgiven_at = self.0.lock().get(&network(address)).copied();
        let owed = forgiven_at.map_or(Duration::ZERO, |at| at.since(now));
        match owed.checked_sub(INTERVAL * (AT_ONCE - 1)) {
            Some(wait) if !wait.is_zero() => Err(wait),
            _ => Ok(()),
        }
    }

    /// Notes a wrong token.
    pub(super) fn note(&self, address: IpAddr, now: Timestamp) {
        let mut all = self.0.lock();
        let address = network(address);
        if all.len() >= MAX_ADDRESSES && !all.contains_key(&address) {
            let first = all.iter().min_by_key(|(_, forgiven_at)| **forgiven_at);
            let first = first.map(|(address, _)| *address);
            first.map(|first| all.remove(&first));
        }
        let forgiven_at = all.entry(address).or_insert(now);
        *forgiven_at = (*forgiven_at).max(now).saturating_add(INTERVAL);
    }
}

/// The addresses that one caller has: of IPv6 the first 64 bits.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let bits = u128::from(address) >> 64 << 64;
            translated_ipv4(address).map_or(Ipv6Addr::from(bits).into(), IpAddr::V4)
        }
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ADDRESS: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_micros((1_000_000 + millis) * 1_000)
    }

    #[test]
    fn an_address_has_ten_guesses_and_then_one_a_second() {
        let guesses = Guesses::default();
        let tried = |millis| {
            let now = at(millis);
            let is_tried = guesses.check(ADDRESS, now).is_ok();
            if is_tried {
                guesses.note(ADDRESS, now);
            }
            is_tried
        };
        let count = |from: u64, to: u64| (from..to).filter(|millis| tried(*millis)).count();
        assert_eq!(count(0, 1_000), 10);
        assert_eq!(count(1_000, 11_000), 10);
        assert_eq!(count(11_000, 12_000), 1);
        // Whoever guesses no more is forgiven, a guess a second.
        assert_eq!(count(16_000, 16_500), 5);
        assert_eq!(count(60_000, 60_500), 10);
    }

    #[test]
    fn other_addresses_are_not_slowed_down_and_networks_of_ipv6_share() {
        let guesses = Guesses::default();
        let [one, same, other]: [IpAddr; 3] = ["2001:db8::1", "2001:db8::2", "2001:db8:0:1::1"]
            .map(|text| text.parse().expect("one"));
        (0..AT_ONCE).for_each(|_| guesses.note(one, at(0)));
        assert!(guesses.check(one, at(0)).is_err());
        assert!(guesses.check(same, at(0)).is_err());
        assert!(guesses.check(other, at(0)).is_ok());
        assert!(guesses.check(ADDRESS, at(0)).is_ok());
    }

    proptest! {
        #[test]
        fn the_wait_is_a_second_at_most_and_memory_is_bounded(
            calls in prop::collection::vec((0..6_000_u32, 0..50_u64), 1..6_000),
        ) {
            let guesses = Guesses::default();
            let mut millis = 0;
            for (address, pause) in calls {
                millis += pause;
                let address = std::net::Ipv4Addr::from(address).into();
                match guesses.check(address, at(millis)) {
                    Ok(()) => guesses.note(address, at(millis)),
                    Err(wait) => {
                        prop_assert!(wait <= INTERVAL);
                        let later = at(millis).saturating_add(wait);
                        prop_assert!(guesses.check(address, later).is_ok());
                    }
                }
            }
            prop_assert!(guesses.0.lock().len() <= MAX_ADDRESSES);
        }
    }
}
