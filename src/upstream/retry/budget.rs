//! The retry budget of an upstream, as in Finagle and Linkerd: a share of the requests of the last
//! ten seconds, and a reserve. It keeps an outage from being made worse by retries.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;

use crate::upstream::spec::RetrySpec;

/// The seconds of which requests and retries count.
const WINDOW: usize = 10;

/// The retry budget of an upstream: its requests and retries, which outlive reloads.
#[derive(Debug)]
pub(in crate::upstream) struct RetryBudget {
    requests: AtomicU64,
    retries: AtomicU64,
    /// The most that `retries` may be.
    limit: AtomicU64,
    /// Requests and retries at the start of each of the last seconds, the oldest first.
    seconds: Mutex<VecDeque<(u64, u64)>>,
}

impl RetryBudget {
    /// Counts a request, which is no retry.
    pub(in crate::upstream) fn record_request(&self) {
        self.requests.fetch_add(1, Relaxed);
    }

    /// Takes a retry from the budget. Returns false if it is spent.
    pub(in crate::upstream) fn withdraw(&self) -> bool {
        let limit = self.limit.load(Relaxed);
        let more = |retries| (retries < limit).then_some(retries + 1);
        self.retries.fetch_update(Relaxed, Relaxed, more).is_ok()
    }

    /// Grants retries for the requests since the last call. Must be called a few times a second.
    pub(in crate::upstream) fn refill(&self, spec: &RetrySpec) {
        self.set_limit(spec, &self.seconds.lock());
    }

    /// Begins another second, and forgets the oldest.
    pub(in crate::upstream) fn begin_second(&self, spec: &RetrySpec) {
        let mut seconds = self.seconds.lock();
        seconds.push_back((self.requests.load(Relaxed), self.retries.load(Relaxed)));
        if seconds.len() > WINDOW {
            seconds.pop_front();
        }
        self.set_limit(spec, &seconds);
    }

    fn set_limit(&self, spec: &RetrySpec, seconds: &VecDeque<(u64, u64)>) {
        let &(requests, retries) = seconds.front().unwrap_or(&(0, 0));
        let recent = self.requests.load(Relaxed).saturating_sub(requests);
        let reserve = u64::from(spec.min_per_second) * WINDOW as u64;
        let granted = recent * u64::from(spec.budget) / 100 + reserve;
        self.limit.store(retries + granted, Relaxed);
    }
}

impl Default for RetryBudget {
    fn default() -> Self {
        RetryBudget {
            requests: AtomicU64::new(0),
            retries: AtomicU64::new(0),
            limit: AtomicU64::new(0),
            seconds: Mutex::new(VecDeque::from([(0, 0)])),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn spec(budget: u32, min_per_second: u32) -> RetrySpec {
        RetrySpec {
            budget,
            min_per_second,
            ..RetrySpec::default()
        }
    }

    /// A budget, and the spec that it follows.
    fn budget(percent: u32, min_per_second: u32) -> (RetryBudget, RetrySpec) {
        let (budget, spec) = (RetryBudget::default(), spec(percent, min_per_second));
        budget.refill(&spec);
        (budget, spec)
    }

    /// How many of `wanted` retries are granted.
    fn withdrawn(budget: &RetryBudget, wanted: u64) -> u64 {
        (0..wanted).map(|_| u64::from(budget.withdraw())).sum()
    }

    fn request(budget: &RetryBudget, spec: &RetrySpec, count: u64) {
        (0..count).for_each(|_| budget.record_request());
        budget.refill(spec);
    }

    #[test]
    fn a_fifth_of_the_requests_and_the_reserve_may_be_retries() {
        let (budget, spec) = budget(20, 10);
        assert_eq!(withdrawn(&budget, 1_000), 100);
        request(&budget, &spec, 1_000);
        assert_eq!(withdrawn(&budget, 1_000), 200);
        assert_eq!(withdrawn(&budget, 1), 0);
    }

    #[test]
    fn requests_and_retries_count_for_ten_seconds() {
        let (budget, spec) = budget(20, 1);
        request(&budget, &spec, 100);
        assert_eq!(withdrawn(&budget, 100), 30);
        for _ in 0..9 {
            budget.begin_second(&spec);
            assert_eq!(withdrawn(&budget, 100), 0);
        }
        budget.begin_second(&spec);
        assert_eq!(withdrawn(&budget, 100), 10, "the reserve is back");
    }

    #[test]
    fn a_budget_goes_on_with_earlier_counts() {
        let (budget, before) = budget(20, 10);
        request(&budget, &before, 1_000);
        assert_eq!(withdrawn(&budget, 1_000), 300);
        budget.refill(&spec(20, 10));
        assert_eq!(withdrawn(&budget, 1_000), 0);
        budget.refill(&spec(40, 10));
        assert_eq!(withdrawn(&budget, 1_000), 200);
    }

    #[test]
    fn without_a_budget_nothing_is_retried() {
        let (budget, spec) = budget(0, 0);
        request(&budget, &spec, 1_000);
        assert_eq!(withdrawn(&budget, 1), 0);
    }

    proptest! {
        #[test]
        fn retries_of_any_ten_seconds_are_a_part_of_the_requests_of_twenty(
            seconds in prop::collection::vec((0..200_u64, 0..200_u64), 1..60),
        ) {
            let (budget, spec) = budget(20, 10);
            let mut counts = Vec::new();
            for (requests, wanted) in seconds {
                request(&budget, &spec, requests);
                counts.push((requests, withdrawn(&budget, wanted)));
                budget.begin_second(&spec);
                let recent = |seconds| counts.iter().rev().take(seconds);
                let requests: u64 = recent(2 * WINDOW).map(|(requests, _)| requests).sum();
                let retries: u64 = recent(WINDOW).map(|(_, retries)| retries).sum();
                prop_assert!(retries <= requests / 5 + 100, "{retries} of {requests}");
            }
        }
    }
}
