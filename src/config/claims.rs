//! Token claims that keys, hashes, conditions and time zones use.

use super::document::NodeId;
use super::schema::{Condition, Config, Policy};
use super::value::KeyPart;

/// Every used claim and its node.
pub(super) fn used(config: &Config) -> Vec<(&str, NodeId)> {
    let mut claims: Vec<_> = config.all_policies().flat_map(of_policy).collect();
    let hashes = config.upstreams.values();
    let hashes = hashes.filter_map(|upstream| upstream.balance.key());
    let parts = hashes.flat_map(|key| &key.0);
    claims.extend(parts.filter_map(|part| of_part((&part.value, part.node))));
    let exempt = config.exempt.iter().filter_map(|one| one.part.as_ref());
    claims.extend(exempt.filter_map(|part| of_part((&part.value, part.node))));
    claims
}

fn of_part((part, node): (&KeyPart, NodeId)) -> Option<(&str, NodeId)> {
    match part {
        KeyPart::Claim(name) => Some((name, node)),
        _ => None,
    }
}

fn of_policy(policy: &Policy) -> Vec<(&str, NodeId)> {
    let mut claims: Vec<_> = policy.parts().filter_map(of_part).collect();
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
