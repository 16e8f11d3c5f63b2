//! Policies: what they decided, and the tables of their buckets.

use std::sync::Arc;
use std::time::Duration;

use super::families::{
    LIMIT_BANNED_KEYS, LIMIT_BANS, LIMIT_BUCKETS, LIMIT_DECISIONS, LIMIT_EVICTIONS, LIMIT_GRANTED,
    LIMIT_GRANTED_KEYS, LIMIT_HELD, LIMIT_IN_USE, LIMIT_NEAR, LIMIT_OPERATIONS, LIMIT_SETTLEMENTS,
    LIMIT_TRACKING_EVICTIONS, LIMIT_UNRECORDED, LIMIT_WAIT, LIMIT_WAITING, POLICY_INFO,
};
use crate::telemetry::registry::{
    Counter, Counters, Gauge, GaugeGuard, Histogram, Observer, Registry, label_values,
};

label_values! {
    /// The decision of a policy on a request, as the `decision` label has it.
    LimitDecision {
        /// Charged and admitted.
        Allowed,
        /// Refused.
        Limited,
        /// Charged to a further bucket, and admitted at a lower priority.
        Overflowed,
        /// Admitted after a wait.
        Delayed,
        /// Passes, and would have been refused or delayed if the policy did not only watch.
        Shadowed,
        /// Admitted beyond the quota, and told to the upstream.
        Tagged,
        /// Not charged: the key is exempt.
        Exempt,
        /// The store could not decide.
        Error,
    }
}

/// One policy's decisions on one route. Handles of the same names count together.
pub type LimitMetrics = Counters<LimitDecision>;

impl LimitMetrics {
    /// Makes the handles of this policy on this route.
    pub fn new(registry: &Registry, policy: &str, route: &str) -> Self {
        registry.counters(&LIMIT_DECISIONS, &[policy, route])
    }
}

label_values! {
    /// How the cost of a request was settled, as the `result` label says it.
    SettlementResult {
        /// The response stated the cost.
        Settled,
        /// The response states no cost; the estimate stands.
        Missing,
        /// The response states something else than a whole number; the estimate stands.
        Malformed,
        /// No response came from the upstream, or it broke off before it stated the cost; the estimate
        /// stands.
        NoResponse,
    }
}

/// Settlements of one policy. Handles of the same name count together.
pub type SettlementMetrics = Counters<SettlementResult>;

impl SettlementMetrics {
    /// Makes the handles of the policy with this name: its series are there from the start.
    pub fn new(registry: &Registry, policy: &str) -> Self {
        registry.counters(&LIMIT_SETTLEMENTS, &[policy])
    }
}

/// A function that reads a count.
pub type ReadCount = Box<dyn Fn() -> u64 + Send + Sync>;

/// Functions that read the figures of a policy's tables, at each scrape.
pub struct TableFigures {
    /// Buckets in use, estimated.
    pub buckets: ReadCount,
    /// Buckets evicted so far.
    pub evictions: ReadCount,
    /// Requests admitted unrecorded so far.
    pub unrecorded: ReadCount,
}

/// The requests that a policy holds. Clones, and handles of the same name, count together.
#[derive(Clone, Debug)]
pub struct HeldMetrics(Gauge);

impl HeldMetrics {
    /// Makes the handle of the policy with this name.
    pub fn new(registry: &Registry, policy: &str) -> Self {
        Self(registry.gauge(&LIMIT_HELD, &[policy]))
    }

    /// Counts one more, unless there are `most`; whether it did.
    pub fn enter_below(&self, most: u32) -> bool {
        self.0.increment_below(i64::from(most))
    }

    /// Counts one less.
    pub fn leave(&self) {
        self.0.add(-1);
    }
}

/// The requests that wait their turn in the line of one policy.
#[derive(Debug)]
pub struct WaitMetrics {
    waiting: Gauge,
    wait: Histogram,
}

impl WaitMetrics {
    /// Makes the handles of the policy with this name.
    pub fn new(registry: &Registry, policy: &str) -> Self {
        Self {
            waiting: registry.gauge(&LIMIT_WAITING, &[policy]),
            wait: registry.histogram(&LIMIT_WAIT, &[policy]),
        }
    }

    /// Counts for how long a request has to wait.
    pub fn record(&self, wait: Duration) {
        self.wait.record(wait);
    }

    /// Counts one that waits.
    pub fn enter(&self) -> GaugeGuard {
        self.waiting.hold(1)
    }
}

/// The units of a policy that requests in flight use. Clones, and handles of the same name, count
/// together.
#[derive(Clone, Debug)]
pub struct InUseMetrics(Gauge);

impl InUseMetrics {
    /// Makes the handle of the policy with this name.
    pub fn new(registry: &Registry, policy: &str) -> Self {
        Self(registry.gauge(&LIMIT_IN_USE, &[policy]))
    }

    /// Counts so many more until the guard is dropped.
    pub fn take(&self, units: u32) -> GaugeGuard {
        self.0.hold(units)
    }
}

label_values! {
    /// Records of keys beside their buckets, as the `what` label has them.
    TrackedKeys {
        /// Refusals that count towards a ban.
        Strikes,
        /// Bans.
        Bans,
        /// Refusals by Redis that are remembered.
        Refusals,
        /// Totals that other machines are told.
        Sync,
    }
}

/// Keys of a policy that were forgotten for want of room. Handles of the same name count together.
#[derive(Clone, Debug)]
pub struct TrackingMetrics {
    registry: Registry,
    policy: Arc<str>,
}

impl TrackingMetrics {
    /// Makes the handles of the policy with this name.
    pub fn new(registry: &Registry, policy: &str) -> Self {
        Self {
            registry: registry.clone(),
            policy: policy.into(),
        }
    }

    /// The count of forgotten keys.
    pub fn evictions(&self, what: TrackedKeys) -> Counter {
        self.registry
            .counter(&LIMIT_TRACKING_EVICTIONS, &[&self.policy, what.into()])
    }
}

/// The bans of a policy.
#[derive(Clone, Debug)]
pub struct BanMetrics(Counter);

impl BanMetrics {
    /// Makes the handle of the policy with this name.
    pub fn new(registry: &Registry, policy: &str) -> Self {
        Self(registry.counter(&LIMIT_BANS, &[policy]))
    }

    /// Counts one.
    pub fn banned(&self) {
        self.0.increment();
    }

    /// How many there were.
    pub fn count(&self) -> u64 {
        self.0.get()
    }
}

label_values! {
    /// An action of an operator on a key, as the `action` label has it.
    KeyAction {
        /// Makes the bucket whole.
        Reset,
        /// Grants units beyond the quota.
        Grant,
        /// Bans the key.
        Ban,
        /// Lifts bans.
        Unban,
    }
}

/// The keys of one policy that operators steer.
#[derive(Debug)]
pub struct SteeringMetrics {
    actions: Counters<KeyAction>,
    granted: Counter,
}

impl SteeringMetrics {
    /// Makes the handles of the policy with this name.
    pub fn new(registry: &Registry, policy: &str) -> Self {
        Self {
            actions: registry.counters(&LIMIT_OPERATIONS, &[policy]),
            granted: registry.counter(&LIMIT_GRANTED, &[policy]),
        }
    }

    /// Counts one action.
    pub fn record(&self, action: KeyAction) {
        self.actions.record(action);
    }

    /// Counts a request that granted units paid.
    pub fn granted(&self) {
        self.granted.increment();
    }
}

/// The settings of a policy, as the labels of its information have them.
#[derive(Clone, Copy, Debug)]
pub struct PolicyInfo<'a> {
    /// The policy's name.
    pub policy: &'a str,
    /// The word of its algorithm.
    pub algorithm: &'a str,
    /// The quota as configured.
    pub quota: &'a str,
    /// The parts of its key as configured.
    pub key: &'a str,
    /// `memory`, `redis` or `synchronised`.
    pub store: &'a str,
}

impl PolicyInfo<'_> {
    /// Shows the settings as long as the gauge is kept.
    pub fn show(self, registry: &Registry) -> Gauge {
        let Self {
            policy,
            algorithm,
            quota,
            key,
            store,
        } = self;
        let info = registry.gauge(&POLICY_INFO, &[policy, algorithm, quota, key, store]);
        info.set(1);
        info
    }
}

/// The keys of a policy that are banned or have granted units, counted at each scrape.
#[derive(Debug)]
pub struct KeyGauges {
    _series: Vec<Observer>,
}

/// A function that counts keys.
pub type CountKeys = Box<dyn Fn() -> usize + Send + Sync>;

/// Functions that count the keys of a policy.
pub struct KeyCounts {
    /// Keys that its penalty bans, if it has one.
    pub banned_by_penalty: Option<CountKeys>,
    /// Keys that an operator bans.
    pub banned_by_operator: CountKeys,
    /// Keys with granted units.
    pub granted: CountKeys,
}

impl KeyGauges {
    /// Makes the series of the policy with this name.
    pub fn new(registry: &Registry, policy: &str, counts: KeyCounts) -> Self {
        let banned = |by, count: CountKeys| {
            let labels = [policy, by];
            registry.observe(&LIMIT_BANNED_KEYS, &labels, move || count() as f64)
        };
        let penalty = counts.banned_by_penalty;
        let granted = counts.granted;
        let series = [
            penalty.map(|count| banned("penalty", count)),
            Some(banned("operator", counts.banned_by_operator)),
            Some(registry.observe(&LIMIT_GRANTED_KEYS, &[policy], move || granted() as f64)),
        ];
        Self {
            _series: series.into_iter().flatten().collect(),
        }
    }
}

/// One policy's figures over all routes.
#[derive(Debug)]
pub struct PolicyMetrics {
    near: Counter,
    waits: Option<WaitMetrics>,
    _table: [Observer; 3],
}

impl PolicyMetrics {
    /// Makes the handles of the policy with this name, whose tables `figures` reads.
    pub fn new(registry: &Registry, policy: &str, figures: TableFigures) -> Self {
        let observe =
            |family, read: ReadCount| registry.observe(family, &[policy], move || read() as f64);
        Self {
            near: registry.counter(&LIMIT_NEAR, &[policy]),
            waits: None,
            _table: [
                observe(&LIMIT_BUCKETS, figures.buckets),
                observe(&LIMIT_EVICTIONS, figures.evictions),
                observe(&LIMIT_UNRECORDED, figures.unrecorded),
            ],
        }
    }

    /// Counts those, too, that the policy makes wait.
    #[must_use]
    pub fn with_waits(self, waits: Option<WaitMetrics>) -> Self {
        Self { waits, ..self }
    }

    /// The requests that the policy makes wait, if it does that.
    pub fn waits(&self) -> Option<&WaitMetrics> {
        self.waits.as_ref()
    }

    /// Counts a request that was admitted with at least 80 % of the quota used.
    pub fn near(&self) {
        self.near.increment();
    }

    /// How many such requests there were.
    pub fn near_count(&self) -> u64 {
        self.near.get()
    }
}
