//! Token claims that keys, conditions and time zones use.

use super::document::NodeId;
use super::located::Located;
use super::schema::{Condition, Config, Limit, Policy};
use super::value::KeyPart;

/// Every used claim and its node.
pub(super) fn used(config: &Config) -> Vec<(&str, NodeId)> {
    let of_routes = config.routes.iter().flat_map(|route| route.limits.iter());
    let in_place = config.limits.iter().chain(of_routes);
    let in_place = in_place.filter_map(|limit| match &limit.value {
        Limit::InPlace(policy) => Some(&**policy),
        Limit::Named(_) => None,
    });
    let named = config.policies.values().map(|policy| &policy.value);
    let mut claims: Vec<_> = named.chain(in_place).flat_map(of_policy).collect();
    let exempt = config.exempt.iter().filter_map(|one| one.part.as_ref());
    claims.extend(exempt.filter_map(|part| match &part.value {
        KeyPart::Claim(name) => Some((name.as_str(), part.node)),
        _ => None,
    }));
    claims
}

fn of_policy(policy: &Policy) -> Vec<(&str, NodeId)> {
    let fallback = policy.on_missing_key.part();
    let fallback = fallback.map(|part| (part, policy.on_missing_key.node));
    let parts = policy.key.0.iter();
    let parts = parts
        .map(|Located { value, node }| (value, *node))
        .chain(fallback);
    let claims = parts.filter_map(|(part, node)| match part {
        KeyPart::Claim(name) => Some((name.as_str(), node)),
        _ => None,
    });
    let mut claims: Vec<_> = claims.collect();
    let zone = policy.time_zone.as_ref().and_then(|zone| zone.claim());
    claims.extend(zone.map(|claim| (claim.as_str(), claim.node)));
    if let Some(when) = &policy.when {
        of_condition(when, &mut claims);
    }
    claims
}

fn of_condition<'a>(condition: &'a Condition, claims: &mut Vec<(&'a str, NodeId)>) {
    let own = condition.jwt.iter();
    claims.extend(own.map(|(name, value)| (name.as_str(), value.node)));
    let inner = condition.any.iter().chain(condition.all.iter());
    inner.for_each(|one| of_condition(one, claims));
    if let Some(not) = &condition.not {
        of_condition(not, claims);
    }
}
