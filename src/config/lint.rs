//! What can be used, and probably does not do what was meant: each lint looks at the policies that requests meet
//! on each route. docs/lints.md has a section for each.
//!
//! Not here: what is wrong with a setting by itself, which `validate` finds.

mod answers;
mod certificates;
mod coverage;
mod files;
mod forgery;
mod listeners;
mod outcome;
mod redis;
mod room;

use std::time::Duration;

use super::Report;
use super::compile::unreachable;
use super::document::NodeId;
use super::finding::Finding;
use super::load::Loaded;
use super::schema::{Action, Config, Limit, Mode, Policy, Route};
use crate::clock::Timestamp;

/// Lists what deserves attention at `now` in a configuration without errors.
pub fn lint(loaded: Loaded, now: Timestamp) -> Report {
    let config = &loaded.config;
    let places = places(config);
    let found = [
        unreachable(config.routes.iter()),
        outcome::never_refuses(&places),
        outcome::always_refuses(&places),
        coverage::uncovered_requests(&places),
        forgery::forgeable_keys(&places),
        forgery::untrusted_forwarding(&places),
        forgery::borrowed_zones(&places),
        forgery::trusts_everyone(config),
        listeners::own_listeners(config),
        certificates::expiring(&loaded, now),
        files::missing_directories(&loaded),
        room::forgotten_at_restart(config, &places),
        room::small_quotas(&places),
        room::memory(&loaded),
        answers::idle_jitter(&places),
        redis::shared_buckets(config, &places),
    ];
    let found = loaded.report(found.concat());
    loaded.warnings.and(found)
}

/// Where requests meet policies: a route, or nothing that takes them.
struct Place<'a> {
    /// `None` for the requests that no route takes.
    route: Option<&'a Route>,
    node: NodeId,
    /// Top-level ones first.
    policies: Vec<Met<'a>>,
}

/// A policy that requests meet.
#[derive(Clone, Copy)]
struct Met<'a> {
    policy: &'a Policy,
    /// Where it is defined, which tells it from others.
    node: NodeId,
    /// What becomes of requests beyond it.
    action: Action,
}

impl Met<'_> {
    /// Whether it refuses at all: neither only watches, for all of its keys, nor only tags.
    fn is_enforced(&self) -> bool {
        let all = self
            .policy
            .percent
            .as_ref()
            .is_none_or(|part| part.get() == 100);
        self.policy.mode.value == Mode::Enforce && all && self.action != Action::Tag
    }

    /// The most units that can be taken at once.
    fn capacity(&self) -> u32 {
        let most = self.policy.burst.as_ref().or(self.policy.capacity.as_ref());
        let quota = || self.policy.quota.as_ref().map_or(0, |quota| quota.limit());
        most.map_or_else(quota, |most| most.get())
    }

    /// The quota's window, or about how long an empty bucket takes to fill.
    fn window(&self) -> Duration {
        match (&self.policy.quota, &self.policy.refill) {
            (Some(quota), _) => quota.window(),
            (None, Some(refill)) => {
                let refills = self.capacity().div_ceil(refill.amount());
                refill.interval().saturating_mul(refills)
            }
            (None, None) => Duration::ZERO,
        }
    }

    /// Where its quota stands.
    fn quota_node(&self) -> NodeId {
        let quota = self.policy.quota.as_ref().map(|quota| quota.node);
        let capacity = self.policy.capacity.as_ref().map(|capacity| capacity.node);
        quota.or(capacity).unwrap_or(self.node)
    }

    /// Where its key stands, if it is not left out.
    fn key_node(&self) -> NodeId {
        match self.policy.key.node {
            NodeId::ABSENT => self.node,
            node => node,
        }
    }
}

/// Every place, the one for requests that no route takes last.
fn places(config: &Config) -> Vec<Place<'_>> {
    let top_level = || {
        config
            .limits
            .iter()
            .filter_map(|limit| met(config, limit.node, limit))
    };
    let routes = config.routes.iter().map(|route| {
        let own = route.limits.iter();
        let own = own.filter_map(|limit| met(config, limit.node, limit));
        let inherited = top_level().filter(|_| route.inherit.get());
        Place {
            route: Some(&route.value),
            node: route.node,
            policies: inherited.chain(own).collect(),
        }
    });
    let unmatched = Place {
        route: None,
        node: config.limits.node,
        policies: top_level().collect(),
    };
    routes.chain([unmatched]).collect()
}

/// The policy that a limit is, unless it is disabled.
fn met<'a>(config: &'a Config, node: NodeId, limit: &'a Limit) -> Option<Met<'a>> {
    let (policy, node) = match limit {
        Limit::InPlace(policy) => (&**policy, node),
        Limit::Named(name) => {
            let policy = config.policies.get(name.as_str())?;
            (&policy.value, policy.node)
        }
    };
    let action = policy.on_limit.action_beside(&config.responses.on_limit);
    (policy.mode.value != Mode::Disabled).then_some(Met {
        policy,
        node,
        action,
    })
}

/// Every policy that requests meet, once.
fn policies<'a>(places: &[Place<'a>]) -> Vec<Met<'a>> {
    let mut seen = std::collections::HashSet::new();
    let all = places.iter().flat_map(|place| &place.policies);
    all.filter(|met| seen.insert(met.node)).copied().collect()
}

#[cfg(test)]
mod tests;
