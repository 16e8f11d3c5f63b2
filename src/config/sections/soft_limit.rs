//! `soft_limits` of a policy: other answers to requests before its quota is used up.

use crate::config::sections::prelude::*;
use crate::config::sections::responses;

/// An item of `soft_limits`: requests beyond it are charged, and answered as it says.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
pub struct SoftLimit {
    /// The used units of a bucket beyond which requests are answered so, 1 or more: fewer than a
    /// full bucket holds.
    pub above: Located<WindowUnits>,
    /// Responses to these requests; the policy's `on_limit` fills in.
    pub on_limit: Located<OnLimit>,
}

/// The most soft limits of a policy.
const MOST: usize = 8;

pub(crate) fn check(policy: &Policy, config: &Config, findings: &Findings<'_>) {
    let (soft_limits, general) = (&policy.soft_limits, &config.responses.on_limit);
    if soft_limits.is_empty() {
        return;
    }
    let of_policy = policy.on_limit.over(general);
    let finding = |message: &str| conflict(soft_limits.node, message).at_key();
    if of_policy.action_over(general).forwards() {
        let finding = finding("a policy that tags or routes has no soft limits");
        let finding = finding.related(of_policy.action.given(), "the other setting");
        findings.add(finding.help("do so in a soft limit, and let the policy refuse"));
    }
    if let Some(overflow) = &policy.overflow {
        let finding = finding("requests beyond a soft limit do not overflow");
        let finding = finding.related(overflow.node, "the other setting");
        findings.add(finding.help("remove `soft_limits` or `overflow`"));
    }
    let count = soft_limits.len();
    if count > MOST {
        let message = format!("{count} soft limits, where there can be {MOST}");
        let finding = invalid(soft_limits.node, message).at_key();
        findings.add(finding.help("remove some"));
    }
    let (capacity, mut before) = (policy.amounts.capacity(), 0);
    for soft in soft_limits.iter() {
        let above = soft.above.units();
        // A quota that is missing is reported elsewhere.
        if capacity > 0 && !(before + 1..capacity).contains(&above) {
            let message = format!(
                "expected more than {before} and less than {capacity} units, found `{above}`"
            );
            let finding = invalid(soft.above.node, message);
            findings.add(finding.help(
                "put soft limits in ascending order, below what a full bucket holds (`quota`, `burst` or `capacity`)",
            ));
        }
        before = before.max(above);
        responses::check_policy(&soft.on_limit, &of_policy, config, findings);
        if soft.on_limit.action_over(&of_policy) == Action::Wait {
            let message = "a request beyond a soft limit has its units, and waits for none";
            let node = soft.on_limit.action.given().unwrap_or(soft.node);
            findings.add(conflict(node, message).help("choose another `action` for it"));
        }
    }
}
