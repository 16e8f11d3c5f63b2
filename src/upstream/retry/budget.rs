//! The retry budget of an upstream, as in Finagle and Linkerd: a share of the requests of the last
//! ten seconds, and a reserve. It keeps an outage from being made worse by retries.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;

/// The seconds of which requests and retries count.
const WINDOW: usize = 10;

/// The retry budget of an upstream.
#[derive(Debug)]
pub(in crate::upstream) struct RetryBudget {
    /// Retries as a percentage of requests.
    percent: u64,
    /// Retries in each window beside that share.
    reserve: u64,
    counts: Arc<RetryCounts>,
}

/// The requests and retries of an upstream, which outlive reloads.
#[derive(Debug)]
pub(in crate::upstream) struct RetryCounts {
    requests: AtomicU64,
    retries: AtomicU64,
    /// The most that `retries` may be.
    limit: AtomicU64,
    /// Requests and retries at the start of each of the last seconds, the oldest first.
    seconds: Mutex<VecDeque<(u64, u64)>>,
}

impl RetryBudget {
    /// A budget for what `counts` says, from before a reload.
    pub(in crate::upstream) fn new(
        percent: u32,
        min_per_second: u32,
        counts: Arc<RetryCounts>,
    ) -> Self {
        let budget = RetryBudget {
            percent: percent.into(),
            reserve: u64::from(min_per_second) * WINDOW as u64,
            counts,
        };
        budget.refill();
        budget
    }

    pub(in crate::upstream) fn counts(&self) -> &Arc<RetryCounts> {
        &self.counts
    }

    /// Counts a request, which is no retry.
    pub(in crate::upstream) fn record_request(&self) {
        self.counts.requests.fetch_add(1, Relaxed);
    }

    /// Takes a retry from the budget. Returns false if it is spent.
    pub(in crate::upstream) fn withdraw(&self) -> bool {
        let limit = self.counts.limit.load(Relaxed);
        let more = |retries| (retries < limit).then_some(retries + 1);
        let retries = &self.counts.retries;
        retries.fetch_update(Relaxed, Relaxed, more).is_ok()
    }

    /// Grants retries for the requests since the last call. Must be called a few times a second.
    pub(in crate::upstream) fn refill(&self) {
        let seconds = self.counts.seconds.lock();
        self.set_limit(&seconds);
    }

    /// Begins another second, and forgets the oldest.
    pub(in crate::upstream) fn begin_second(&self) {
        let counts = &self.counts;
        let mut seconds = counts.seconds.lock();
        seconds.push_back((counts.requests.load(Relaxed), counts.retries.load(Relaxed)));
        if seconds.len() > WINDOW {
            seconds.pop_front();
        }
        self.set_limit(&seconds);
    }

    fn set_limit(&self, seconds: &VecDeque<(u64, u64)>) {
        let &(requests, retries) = seconds.front().unwrap_or(&(0, 0));
        let recent = self.counts.requests.load(Relaxed);
        let recent = recent.saturating_sub(requests);
        let granted = recent * self.percent / 100 + self.reserve;
        self.counts.limit.store(retries + granted, Relaxed);
    }
}

impl Default for RetryCounts {
    fn default() -> Self {
        RetryCounts {
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

    fn budget(percent: u32, min_per_second: u32) -> RetryBudget {
        RetryBudget::new(percent, min_per_second, Arc::default())
    }

    /// How many of `wanted` retries are granted.
    fn withdrawn(budget: &RetryBudget, wanted: u64) -> u64 {
        (0..wanted).map(|_| u64::from(budget.withdraw())).sum()
    }

    fn request(budget: &RetryBudget, count: u64) {
        (0..count).for_each(|_| budget.record_request());
        budget.refill();
    }

    #[test]
    fn a_fifth_of_the_requests_and_the_reserve_may_be_retries() {
        let budget = budget(20, 10);
        assert_eq!(withdrawn(&budget, 1_000), 100);
        request(&budget, 1_000);
        assert_eq!(withdrawn(&budget, 1_000), 200);
        assert_eq!(withdrawn(&budget, 1), 0);
    }

    #[test]
    fn requests_and_retries_count_for_ten_seconds() {
        let budget = budget(20, 1);
        request(&budget, 100);
        assert_eq!(withdrawn(&budget, 100), 30);
        for _ in 0..9 {
            budget.begin_second();
            assert_eq!(withdrawn(&budget, 100), 0);
        }
        budget.begin_second();
        assert_eq!(withdrawn(&budget, 100), 10, "the reserve is back");
    }

    #[test]
    fn a_budget_goes_on_with_earlier_counts() {
        let before = budget(20, 10);
        request(&before, 1_000);
        assert_eq!(withdrawn(&before, 1_000), 300);
        let after = RetryBudget::new(20, 10, Arc::clone(before.counts()));
        assert_eq!(withdrawn(&after, 1_000), 0);
        let larger = RetryBudget::new(40, 10, Arc::clone(before.counts()));
        assert_eq!(withdrawn(&larger, 1_000), 200);
    }

    #[test]
    fn without_a_budget_nothing_is_retried() {
        let budget = budget(0, 0);
        request(&budget, 1_000);
        assert_eq!(withdrawn(&budget, 1), 0);
    }

    proptest! {
        #[test]
        fn retries_of_any_ten_seconds_are_a_part_of_the_requests_of_twenty(
            seconds in prop::collection::vec((0..200_u64, 0..200_u64), 1..60),
        ) {
            let budget = budget(20, 10);
            let mut counts = Vec::new();
            for (requests, wanted) in seconds {
                request(&budget, requests);
                counts.push((requests, withdrawn(&budget, wanted)));
                budget.begin_second();
                let recent = |seconds| counts.iter().rev().take(seconds);
                let requests: u64 = recent(2 * WINDOW).map(|(requests, _)| requests).sum();
                let retries: u64 = recent(WINDOW).map(|(_, retries)| retries).sum();
                prop_assert!(retries <= requests / 5 + 100, "{retries} of {requests}");
            }
        }
    }
}
