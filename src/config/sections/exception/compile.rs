//! Compiles exceptions, for each way in which routes read them.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use crate::config::sections::condition::ConditionCompiler;
use crate::config::sections::prelude::*;
use crate::rules::{self, PathEquivalence, Selector, Selectors};

/// The compiled exceptions of all policies. Routes with the same compiled key parts share them.
#[derive(Default)]
pub(crate) struct ExceptionCache {
    by_policy: RefCell<HashMap<usize, PolicyExceptions>>,
}

struct PolicyExceptions {
    /// The key parts that exceptions name.
    parts: Vec<KeyPart>,
    /// True if a condition reads paths as the route does.
    is_conditional: bool,
    /// The exceptions, by the key parts and paths that routes read alike.
    known: Vec<(CompiledFor, CompiledExceptions)>,
}

/// The key parts as a route reads them, and the paths that it treats as equal, if these matter.
type CompiledFor = (Vec<rules::KeyPart>, Option<PathEquivalence>);

/// The compiled exceptions of one policy.
#[derive(Clone, Default)]
pub(crate) struct CompiledExceptions {
    pub(crate) exempt: Arc<Selectors>,
    pub(crate) overrides: Arc<Selectors>,
}

impl ExceptionCache {
    /// The exceptions of the checked policy at `index`. `part` compiles key parts for the route.
    pub(crate) fn of(
        &self,
        index: usize,
        policy: &Policy,
        part: impl Fn(&KeyPart) -> rules::KeyPart,
        conditions: ConditionCompiler<'_>,
    ) -> CompiledExceptions {
        if policy.exempt.is_empty() && policy.overrides.is_empty() {
            return CompiledExceptions::default();
        }
        let mut by_policy = self.by_policy.borrow_mut();
        let of_policy = by_policy.entry(index).or_insert_with(|| PolicyExceptions {
            parts: parts(policy),
            is_conditional: policy.selections().any(|one| one.when.is_some()),
            known: Vec::new(),
        });
        let parts = of_policy.parts.iter().map(&part).collect();
        let read: CompiledFor = (parts, of_policy.is_conditional.then_some(conditions.paths));
        let mut known = of_policy.known.iter();
        if let Some((_, own)) = known.find(|(known, _)| *known == read) {
            return own.clone();
        }
        let selector = |selection: &Selection| {
            compiled(selection, selection.part_of(policy).map(&part), conditions)
        };
        let exempt = policy.exempt.iter().filter_map(|one| selector(one));
        let overrides = policy.overrides.iter();
        let overrides = overrides.filter_map(|one| selector(&one.selection));
        let stand_in = match &policy.on_missing_key.value {
            OnMissingKey::Constant(constant) => Some(constant.value.as_str()),
            _ => None,
        };
        let selectors = |list| Arc::new(Selectors::new(list).with_stand_in(stand_in));
        let own = CompiledExceptions {
            exempt: selectors(exempt.collect()),
            overrides: selectors(overrides.collect()),
        };
        of_policy.known.push((read, own.clone()));
        own
    }
}

fn parts(policy: &Policy) -> Vec<KeyPart> {
    let mut parts = Vec::new();
    let selections = policy.selections();
    let named = selections.filter(|one| one.value.is_some() || one.prefix.is_some());
    for part in named.filter_map(|one| one.part_of(policy)) {
        if !parts.contains(part) {
            parts.push(part.clone());
        }
    }
    parts
}

/// The exemptions from all limits.
pub(crate) fn global_exemptions(
    config: &Config,
    part: impl Fn(&KeyPart) -> rules::KeyPart,
    conditions: ConditionCompiler<'_>,
) -> Selectors {
    let exempt = config.exempt.iter();
    let selectors = exempt.filter_map(|one| {
        let named = one.part.as_ref().map(|named| part(&named.value));
        compiled(one, named, conditions)
    });
    Selectors::new(selectors.collect())
}

fn compiled(
    selection: &Selection,
    part: Option<rules::KeyPart>,
    conditions: ConditionCompiler<'_>,
) -> Option<rules::Selection> {
    let clients = selector(selection, part);
    match &selection.when {
        Some(when) => Some(rules::Selection::When(conditions.condition(when), clients)),
        None => clients.map(rules::Selection::Clients),
    }
}

fn selector(selection: &Selection, part: Option<rules::KeyPart>) -> Option<Selector> {
    match (&selection.cidr, &selection.value, &selection.prefix) {
        (Some(cidr), ..) => Some(Selector::Network(*cidr.get())),
        (None, Some(value), _) => Some(Selector::Value(part?, value.reveal().to_string())),
        (None, None, Some(prefix)) => Some(Selector::Prefix(part?, prefix.reveal().to_string())),
        (None, None, None) => None,
    }
}
