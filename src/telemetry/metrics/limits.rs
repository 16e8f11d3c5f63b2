//! Policies: what they decided, and the tables of their buckets.

use std::sync::Arc;

use crate::telemetry::registry::{
    Counter, Counters, Gauge, Histogram, Observer, Registry, handle_set, label_values,
};

label_values! {
    /// The decision of a policy on a request, as the `decision` label has it.
    #[derive(Default)]
    LimitDecision {
        /// Charged and admitted.
        #[default]
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
        /// Admitted beyond the quota, and served by another upstream.
        Routed,
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
        registry.counters("sluicegate_limit_decisions_total", &[policy, route])
    }

    /// Makes the handles of this policy for clients with this label.
    pub fn by_client(registry: &Registry, policy: &str, client: &str) -> Self {
        registry.counters("sluicegate_limit_client_decisions_total", &[policy, client])
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
        registry.counters("sluicegate_limit_settlements_total", &[policy])
    }
}

/// Returns the units that responses settled of a policy. Handles of the same name count together.
pub fn settled_units(registry: &Registry, policy: &str) -> Counter {
    registry.counter("sluicegate_limit_settled_units_total", &[policy])
}

/// Returns the number of requests that a policy holds. Handles of the same name count together.
pub fn held(registry: &Registry, policy: &str) -> Gauge {
    registry.gauge("sluicegate_limit_held", &[policy])
}

handle_set! {
    /// The requests that wait their turn in the line of one policy.
    WaitMetrics(policy) {
        /// Requests that wait.
        pub waiting: Gauge = gauge("sluicegate_limit_waiting"),
        /// The time for which requests have to wait.
        pub wait: Histogram = histogram("sluicegate_limit_wait_seconds"),
    }
}

/// Returns the units of a policy that requests in flight use. Handles of the same name count
/// together.
pub fn in_use(registry: &Registry, policy: &str) -> Gauge {
    registry.gauge("sluicegate_limit_in_use", &[policy])
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
        self.registry.counter(
            "sluicegate_limit_tracking_evictions_total",
            &[&self.policy, what.into()],
        )
    }
}

/// Returns the count of a policy's bans.
pub fn bans(registry: &Registry, policy: &str) -> Counter {
    registry.counter("sluicegate_limit_bans_total", &[policy])
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

handle_set! {
    /// The keys of one policy that operators steer.
    SteeringMetrics(policy) {
        /// Actions of operators.
        pub actions: Counters<KeyAction> = counters("sluicegate_limit_operations_total"),
        /// Requests that granted units paid.
        pub granted: Counter = counter("sluicegate_limit_granted_total"),
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
        let info = registry.gauge("sluicegate_policy_info", &labels);
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
            near: registry.counter("sluicegate_limit_near_total", &[policy]),
            waits: delays.then(|| WaitMetrics::new(registry, policy)),
        }
    }
}

/// A function that reads a count, at each scrape.
pub type ReadCount = Box<dyn Fn() -> u64 + Send + Sync>;

/// Declares functions that show a count as long as the observer is kept.
macro_rules! observed_counts {
    ($($(#[$doc:meta])* $name:ident($($label:ident),*) = $family:literal;)*) => {
        $($(#[$doc])*
        pub fn $name(registry: &Registry, $($label: &str,)* read: ReadCount) -> Observer {
            registry.observe($family, &[$($label),*], move || read() as f64)
        })*
    };
}

observed_counts! {
    /// Shows the buckets of a policy that are in use, estimated.
    buckets(policy) = "sluicegate_limit_buckets";
    /// Shows the buckets of a policy evicted so far.
    evictions(policy) = "sluicegate_limit_evictions_total";
    /// Shows the requests admitted unrecorded so far.
    unrecorded(policy) = "sluicegate_limit_unrecorded_total";
    /// Shows the keys of a policy that are banned by a `penalty` or by an `operator`.
    banned_keys(policy, by) = "sluicegate_limit_banned_keys";
    /// Shows the keys of a policy with granted units.
    granted_keys(policy) = "sluicegate_limit_granted_keys";
    /// Shows the keys of a synchronised policy whose charges are shared with other machines.
    sync_keys(policy) = "sluicegate_sync_keys";
    /// Shows the bytes of request bodies that are held.
    held_body_bytes() = "sluicegate_request_body_held_bytes";
    /// Shows the charges to a synchronised policy that no other machine was told.
    sync_untracked(policy) = "sluicegate_sync_untracked_total";
}
