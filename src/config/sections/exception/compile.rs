//! Compiles exceptions of policies for the routes on which they apply.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use crate::config::schema::{Config, OnMissingKey, Policy, Selection};
use crate::config::value::KeyPart;
use crate::rules::{self, Exceptions, Selector, Selectors};

/// The compiled exceptions of all policies. Routes with the same compiled key parts share them.
#[derive(Default)]
pub(in crate::config) struct ExceptionCache {
    by_policy: RefCell<HashMap<usize, PolicyExceptions>>,
}

struct PolicyExceptions {
    /// The key parts that exceptions name.
    parts: Vec<KeyPart>,
    /// Compiled key parts, with the exceptions on them.
    known: Vec<(Vec<rules::KeyPart>, CompiledExceptions)>,
}

/// The compiled exceptions of one policy.
#[derive(Clone, Default)]
struct CompiledExceptions {
    exempt: Arc<Selectors>,
    overrides: Arc<Selectors>,
}

impl ExceptionCache {
    /// The exceptions of the checked policy at `index`, joined with the global exemptions. `part`
    /// compiles key parts for the route.
    pub(in crate::config) fn of(
        &self,
        (index, policy): (usize, &Policy),
        from_all: &Arc<Selectors>,
        part: impl Fn(&KeyPart) -> rules::KeyPart,
    ) -> Option<Exceptions> {
        let CompiledExceptions { exempt, overrides } = self.own(index, policy, part);
        Exceptions::new(Arc::clone(from_all), exempt, overrides)
    }

    fn own(
        &self,
        index: usize,
        policy: &Policy,
        part: impl Fn(&KeyPart) -> rules::KeyPart,
    ) -> CompiledExceptions {
        if policy.exempt.is_empty() && policy.overrides.is_empty() {
            return CompiledExceptions::default();
        }
        let mut by_policy = self.by_policy.borrow_mut();
        let of_policy = by_policy.entry(index).or_insert_with(|| PolicyExceptions {
            parts: parts(policy),
            known: Vec::new(),
        });
        let parts: Vec<_> = of_policy.parts.iter().map(part).collect();
        let mut known = of_policy.known.iter();
        if let Some((_, own)) = known.find(|(known, _)| *known == parts) {
            return own.clone();
        }
        let compiled: Vec<_> = of_policy.parts.iter().zip(&parts).collect();
        let own = own(policy, &compiled);
        of_policy.known.push((parts, own.clone()));
        own
    }
}

fn parts(policy: &Policy) -> Vec<KeyPart> {
    let exempt = policy.exempt.iter().map(|one| one.selection());
    let overrides = policy.overrides.iter().map(|one| one.selection());
    let mut parts = Vec::new();
    for selection in exempt.chain(overrides) {
        if let Some(part) = selection
            .part_of(policy)
            .filter(|part| !parts.contains(*part))
        {
            parts.push(part.clone());
        }
    }
    parts
}

/// Compiles the exceptions of a policy with the compiled key parts.
fn own(policy: &Policy, parts: &[(&KeyPart, &rules::KeyPart)]) -> CompiledExceptions {
    let selector = |selection: Selection<'_>| {
        let part = selection.part_of(policy).and_then(|wanted| {
            let (_, part) = parts.iter().find(|(part, _)| *part == wanted)?;
            Some(rules::KeyPart::clone(part))
        });
        selector(selection, part)
    };
    let exempt = policy.exempt.iter();
    let overrides = policy.overrides.iter();
    let exempt = exempt.filter_map(|one| selector(one.selection()));
    let overrides = overrides.filter_map(|one| selector(one.selection()));
    let stand_in = match &policy.on_missing_key.value {
        OnMissingKey::Value(value) => Some(value.as_str()),
        _ => None,
    };
    let selectors = |list| Arc::new(Selectors::new(list).with_stand_in(stand_in));
    CompiledExceptions {
        exempt: selectors(exempt.collect()),
        overrides: selectors(overrides.collect()),
    }
}

/// The exemptions from all limits.
pub(in crate::config) fn global_exemptions(
    config: &Config,
    part: impl Fn(&KeyPart) -> rules::KeyPart,
) -> Selectors {
    let exempt = config.exempt.iter();
    let selectors = exempt.filter_map(|one| {
        let named = one.part.as_ref().map(|named| part(&named.value));
        selector(one.selection(), named)
    });
    Selectors::new(selectors.collect())
}

fn selector(selection: Selection<'_>, part: Option<rules::KeyPart>) -> Option<Selector> {
    if let Some(cidr) = selection.cidr {
        return Some(Selector::Network(cidr.get()));
    }
    match (selection.value, selection.prefix) {
        (Some(value), _) => Some(Selector::Value(part?, value.as_str().to_owned())),
        (None, Some(prefix)) => Some(Selector::Prefix(part?, prefix.as_str().to_owned())),
        (None, None) => None,
    }
}
