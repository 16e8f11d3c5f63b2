//! How long, and how often, connections are used again.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use parking_lot::Mutex;

use crate::upstream::ConnectionLimits;

/// The longest lease in seconds: half of the range of the counter of sweeps.
const MAX_LIFETIME: u32 = i32::MAX as u32;

/// The further use of a connection.
#[derive(Clone, Copy, Debug)]
pub(in crate::upstream) struct ConnectionLease {
    /// The requests that it may still carry.
    requests: u32,
    /// The number of sweeps from which it carries no other.
    ends: u32,
}

/// The bounds of new leases.
#[derive(Debug)]
pub(super) struct Leases(Mutex<ConnectionLimits>);

impl Default for Leases {
    fn default() -> Self {
        Leases(Mutex::new(ConnectionLimits {
            max_lifetime: Duration::MAX,
            max_requests: u32::MAX,
        }))
    }
}

impl Leases {
    pub(super) fn limit(&self, limits: ConnectionLimits) {
        *self.0.lock() = limits;
    }

    /// The lease of a connection that is opened after so many sweeps. Its end is early or late by
    /// up to 10 %: connections that were opened together do not end together.
    pub(super) fn begin(&self, sweeps: u32) -> ConnectionLease {
        let limits = *self.0.lock();
        let per_mille = 900 + RandomState::new().hash_one(sweeps) % 201;
        let seconds = u128::from(limits.max_lifetime.as_secs()) * u128::from(per_mille) / 1000;
        let seconds = u32::try_from(seconds).unwrap_or(u32::MAX);
        ConnectionLease {
            requests: limits.max_requests,
            ends: sweeps.wrapping_add(seconds.clamp(1, MAX_LIFETIME)),
        }
    }
}

impl ConnectionLease {
    /// The lease of a connection that carries one request.
    pub(in crate::upstream) fn once() -> Self {
        ConnectionLease {
            requests: 1,
            ends: 0,
        }
    }

    /// Counts a request.
    pub(super) fn spend(&mut self) {
        self.requests = self.requests.saturating_sub(1);
    }

    /// Returns true if it has carried all its requests.
    pub(super) fn is_spent(&self) -> bool {
        self.requests == 0
    }

    /// Returns true if no other request may follow after so many sweeps.
    pub(super) fn is_over(&self, sweeps: u32) -> bool {
        // The counter wraps: instants are compared by their distance.
        self.is_spent() || self.ends.wrapping_sub(sweeps) as i32 <= 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_ends_within_ten_percent_of_its_lifetime() {
        let leases = Leases::default();
        leases.limit(ConnectionLimits {
            max_lifetime: Duration::from_secs(1000),
            max_requests: 2,
        });
        // The counter wraps during the lease.
        let opened = u32::MAX - 300;
        let mut lives: Vec<_> = (0..1000)
            .map(|_| {
                let lease = leases.begin(opened);
                let is_over = |life: &u32| lease.is_over(opened.wrapping_add(*life));
                (0..2000).find(is_over).expect("it ends")
            })
            .collect();
        lives.sort_unstable();
        assert!(lives[0] >= 900 && lives[999] <= 1100, "{lives:?}");
        assert!(
            lives[0] < 920 && lives[999] > 1080,
            "all are alike: {lives:?}"
        );
    }

    #[test]
    fn the_last_request_ends_a_lease() {
        let leases = Leases::default();
        let mut lease = leases.begin(0);
        assert!(!lease.is_over(MAX_LIFETIME - 1));
        leases.limit(ConnectionLimits {
            max_lifetime: Duration::MAX,
            max_requests: 2,
        });
        lease = leases.begin(0);
        lease.spend();
        assert!(!lease.is_over(0));
        lease.spend();
        assert!(lease.is_over(0));
    }
}
