//! The counts of requests and decisions at an instant, by route and policy, and what they gained since
//! another one.

use std::collections::HashMap;
use std::sync::Arc;

use strum::VariantArray;

use crate::clock::Timestamp;
use crate::proxy::Ruleset;
use crate::telemetry::metrics::{LimitDecision, RequestOutcome, StatusClass};
use crate::telemetry::registry::{Counters, LabelValue};

/// A number for each decision.
pub(super) type Decisions = [u64; LimitDecision::VARIANTS.len()];

/// A number for each outcome.
pub(super) type Outcomes = [u64; RequestOutcome::VARIANTS.len()];

/// Counts since the start of the process.
pub(super) struct Totals {
    /// The instant.
    pub at: Timestamp,
    /// Requests by route.
    pub routes: HashMap<Arc<str>, Outcomes>,
    /// Responses with a status of 500 and above.
    pub errors: u64,
    /// Decisions by policy.
    pub policies: HashMap<Arc<str>, Decisions>,
}

impl Totals {
    /// Those before anything was counted.
    pub fn none(at: Timestamp) -> Self {
        Self {
            at,
            routes: HashMap::new(),
            errors: 0,
            policies: HashMap::new(),
        }
    }

    /// Those of the routes of `ruleset`.
    pub fn of(ruleset: &Ruleset, at: Timestamp) -> Self {
        let mut totals = Self::none(at);
        for route in ruleset.all_routes() {
            let of_route = totals.routes.entry(Arc::clone(&route.name)).or_default();
            *of_route = counts(&route.metrics.outcomes);
            totals.errors += route.metrics.classes.count(StatusClass::ServerError);
            for limit in &route.limits {
                let name = Arc::clone(&limit.policy.name);
                let of_policy = totals.policies.entry(name).or_default();
                *of_policy = sum(*of_policy, counts(&limit.metrics));
            }
        }
        totals
    }
}

/// What each name has gained, if anything. Counts that fall began anew with a reload.
pub(super) fn gained<'t, const N: usize>(
    before: &'t HashMap<Arc<str>, [u64; N]>,
    now: &'t HashMap<Arc<str>, [u64; N]>,
) -> impl Iterator<Item = (&'t Arc<str>, [u64; N])> {
    now.iter().filter_map(move |(name, counts)| {
        let earlier = before.get(name).unwrap_or(&[0; N]);
        let made = std::array::from_fn(|place| counts[place].saturating_sub(earlier[place]));
        (made != [0; N]).then_some((name, made))
    })
}

/// The sum of these numbers.
pub(super) fn sum<const N: usize>(one: [u64; N], other: [u64; N]) -> [u64; N] {
    std::array::from_fn(|place| one[place] + other[place])
}

fn counts<L: LabelValue, const N: usize>(counters: &Counters<L>) -> [u64; N] {
    std::array::from_fn(|place| counters.count(L::VARIANTS[place]))
}
