//! Exceptions of policies, as the routes that meet them read keys.

use std::sync::Arc;

use crate::config::schema::{Config, Policy, Selection};
use crate::config::value::KeyPart;
use crate::rules::{self, Exceptions, Selector, Selectors};

/// The exceptions of a policy that has been checked, whose parts `part` compiles, beside those from all limits.
pub(super) fn exceptions(
    policy: &Policy,
    from_all: &Arc<Selectors>,
    part: impl Fn(&KeyPart) -> rules::KeyPart,
) -> Option<Exceptions> {
    let selector = |who: Selection<'_>| selector(who, who.part_of(policy).map(&part));
    let exempt = policy.exempt.iter();
    let overrides = policy.overrides.iter();
    Exceptions::new(
        Arc::clone(from_all),
        exempt.filter_map(|one| selector(one.selection())).collect(),
        overrides
            .filter_map(|one| selector(one.selection()))
            .collect(),
    )
}

/// Whom no limit is about.
pub(super) fn from_all(config: &Config, part: impl Fn(&KeyPart) -> rules::KeyPart) -> Selectors {
    let exempt = config.exempt.iter();
    let selectors = exempt.filter_map(|one| {
        let named = one.part.as_ref().map(|named| part(&named.value));
        selector(one.selection(), named)
    });
    Selectors::new(selectors.collect())
}

fn selector(who: Selection<'_>, part: Option<rules::KeyPart>) -> Option<Selector> {
    if let Some(cidr) = who.cidr {
        return Some(Selector::Network(cidr.get()));
    }
    match (who.value, who.prefix) {
        (Some(value), _) => Some(Selector::Value(part?, value.as_str().to_owned())),
        (None, Some(prefix)) => Some(Selector::Prefix(part?, prefix.as_str().to_owned())),
        (None, None) => None,
    }
}
