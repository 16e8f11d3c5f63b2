//! Settings of refusals that no client sees.

use super::AppliedPolicy;
use crate::config::sections::prelude::*;
use crate::proxy::Template;

/// Placeholders of the policy's own values.
const OWN_VALUES: [&str; 2] = ["policy", "quota"];

/// Warns of a `retry_after_jitter` on refusals without a `Retry-After`.
pub(super) fn idle_jitter(applied: &AppliedPolicy<'_>) -> Option<Finding> {
    let node = applied.policy.retry_after_jitter.given()?;
    let message = match applied.action {
        Action::Reject | Action::Tarpit | Action::Wait => return None,
        Action::Decoy => "a decoy does not say when to come back",
        Action::Drop => "a dropped request gets no response that could say when to come back",
        Action::Tag | Action::Route => {
            "a request beyond the quota is served, and needs no time to come back"
        }
    };
    let finding = without_effect(applied, node, message);
    Some(finding.help("remove `retry_after_jitter`, or choose another `action`"))
}

/// Warns of an `announce` on policies that no response speaks of anyway.
pub(super) fn announcement(applied: &AppliedPolicy<'_>) -> Option<Finding> {
    let node = applied.policy.announce.given()?;
    let message = match applied.action {
        Action::Decoy => "no response speaks of a policy with a decoy",
        Action::Tag => "no response speaks of a policy that tags",
        _ => return None,
    };
    let finding = without_effect(applied, node, message);
    Some(finding.help("remove `announce`"))
}

fn without_effect(applied: &AppliedPolicy<'_>, node: NodeId, message: &str) -> Finding {
    let action = applied.policy.on_limit.action.given();
    let finding = warn_no_effect(node, message);
    finding.related(action, "what happens to requests beyond it")
}

/// Warns of bodies that name their policy, which is not announced: they have no value for its name.
pub(super) fn nameless_body(applied: &AppliedPolicy<'_>) -> Option<Finding> {
    let announce = Some(&applied.policy.announce).filter(|announce| !announce.get())?;
    let body = applied.policy.on_limit.body.as_ref()?;
    let template = Template::parse(body.as_str()).ok()?;
    let mut placeholders = template.placeholders();
    let name = placeholders.find(|name| OWN_VALUES.contains(name))?;
    if let Action::Decoy | Action::Tag = applied.action {
        return None;
    }
    let finding = warn_no_effect(body.node, format!("`{{{{{name}}}}}` is empty in this body"));
    let finding = finding.related(announce.node, "which keeps it to itself");
    Some(finding.help("remove the placeholder, or `announce: false`"))
}
