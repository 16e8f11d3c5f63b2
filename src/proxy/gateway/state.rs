//! State that outlives requests: the ruleset in force, earlier ones, the clock and the metrics.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::clock::{Clock, Timestamp};
use crate::proxy::activity::Activity;
use crate::proxy::ruleset::Ruleset;
use crate::proxy::upstream_shares::UpstreamShares;
use crate::store::{Store, WeakStore};
use crate::telemetry::metrics::RequestMetrics;

/// The server of requests, shared by all workers.
#[derive(Debug)]
pub struct Gateway {
    ruleset: ArcSwap<Ruleset>,
    /// Earlier rulesets that requests may still use.
    retired: Mutex<Vec<Arc<Ruleset>>>,
    /// Redis clients of earlier rulesets that requests may still use.
    former_stores: Mutex<Vec<WeakStore>>,
    pub(in crate::proxy) clock: Arc<Clock>,
    pub(in crate::proxy) metrics: Arc<RequestMetrics>,
    /// The activity of keys.
    pub activity: Activity,
    /// The requests in flight at upstreams.
    pub upstream_shares: UpstreamShares,
}

impl Gateway {
    /// A gateway with `ruleset` in force, for so many workers.
    pub fn new(
        ruleset: Arc<Ruleset>,
        clock: Arc<Clock>,
        metrics: Arc<RequestMetrics>,
        workers: usize,
    ) -> Self {
        Gateway {
            ruleset: ArcSwap::new(ruleset),
            retired: Mutex::default(),
            former_stores: Mutex::default(),
            activity: Activity::new(workers, clock.now()),
            upstream_shares: UpstreamShares::new(usize::MAX),
            clock,
            metrics,
        }
    }

    /// The ruleset in force.
    pub fn ruleset(&self) -> Arc<Ruleset> {
        self.ruleset.load_full()
    }

    /// Puts `ruleset` in force for all later requests.
    pub fn swap(&self, ruleset: Arc<Ruleset>) {
        let before = self.ruleset.swap(ruleset);
        before.forget_kept(Timestamp::MAX);
        let mut stores = self.former_stores.lock();
        stores.retain(|store| store.upgrade().is_some());
        stores.extend(before.store.downgrade());
        drop(stores);
        self.retired.lock().push(before);
    }

    /// Takes the earlier rulesets that no request uses any more, so that the caller drops them.
    ///
    /// A ruleset of 10,000 routes takes tens of milliseconds to drop. A worker that dropped it after its last
    /// request would serve no client meanwhile.
    pub fn take_unused(&self) -> Vec<Arc<Ruleset>> {
        let mut retired = self.retired.lock();
        let unused = retired.extract_if(.., |ruleset| Arc::strong_count(ruleset) == 1);
        unused.collect()
    }

    /// Waits until Redis has been sent what the worker's finished requests owe it, for at most 500 ms.
    pub async fn flush_stores(self: Arc<Self>, worker: usize) {
        const LONGEST: Duration = Duration::from_millis(500);
        let until = Instant::now() + LONGEST;
        let former = self.former_stores.lock().clone();
        let former = former
            .iter()
            .filter_map(WeakStore::upgrade)
            .map(Store::Redis);
        let stores: Vec<_> = former.chain([self.ruleset.load().store.clone()]).collect();
        for store in stores {
            store.flush(worker, until).await;
        }
    }
}
