//! Consistent hashing by highest random weight (Thaler and Ravishankar, 1998) with bounded loads
//! (Mirrokni, Thorup and Zadimoghaddam, 2018).
//!
//! Each key ranks all hosts at random, in proportion to their weights, and goes to the first with
//! room. When a host goes, its keys alone move, to all others alike. There is no table: a pick
//! looks at each host.

use super::Pick;
use super::rotation::mix;
use crate::limiter::{KeyParts, Secret};
use crate::upstream::host_set::WeightedHost;

/// The secret of the hashes of hosts and keys: fixed, so that all machines agree.
pub const BALANCE_SECRET: Secret = Secret::from_key([0, 0]);

/// No host has more than 5/4 of its share of the requests in flight, rounded up.
const MAX_LOAD: (u64, u64) = (5, 4);

/// The hashes of the hosts' addresses.
#[derive(Debug)]
pub(in crate::upstream) struct Rendezvous(Box<[u64]>);

impl Rendezvous {
    pub(in crate::upstream) fn new(hosts: &[WeightedHost]) -> Self {
        let hash = |one: &WeightedHost| {
            let mut hasher = BALANCE_SECRET.hasher();
            hasher.part(0, one.host.connector.address.to_string().as_bytes());
            hasher.finish().bits()
        };
        Rendezvous(hosts.iter().map(hash).collect())
    }

    /// The host of `key`: the first in its ranking that is a candidate and has room, or else a
    /// candidate, or else a host that is not left out, or else one that was not tried.
    pub(super) fn pick(&self, pick: &Pick<'_>, key: u64) -> usize {
        let available = || {
            let all = pick.hosts.iter();
            all.filter(|one| !one.host.health.is_left_out())
        };
        let weights: u64 = available().map(|one| u64::from(one.weight)).sum();
        let requests = 1 + available().map(WeightedHost::in_flight).sum::<u64>();
        let has_room = |one: &WeightedHost| {
            let share = requests * u64::from(one.weight);
            one.in_flight() * weights * MAX_LOAD.1 < share * MAX_LOAD.0
        };
        let rank = |&index: &usize| {
            let one = &pick.hosts[index];
            let preference = [
                pick.is_untried(index),
                pick.is_in_use(index),
                pick.is_candidate(index),
                has_room(one),
            ];
            (preference, score(self.0[index], key, one.weight))
        };
        let ranks = (0..pick.hosts.len()).map(|index| (rank(&index), index));
        let best = ranks.max_by(|((a, a_score), _), ((b, b_score), _)| {
            a.cmp(b).then(a_score.total_cmp(b_score))
        });
        best.map_or(0, |(_, index)| index)
    }
}

/// The rank of a host for a key: the highest of all is proportional to the weight (Schindelhauer
/// and Schomaker, 2005).
fn score(host: u64, key: u64, weight: u16) -> f64 {
    const BITS: i32 = 53;
    let uniform = ((mix(host ^ key) >> (64 - BITS)) as f64 + 0.5) / f64::from(2).powi(BITS);
    f64::from(weight) / -uniform.ln()
}
