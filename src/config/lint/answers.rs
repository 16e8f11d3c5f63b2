//! Settings of refusals that no client sees.

use super::{AppliedPolicy, Finding, RouteLimits, policies};
use crate::config::diagnostic::Code;
use crate::config::schema::Action;
use crate::config::{NodeId, node_of};
use crate::proxy::Template;

/// Placeholders of the policy's own values.
const OWN_VALUES: [&str; 2] = ["policy", "quota"];

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

/// Warns of an `announce` on policies that no response speaks of anyway, and of bodies that speak of
/// policies with `announce: false`.
pub(super) fn announcements(places: &[RouteLimits<'_>]) -> Vec<Finding> {
    policies(places).iter().filter_map(announcement).collect()
}

fn announcement(applied: &AppliedPolicy<'_>) -> Option<Finding> {
    let announce = &applied.policy.announce;
    if announce.node == NodeId::ABSENT {
        return None;
    }
    let action = node_of(&applied.policy.on_limit.action);
    let message = match applied.action {
        Action::Decoy => "no response speaks of a policy with a decoy",
        Action::Tag => "no response speaks of a policy that tags",
        Action::Reject | Action::Tarpit | Action::Drop if announce.get() => return None,
        Action::Reject | Action::Tarpit | Action::Drop => return nameless_body(applied),
    };
    let finding = Finding::warning(announce.node, Code::NoEffect, message);
    let finding = finding.related(action, "what becomes of requests beyond it");
    Some(finding.help("remove `announce`"))
}

/// The body of a policy that is not announced has no value for its own name.
fn nameless_body(applied: &AppliedPolicy<'_>) -> Option<Finding> {
    let body = applied.policy.on_limit.body.as_ref()?;
    let template = Template::parse(body.as_str()).ok()?;
    let mut placeholders = template.placeholders();
    let name = placeholders.find(|name| OWN_VALUES.contains(name))?;
    let message = format!("`{{{{{name}}}}}` is empty in this body");
    let finding = Finding::warning(body.node, Code::NoEffect, message);
    let finding = finding.related(applied.policy.announce.node, "which keeps it to itself");
    Some(finding.help("remove the placeholder, or `announce: false`"))
}
