//! Exceptions of policies, as the routes that meet them read keys.

use crate::config::schema::{Policy, Selection};
use crate::config::value::KeyPart;
use crate::rules::{self, Exceptions, Selector};

/// The exceptions of a policy that has been checked, whose parts `part` compiles.
pub(super) fn exceptions(
    policy: &Policy,
    part: impl Fn(&KeyPart) -> rules::KeyPart,
) -> Option<Exceptions> {
    let selector = |who: Selection<'_>| {
        let part = who.part_of(policy).map(&part);
        match (who, part) {
            (
                Selection {
                    cidr: Some(cidr), ..
                },
                _,
            ) => Some(Selector::Network(cidr.get())),
            (
                Selection {
                    value: Some(value), ..
                },
                Some(part),
            ) => Some(Selector::Value(part, value.as_str().to_owned())),
            (
                Selection {
                    prefix: Some(prefix),
                    ..
                },
                Some(part),
            ) => Some(Selector::Prefix(part, prefix.as_str().to_owned())),
            _ => None,
        }
    };
    let exempt = policy.exempt.iter();
    let overrides = policy.overrides.iter();
    Exceptions::new(
        exempt.filter_map(|one| selector(one.selection())).collect(),
        overrides
            .filter_map(|one| selector(one.selection()))
            .collect(),
    )
}
