//! The hosts that a cluster balances at one time. A change of addresses replaces the set.

use std::sync::Arc;

use smallvec::SmallVec;

use super::balance::{Rendezvous, Rotation};
use super::host::{Host, Readiness};
use super::spec::Balance;

/// The numbers of the hosts that a request was tried at.
pub(super) type Tried = SmallVec<[usize; 2]>;

/// The hosts of a cluster, among which `balance` shares requests.
#[derive(Debug)]
pub(super) struct HostSet {
    pub(super) hosts: Box<[WeightedHost]>,
    pub(super) balance: Balance,
    pub(super) rotation: Rotation,
    /// Chooses by key, where the algorithm does.
    pub(super) rendezvous: Option<Rendezvous>,
}

/// A host of a cluster.
#[derive(Clone, Debug)]
pub(super) struct WeightedHost {
    pub host: Arc<Host>,
    /// The weight of its endpoint, 1 to 256.
    pub weight: u16,
    /// The number of its endpoint.
    pub endpoint: usize,
}

impl WeightedHost {
    /// The requests in flight.
    pub(super) fn in_flight(&self) -> u64 {
        self.host.in_flight() as u64
    }
}

impl HostSet {
    pub(super) fn new(balance: Balance, hosts: Vec<WeightedHost>) -> Self {
        HostSet {
            balance,
            rotation: Rotation::new(&hosts, balance == Balance::RoundRobin),
            rendezvous: (balance == Balance::Hash).then(|| Rendezvous::new(&hosts)),
            hosts: hosts.into(),
        }
    }

    /// Returns true if these are its hosts.
    pub(super) fn consists_of(&self, hosts: &[WeightedHost]) -> bool {
        let is_same = |(a, b): (&WeightedHost, &WeightedHost)| Arc::ptr_eq(&a.host, &b.host);
        self.hosts.len() == hosts.len() && self.hosts.iter().zip(hosts).all(is_same)
    }

    /// Returns true if every host is left out: then all are used.
    pub(super) fn is_in_panic(&self) -> bool {
        self.hosts.iter().all(|one| one.host.health.is_left_out())
    }

    /// Returns true if a request that was tried at `tried` may be sent to this host: there is no
    /// better one for it, full or not.
    pub(super) fn may_take(&self, number: usize, tried: &[usize]) -> bool {
        let is_ready = |(other, one): (usize, &WeightedHost)| {
            !tried.contains(&other) && one.host.health.readiness() == Readiness::Ready
        };
        !tried.contains(&number)
            && match self.hosts[number].host.health.readiness() {
                Readiness::Ready => true,
                Readiness::OnTrial => !self.hosts.iter().enumerate().any(is_ready),
                Readiness::LeftOut => self.is_in_panic(),
            }
    }

    /// The number of a host, if it is one of these.
    pub(super) fn number_of(&self, host: &Arc<Host>) -> Option<usize> {
        let mut hosts = self.hosts.iter();
        hosts.position(|one| Arc::ptr_eq(&one.host, host))
    }
}

#[cfg(test)]
pub(super) mod tests;
