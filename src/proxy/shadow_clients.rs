//! The clients of a policy in shadow: how many came, how many it would have limited, and which of
//! these most. Policies that were never in shadow have no counts.

use std::sync::OnceLock;

use hyperloglockless::AtomicHyperLogLog;
use parking_lot::Mutex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use traffic::TopKeys;

use crate::limiter::Fingerprint;
use crate::telemetry::metrics::LimitDecision;

/// Registers of an estimate, as a power of two: 4 KiB, and a standard error of 1.6 %.
const PRECISION: u8 = 12;

/// The longest list of clients.
const MOST: usize = 50;

/// The clients of a policy since its first decision in shadow.
#[derive(Debug, Default)]
pub struct ShadowClients(OnceLock<ClientSketches>);

#[derive(Debug)]
struct ClientSketches {
    seen: AtomicHyperLogLog,
    limited: AtomicHyperLogLog,
    /// The clients with the most requests beyond the limit.
    most: Mutex<TopKeys<()>>,
}

/// The clients of a policy in shadow, for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ShadowReport {
    /// Clients whose requests met the policy and passed, estimated.
    pub clients: u64,
    /// Clients of which such a request would have been limited or delayed; estimated beyond 50.
    pub limited_clients: u64,
    /// The clients with the most such requests, the most first.
    #[schemars(length(max = 50))]
    pub most_limited: Vec<ShadowedClient>,
}

/// A client that a policy would have limited.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ShadowedClient {
    /// The name of the key in logs, on this machine.
    pub key_id: String,
    /// Requests that would have been limited or delayed; too many if the list was full.
    pub requests: u64,
}

impl ShadowClients {
    /// Counts a request with this key, on which the policy has decided so.
    pub(super) fn record(&self, key: Fingerprint, word: LimitDecision) {
        let counts = self.0.get_or_init(ClientSketches::new);
        // The fingerprint is a keyed hash itself.
        counts.seen.insert_hash(key.bits());
        if word == LimitDecision::Shadowed {
            counts.limited.insert_hash(key.bits());
            counts.most.lock().hit(key, 1, || ());
        }
    }

    /// The counts; `None` if the policy was never in shadow.
    pub fn report(&self) -> Option<ShadowReport> {
        let counts = self.0.get()?;
        let most: Vec<_> = {
            let most = counts.most.lock();
            most.most(MOST).into_iter().cloned().collect()
        };
        let is_exact = most.iter().all(|client| client.excess == 0);
        let limited_clients = if is_exact {
            most.len()
        } else {
            estimate(&counts.limited).max(most.len())
        };
        Some(ShadowReport {
            clients: estimate(&counts.seen).max(limited_clients) as u64,
            limited_clients: limited_clients as u64,
            most_limited: most
                .into_iter()
                .map(|client| ShadowedClient {
                    key_id: client.key.to_string(),
                    requests: client.count,
                })
                .collect(),
        })
    }
}

/// The number of different hashes, rounded. While most registers are empty it is counted by those:
/// the other estimate is short by one for some few clients.
fn estimate(sketch: &AtomicHyperLogLog) -> usize {
    let (registers, _, zeros, _) = sketch.parts();
    let all = registers.len() as f64;
    let estimated = if zeros * 2 > registers.len() {
        all * (all / zeros as f64).ln()
    } else {
        sketch.raw_count()
    };
    estimated.round() as usize
}

impl ClientSketches {
    fn new() -> Self {
        Self {
            seen: AtomicHyperLogLog::seeded(PRECISION, 0),
            limited: AtomicHyperLogLog::seeded(PRECISION, 0),
            most: Mutex::new(TopKeys::new(MOST)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limiter::Secret;

    fn keys(count: u64) -> impl Iterator<Item = Fingerprint> {
        use crate::limiter::KeyParts;
        let secret = Secret::from_key([1, 2]);
        (0..count).map(move |number| {
            let mut hasher = secret.hasher();
            hasher.part(0, &number.to_be_bytes());
            hasher.finish()
        })
    }

    #[test]
    fn a_policy_that_was_never_in_shadow_has_no_report() {
        assert_eq!(ShadowClients::default().report(), None);
    }

    #[test]
    fn clients_are_counted_once_and_the_most_limited_come_first() {
        let clients = ShadowClients::default();
        for _ in 0..3 {
            keys(3_100).for_each(|key| clients.record(key, LimitDecision::Allowed));
        }
        for (key, requests) in keys(12).zip(1..) {
            (0..requests).for_each(|_| clients.record(key, LimitDecision::Shadowed));
        }
        let report = clients.report().expect("counts");
        assert!((2_900..3_300).contains(&report.clients), "{report:?}");
        assert_eq!(report.limited_clients, 12);
        let requests = report.most_limited.iter().map(|client| client.requests);
        assert!(requests.eq((1..=12).rev()));
        let busiest = keys(12).last().expect("a key").to_string();
        assert_eq!(report.most_limited[0].key_id, busiest);
    }

    /// One of two clients was missing in `1 of 1 client`.
    #[test]
    fn few_clients_are_counted_exactly() {
        let clients = ShadowClients::default();
        for (key, number) in keys(40).zip(1..) {
            clients.record(key, LimitDecision::Allowed);
            assert_eq!(clients.report().expect("counts").clients, number);
        }
    }

    #[test]
    fn the_list_is_bounded_and_the_number_of_clients_goes_on() {
        let clients = ShadowClients::default();
        keys(20_000).for_each(|key| clients.record(key, LimitDecision::Shadowed));
        let report = clients.report().expect("counts");
        assert_eq!(report.most_limited.len(), MOST);
        assert!(
            (18_500..21_500).contains(&report.limited_clients),
            "{report:?}"
        );
        assert!(report.clients >= report.limited_clients);
    }
}
