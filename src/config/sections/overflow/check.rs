//! Checks of overflow buckets: like the first, and few.

use crate::config::diagnostic::Code;
use crate::config::finding::{Finding, Findings};
use crate::config::schema::{Action, Config, Policy};
use crate::config::sections::algorithm;
use crate::config::sections::route::report_framing;

/// The most buckets of a policy, the first included.
const MAX_TIERS: usize = 3;

pub(in crate::config) fn check(policy: &Policy, config: &Config, findings: &Findings<'_>) {
    let action = policy.on_limit.action_over(&config.responses.on_limit);
    if let (Some(overflow), Action::Tag) = (&policy.overflow, action) {
        let message = "a policy that tags refuses nothing that could overflow";
        let finding = Finding::error(overflow.node, Code::Conflict, message);
        findings.add(finding.help("remove `overflow`, or use another `action`"));
    }
    check_tiers(policy, 1, config, findings);
}

fn check_tiers(policy: &Policy, above: usize, config: &Config, findings: &Findings<'_>) {
    let Some(overflow) = &policy.overflow else {
        return;
    };
    if above >= MAX_TIERS {
        let message = format!("a policy has {MAX_TIERS} buckets at most");
        let finding = Finding::error(overflow.node, Code::Conflict, message).at_key();
        return findings.add(finding.help("remove this one"));
    }
    for (name, _) in overflow.priority_header.iter() {
        report_framing(&name.value, name.node, findings);
    }
    let next = overflow.applied_to(policy);
    algorithm::check(&next, overflow.node, config, findings);
    check_tiers(&next, above + 1, config, findings);
}
