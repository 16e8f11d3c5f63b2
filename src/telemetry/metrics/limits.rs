//! Policies: what they decided, and the tables of their buckets.

use std::sync::Arc;

use super::families::{
    LIMIT_BANNED_KEYS, LIMIT_BANS, LIMIT_BUCKETS, LIMIT_DECISIONS, LIMIT_EVICTIONS, LIMIT_GRANTED,
    LIMIT_GRANTED_KEYS, LIMIT_HELD, LIMIT_IN_USE, LIMIT_NEAR, LIMIT_OPERATIONS, LIMIT_SETTLEMENTS,
    LIMIT_TRACKING_EVICTIONS, LIMIT_UNRECORDED, LIMIT_WAIT, LIMIT_WAITING, POLICY_INFO,
};
use crate::telemetry::registry::{
    Counter, Counters, Gauge, Histogram, Observer, Registry, label_values,
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

/// Returns the number of requests that a policy holds. Handles of the same name count together.
pub fn held(registry: &Registry, policy: &str) -> Gauge {
    registry.gauge(&LIMIT_HELD, &[policy])
}

/// The requests that wait their turn in the line of one policy.
#[derive(Debug)]
pub struct WaitMetrics {
    /// Requests that wait.
    pub waiting: Gauge,
    /// The time for which requests have to wait.
    pub wait: Histogram,
}

impl WaitMetrics {
    /// Makes the handles of the policy with this name.
    pub fn new(registry: &Registry, policy: &str) -> Self {
        Self {
            waiting: registry.gauge(&LIMIT_WAITING, &[policy]),
            wait: registry.histogram(&LIMIT_WAIT, &[policy]),
        }
    }
}

/// Returns the units of a policy that requests in flight use. Handles of the same name count
/// together.
pub fn in_use(registry: &Registry, policy: &str) -> Gauge {
    registry.gauge(&LIMIT_IN_USE, &[policy])
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

/// Returns the count of a policy's bans.
pub fn bans(registry: &Registry, policy: &str) -> Counter {
    registry.counter(&LIMIT_BANS, &[policy])
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
    /// Actions of operators.
    pub actions: Counters<KeyAction>,
    /// Requests that granted units paid.
    pub granted: Counter,
}

impl SteeringMetrics {
    /// Makes the handles of the policy with this name.
    pub fn new(registry: &Registry, policy: &str) -> Self {
        Self {
            actions: registry.counters(&LIMIT_OPERATIONS, &[policy]),
            granted: registry.counter(&LIMIT_GRANTED, &[policy]),
        }
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
        let labels = [
            self.policy,
            self.algorithm,
            self.quota,
            self.key,
            self.store,
        ];
        let info = registry.gauge(&POLICY_INFO, &labels);
        info.set(1);
        info
    }
}

/// One policy's figures over all routes.
#[derive(Debug)]
pub struct PolicyMetrics {
    /// Requests that were admitted with at least 80 % of the quota used.
    pub near: Counter,
    /// The requests that the policy makes wait, if it does that.
    pub waits: Option<WaitMetrics>,
}

impl PolicyMetrics {
    /// Makes the handles of the policy with this name.
    pub fn new(registry: &Registry, policy: &str, delays: bool) -> Self {
        Self {
            near: registry.counter(&LIMIT_NEAR, &[policy]),
            waits: delays.then(|| WaitMetrics::new(registry, policy)),
        }
    }
}

/// A function that reads a count, at each scrape.
pub type ReadCount = Box<dyn Fn() -> u64 + Send + Sync>;

/// Shows the buckets of a policy that are in use, estimated, as long as the observer is kept.
pub fn buckets(registry: &Registry, policy: &str, read: ReadCount) -> Observer {
    registry.observe(&LIMIT_BUCKETS, &[policy], move || read() as f64)
}

/// Shows the buckets of a policy evicted so far, as long as the observer is kept.
pub fn evictions(registry: &Registry, policy: &str, read: ReadCount) -> Observer {
    registry.observe(&LIMIT_EVICTIONS, &[policy], move || read() as f64)
}

/// Shows the requests admitted unrecorded so far, as long as the observer is kept.
pub fn unrecorded(registry: &Registry, policy: &str, read: ReadCount) -> Observer {
    registry.observe(&LIMIT_UNRECORDED, &[policy], move || read() as f64)
}

/// Shows the keys of a policy that are banned by a `penalty` or by an `operator`, as long as the
/// observer is kept.
pub fn banned_keys(registry: &Registry, policy: &str, by: &str, read: ReadCount) -> Observer {
    registry.observe(&LIMIT_BANNED_KEYS, &[policy, by], move || read() as f64)
}

/// Shows the keys of a policy with granted units, as long as the observer is kept.
pub fn granted_keys(registry: &Registry, policy: &str, read: ReadCount) -> Observer {
    registry.observe(&LIMIT_GRANTED_KEYS, &[policy], move || read() as f64)
}
