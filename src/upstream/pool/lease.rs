//! How long, and how often, connections are used again.

use std::hash::{BuildHasher, RandomState};

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

impl ConnectionLease {
    /// The lease of a connection that is opened after so many sweeps. Its end is early or late by
    /// up to 10 %: connections that were opened together do not end together.
    pub(super) fn new(limits: ConnectionLimits, sweeps: u32) -> Self {
        let per_mille = 900 + RandomState::new().hash_one(sweeps) % 201;
        let seconds = u128::from(limits.max_lifetime.as_secs()) * u128::from(per_mille) / 1000;
        let seconds = u32::try_from(seconds).unwrap_or(u32::MAX);
        ConnectionLease {
            requests: limits.max_requests,
            ends: sweeps.wrapping_add(seconds.clamp(1, MAX_LIFETIME)),
        }
    }

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
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_lease_ends_within_ten_percent_of_its_lifetime() {
        let limits = ConnectionLimits {
            max_lifetime: Duration::from_secs(1000),
            max_requests: 2,
        };
        // The counter wraps during the lease.
        let opened = u32::MAX - 300;
        let mut lives: Vec<_> = (0..1000)
            .map(|_| {
                let lease = ConnectionLease::new(limits, opened);
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
        let limits = ConnectionLimits {
            max_lifetime: Duration::MAX,
            max_requests: 2,
        };
        let mut lease = ConnectionLease::new(limits, 0);
        assert!(!lease.is_over(MAX_LIFETIME - 1));
        lease.spend();
        assert!(!lease.is_over(0));
        lease.spend();
        assert!(lease.is_over(0));
    }
}
