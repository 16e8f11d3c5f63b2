//! Shares of the requests that may be in flight at upstreams, over all workers: each may take an open
//! file. No client, and no upstream beside others, holds more than three times what is left. At an
//! upstream beside others, that is what is left of its share.

use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::http::client_counts::ClientCounts;
use crate::telemetry::log_throttle::LogThrottle;
use crate::telemetry::metrics::UpstreamRefusal;

/// The requests in flight at upstreams.
#[derive(Debug)]
pub struct UpstreamShares {
    max: AtomicUsize,
    in_flight: AtomicUsize,
    /// Requests by client, of those that begin while a quarter of `max` is in use.
    clients: ClientCounts,
    log: LogThrottle,
}

/// The share of a request in flight: it ends with [`UpstreamShares::leave`].
#[derive(Debug)]
#[must_use]
pub(super) struct UpstreamShare {
    /// The client that is counted.
    client: Option<IpAddr>,
}

impl UpstreamShares {
    /// Allows so many requests in flight.
    pub(super) fn new(max: usize) -> Self {
        Self {
            max: AtomicUsize::new(max),
            in_flight: AtomicUsize::new(0),
            clients: ClientCounts::default(),
            log: LogThrottle::default(),
        }
    }

    /// The requests in flight.
    pub fn in_flight(&self) -> usize {
        self.in_flight.load(Relaxed)
    }

    /// The most requests in flight.
    pub fn max(&self) -> usize {
        self.max.load(Relaxed)
    }

    /// Allows so many requests in flight from now on.
    pub fn limit(&self, max: usize) {
        self.max.store(max, Relaxed);
    }

    /// Returns true if more than three quarters are in use: then some are refused.
    pub fn are_scarce(&self) -> bool {
        self.in_flight() > self.max() / 4 * 3
    }

    /// Counts a request of `client`, to an upstream with so many in flight. Both are asked for only
    /// when they matter; `None` if there is none that shares with others.
    ///
    /// # Errors
    /// The share that is used up.
    pub(super) fn enter(
        &self,
        client: impl FnOnce() -> Option<IpAddr>,
        upstream: impl FnOnce() -> Option<usize>,
    ) -> Result<UpstreamShare, UpstreamRefusal> {
        let (others, max) = (self.in_flight.fetch_add(1, Relaxed), self.max());
        if others < max / 4 {
            return Ok(UpstreamShare { client: None });
        }
        let left = max.saturating_sub(others);
        // Of what is left, an upstream may take no more than keeps it at three times the rest.
        let at_upstream = if others < max / 2 { None } else { upstream() };
        let of_upstream = at_upstream.map_or(left, |in_flight| {
            left.saturating_mul(3).saturating_sub(in_flight).div_ceil(4)
        });
        let mut share = UpstreamShare { client: None };
        let refusal = if left == 0 {
            Some(UpstreamRefusal::Total)
        } else if of_upstream == 0 {
            Some(UpstreamRefusal::UpstreamShare)
        } else {
            share.client = client();
            let most = of_upstream.saturating_mul(3);
            let is_refused = |client| !self.clients.enter(client, most);
            let refused = share.client.take_if(|client| is_refused(*client));
            refused.map(|_| UpstreamRefusal::ClientShare)
        };
        match refusal {
            None => Ok(share),
            Some(refusal) => {
                self.leave(&share);
                Err(refusal)
            }
        }
    }

    /// Notes the end of a request.
    pub(super) fn leave(&self, share: &UpstreamShare) {
        self.in_flight.fetch_sub(1, Relaxed);
        if let Some(client) = share.client {
            self.clients.leave(client);
        }
    }

    /// Says, once a minute, that requests are refused.
    pub(super) fn log_refusal(&self, refusal: UpstreamRefusal, client: IpAddr, upstream: &str) {
        if let Some(omitted) = self.log.admit_now() {
            let (in_flight, max) = (self.in_flight(), self.max());
            let reason = refusal.as_str();
            tracing::warn!(reason, %client, upstream, in_flight, max, omitted, "too many requests in flight at upstreams: some are answered 503");
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn client(number: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, number])
    }

    /// How many requests of this client are let in, one after the other, of 1,000.
    fn crowd(shares: &UpstreamShares, number: u8) -> usize {
        let enter = || shares.enter(|| Some(client(number)), || None);
        std::iter::repeat_with(enter)
            .take(1_000)
            .filter(Result::is_ok)
            .count()
    }

    #[test]
    fn clients_that_take_what_they_can_leave_something_to_each_other_one() {
        let shares = UpstreamShares::new(400);
        // Those in the first quarter are not counted.
        assert_eq!(crowd(&shares, 1), 325);
        assert_eq!(crowd(&shares, 2), 57);
        assert_eq!(crowd(&shares, 3), 14);
        assert_eq!(shares.in_flight(), 396);
    }

    #[test]
    fn an_upstream_leaves_a_quarter_to_others() {
        let shares = UpstreamShares::new(400);
        let mut at_upstream = 0;
        let refusal = loop {
            match shares.enter(|| None, || Some(at_upstream)) {
                Ok(_) => at_upstream += 1,
                Err(refusal) => break refusal,
            }
        };
        assert_eq!(
            (refusal, at_upstream),
            (UpstreamRefusal::UpstreamShare, 300)
        );
        assert!(shares.enter(|| None, || Some(0)).is_ok());
        // Without another upstream, it may have all.
        let entered = std::iter::repeat_with(|| shares.enter(|| None, || None));
        assert_eq!(entered.take_while(Result::is_ok).count(), 99);
        assert_eq!(shares.in_flight(), 400);
    }

    /// At an upstream beside others, too, a client leaves something to other clients.
    #[test]
    fn clients_share_what_an_upstream_may_have() {
        let shares = UpstreamShares::new(400);
        let crowd = |number| {
            let enter = || shares.enter(|| Some(client(number)), || Some(shares.in_flight() - 1));
            let entered = std::iter::repeat_with(enter).take(1_000);
            entered.filter(Result::is_ok).count()
        };
        assert_eq!([1, 2, 3].map(crowd), [250, 38, 9]);
        let elsewhere = shares.enter(|| Some(client(1)), || Some(0));
        assert!(elsewhere.is_ok());
    }

    #[test]
    fn a_request_that_is_refused_counts_nowhere() {
        let shares = UpstreamShares::new(1);
        let enter = || shares.enter(|| Some(client(1)), || None);
        let share = enter().expect("one is allowed");
        assert_eq!(enter().err(), Some(UpstreamRefusal::Total));
        assert_eq!(shares.in_flight(), 1);
        shares.leave(&share);
        assert_eq!(shares.in_flight(), 0);
        assert!(enter().is_ok());
    }

    proptest! {
        /// Whatever comes and goes, nothing is counted twice or forgotten, and a client alone has
        /// three quarters.
        #[test]
        fn shares_end_with_their_requests(
            max in 1..200_usize,
            steps in prop::collection::vec((0..4_u8, any::<bool>()), 0..400),
        ) {
            let shares = UpstreamShares::new(max);
            let mut held: [Vec<UpstreamShare>; 4] = Default::default();
            for (number, enters) in steps {
                let of_client = &mut held[usize::from(number)];
                if enters {
                    let entered = shares.enter(|| Some(client(number)), || None);
                    of_client.extend(entered);
                } else if let Some(share) = of_client.pop() {
                    shares.leave(&share);
                }
                let total = held.iter().map(Vec::len).sum::<usize>();
                prop_assert_eq!(shares.in_flight(), total);
                prop_assert!(total <= max);
            }
            for share in held.iter().flatten() {
                shares.leave(share);
            }
            prop_assert_eq!(shares.in_flight(), 0);
            let alone = crowd(&shares, 9);
            prop_assert!(alone <= max && alone >= max / 4 * 3);
        }
    }
}
