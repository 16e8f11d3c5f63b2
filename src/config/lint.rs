//! Lints: warnings of valid settings that are probably not meant. Each lint looks at the policies
//! that apply on each route; docs/lints.md describes them.
//!
//! Not here: errors in a single setting, which `validate` finds.

mod answers;
mod credentials;
mod machine;
mod coverage;
mod forgery;
mod literals;
mod outcome;
mod redis;
mod routes;
mod upstreams;

pub(super) use machine::certificate_periods;

use std::collections::HashSet;
use std::rc::Rc;
use std::time::Duration;

use super::sections::allowed_warnings::without_allowed;
use super::sections::prelude::*;
use super::sections::route::{ambiguous_paths, unreachable};
use super::{Loaded, Report};
use crate::clock::Timestamp;

/// Warns of an error-free configuration at the instant `now`.
pub fn lint(loaded: Loaded, now: Timestamp) -> Report {
    let mut found = findings_in_text(&loaded);
    found.extend(machine::expiring(&loaded, now));
    found.extend(machine::unusable_keys(&loaded));
    found.extend(machine::clear_text_keys(&loaded));
    found.extend(machine::missing_directories(&loaded));
    found.extend(machine::memory(&loaded));
    let found = loaded.document.report(found);
    without_allowed(loaded, found, true)
}

/// Like [`lint`], but looks at no other file, nor at this machine.
pub fn lint_text(loaded: Loaded) -> Report {
    let found = loaded.document.report(findings_in_text(&loaded));
    without_allowed(loaded, found, false)
}

fn findings_in_text(loaded: &Loaded) -> Vec<Finding> {
    let config = &loaded.config;
    let places = all_route_limits(config);
    let policies = policies(&places);
    let of_policies = policies.iter().flat_map(|applied| {
        let lints = POLICY_LINTS.iter();
        lints.filter_map(|lint| lint(applied))
    });
    let of_parts = policies.iter().flat_map(|applied| {
        let parts = applied.policy.key.0.iter();
        parts.flat_map(|part| {
            [
                forgery::untrusted_forwarding(part),
                redis::readable_credentials(part, applied),
                credentials::logged_credentials(part, config),
                credentials::shown_credentials(part, config),
            ]
        })
    });
    let of_upstreams = config.upstreams.values().flat_map(|upstream| {
        [
            upstreams::retries_without_deadline(upstream),
            upstreams::late_attempts(upstream),
            upstreams::few_connections(upstream, config),
        ]
    });
    let others = of_parts.chain(of_upstreams).flatten();
    let mut found: Vec<_> = of_policies.chain(others).collect();
    found.extend(unreachable(config.routes.iter()));
    found.extend(literals::literal_values(config));
    found.extend(outcome::never_refuses(&policies, &places));
    found.extend(outcome::without_key(&places));
    found.extend(coverage::uncovered_requests(&places));
    found.extend(coverage::unlimited_guesses(config, &places));
    found.extend(coverage::unlimited_status(&places));
    found.extend(routes::unlimited_spellings(&places));
    found.extend(routes::bypassed_answers(config));
    found.extend(forgery::forgeable_keys(&places));
    found.extend(forgery::trusts_everyone(config));
    found.extend(upstreams::options_of_one_address(config));
    found.extend(upstreams::own_listeners(config));
    found.extend(ambiguous_paths(config));
    found.extend(credentials::log_options(config));
    found.extend(credentials::admin_options(config));
    found.extend(redis::guessable_keys(config, &policies));
    found.extend(credentials::cleartext_credentials(config));
    found.extend(upstreams::grpc_over_http1(config));
    found
}

/// The lints that look at one policy.
const POLICY_LINTS: [fn(&AppliedPolicy<'_>) -> Option<Finding>; 13] = [
    outcome::nothing_to_take,
    outcome::costs_beyond,
    outcome::forgiven,
    outcome::unreserved,
    forgery::borrowed_zone,
    forgery::forgeable_quota,
    machine::forgotten_at_restart,
    machine::small_quota,
    answers::idle_jitter,
    answers::announcement,
    answers::nameless_body,
    redis::short_window,
    redis::slow_sync,
];

/// A route with the policies that apply there, or the policies of unmatched requests.
struct RouteLimits<'a> {
    /// `None` for requests without a route.
    route: Option<&'a Route>,
    node: NodeId,
    /// Top-level ones, which all routes share that inherit them. Many policies times many routes
    /// would take gigabytes.
    inherited: Rc<[AppliedPolicy<'a>]>,
    own: Vec<AppliedPolicy<'a>>,
}

impl<'a> RouteLimits<'a> {
    /// The policies, top-level ones first.
    fn policies(&self) -> impl Iterator<Item = &AppliedPolicy<'a>> {
        self.inherited.iter().chain(&self.own)
    }

    /// True if top-level policies apply.
    fn inherits(&self) -> bool {
        !self.inherited.is_empty()
    }
}

/// A policy that applies on a route.
#[derive(Clone, Copy)]
struct AppliedPolicy<'a> {
    config: &'a Config,
    policy: &'a Policy,
    /// The node of its definition, which identifies it.
    node: NodeId,
    /// The action on requests beyond the limit.
    action: Action,
}

impl<'a> AppliedPolicy<'a> {
    /// The policy, if it is enforced.
    fn enforced(&self) -> Option<&'a Policy> {
        self.is_enforced().then_some(self.policy)
    }

    /// True if it refuses requests for all of its keys: no shadow mode, no `percent` below 100, no
    /// tagging or routing.
    fn is_enforced(&self) -> bool {
        let percent = self.policy.percent.as_ref();
        let all = percent.is_none_or(|part| part.get() == 100);
        self.policy.mode.value == Mode::Enforce && all && !self.action.forwards()
    }

    /// True for a top-level policy that denied requests meet: one by address, which counts no
    /// responses.
    fn counts_denied_addresses(&self) -> bool {
        let parts = &self.policy.key.0;
        parts.iter().any(|part| part.is_address())
            && !parts.iter().any(|part| part.is_claimed())
            && self.policy.count.iter().next().is_none()
            && self.policy.algorithm.value != AlgorithmName::Concurrency
    }

    /// The largest number of units that requests can take at once.
    fn capacity(&self) -> u64 {
        self.policy.amounts.capacity()
    }

    /// The quota's window, or roughly the time in which an empty bucket fills.
    fn window(&self) -> Duration {
        match (&self.policy.amounts.quota, &self.policy.amounts.refill) {
            (Some(quota), _) => quota.largest().window(),
            (None, Some(refill)) => {
                let refills = self.capacity().div_ceil(refill.amount.into());
                refill
                    .interval
                    .saturating_mul(u32::try_from(refills).unwrap_or(u32::MAX))
            }
            (None, None) => Duration::ZERO,
        }
    }

    /// The node of its quota or capacity.
    fn quota_node(&self) -> NodeId {
        let amounts = &self.policy.amounts;
        let node = amounts.quota.given().or(amounts.capacity.given());
        node.unwrap_or(self.node)
    }

    /// The node of its key, or of the policy if the key is left out.
    fn key_node(&self) -> NodeId {
        self.policy.key.node.or(self.node)
    }
}

/// All routes, and unmatched requests last.
fn all_route_limits<'a>(config: &'a Config) -> Vec<RouteLimits<'a>> {
    let resolved = |limits: &'a List<Limit>| {
        let limits = limits.iter();
        limits.filter_map(|limit| resolve(config, limit))
    };
    let top_level: Rc<[_]> = resolved(&config.limits).collect();
    let routes = config.routes.iter().map(|route| RouteLimits {
        route: Some(&route.value),
        node: route.node,
        inherited: if route.inherit.get() {
            Rc::clone(&top_level)
        } else {
            Rc::default()
        },
        own: resolved(&route.limits).collect(),
    });
    let unmatched = RouteLimits {
        route: None,
        node: config.limits.node,
        inherited: Rc::clone(&top_level),
        own: Vec::new(),
    };
    routes.chain([unmatched]).collect()
}

/// Resolves a limit to its policy; `None` for disabled policies.
fn resolve<'a>(config: &'a Config, limit: &'a Located<Limit>) -> Option<AppliedPolicy<'a>> {
    let (policy, node) = config.policy(limit)?;
    let action = policy.on_limit.action_over(&config.responses.on_limit);
    (policy.mode.value != Mode::Disabled).then_some(AppliedPolicy {
        config,
        policy,
        node,
        action,
    })
}

/// Every policy that applies somewhere, once.
fn policies<'a>(places: &[RouteLimits<'a>]) -> Vec<AppliedPolicy<'a>> {
    let mut seen = HashSet::new();
    let first = places.iter().position(RouteLimits::inherits);
    let all = places.iter().enumerate().flat_map(|(index, place)| {
        let inherited = if first == Some(index) {
            &*place.inherited
        } else {
            &[]
        };
        inherited.iter().chain(&place.own).copied()
    });
    all.filter(|applied| seen.insert(applied.node)).collect()
}

#[cfg(test)]
mod tests;
