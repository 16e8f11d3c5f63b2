//! Settings of refusals that no client sees.

use super::{AppliedPolicy, Finding, RouteLimits, policies};
use crate::config::diagnostic::Code;
use crate::config::node_of;
use crate::config::schema::Action;

/// Warns of a `retry_after_jitter` on refusals without a `Retry-After`.
pub(super) fn idle_jitter(places: &[RouteLimits<'_>]) -> Vec<Finding> {
    policies(places)
        .iter()
        .filter_map(jitter_without_effect)
        .collect()
}

fn jitter_without_effect(applied: &AppliedPolicy<'_>) -> Option<Finding> {
    let jitter = applied.policy.retry_after_jitter.as_ref()?;
    let message = match applied.action {
        Action::Reject | Action::Tarpit => return None,
        Action::Decoy => "a decoy does not say when to come back",
        Action::Drop => "a dropped request gets no response that could say when to come back",
        Action::Tag => "a tagged request is admitted, and needs no time to come back",
    };
    let finding = Finding::warning(jitter.node, Code::NoEffect, message);
    let action = node_of(&applied.policy.on_limit.action);
    let finding = finding.related(action, "what becomes of requests beyond it");
    Some(finding.help("remove `retry_after_jitter`, or choose another `action`"))
}
