//! Checks of bans: their lengths, and refusals that can cause them.

use crate::config::diagnostic::Code;
use crate::config::finding::{Finding, Findings};
use crate::config::schema::{Action, Config, Mode, Policy};

/// The largest number of ban lengths.
const MAX_LENGTHS: usize = 16;

pub(in crate::config) fn check(policy: &Policy, config: &Config, findings: &Findings<'_>) {
    let Some(penalty) = &policy.penalty else {
        return;
    };
    let lengths = &penalty.lengths;
    if lengths.is_empty() || lengths.len() > MAX_LENGTHS {
        let message = format!("a penalty has 1 to {MAX_LENGTHS} lengths of bans");
        let finding = Finding::error(lengths.node, Code::NoValue, message);
        findings
            .add(finding.help("say how long the first is, and those after it: `for: [2m, 10m]`"));
    }
    for (first, second) in lengths.iter().zip(lengths.iter().skip(1)) {
        if second.get() < first.get() {
            let message = "a ban is not shorter than the one before";
            let finding = Finding::error(second.node, Code::Conflict, message);
            findings.add(
                finding
                    .help("put them in order")
                    .related(first.node, "the one before"),
            );
        }
    }
    let action = policy.on_limit.action.as_ref();
    let action = action.or(config.responses.on_limit.action.as_ref());
    if let Some(action) = action.filter(|action| action.value == Action::Tag) {
        let message = "a policy that tags refuses nobody, and bans nobody";
        let finding =
            Finding::error(penalty.node, Code::NoEffect, message).help("remove `penalty`");
        findings.add(finding.related(action.node, "the action"));
    } else if policy.mode.value == Mode::Shadow {
        let message = "a policy in shadow refuses nobody, and bans nobody";
        let finding = Finding::warning(penalty.node, Code::NoEffect, message);
        findings.add(finding.related(policy.mode.node, "the mode"));
    }
}
