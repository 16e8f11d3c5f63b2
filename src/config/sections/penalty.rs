//! `penalty` of a policy: bans of keys that it has refused too often.

use crate::config::sections::prelude::*;
use crate::limiter;

/// `penalty` of a policy: bans of keys that it has refused too often.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
pub struct Penalty {
    /// How many refusals bring a ban about, 1 to 100. Those during a ban do not count.
    pub strikes: Located<StrikeCount>,
    /// Within which time, `1s` to `30d`.
    pub within: Located<PenaltyTime>,
    /// How long the bans are, one after the other, each `1s` to `30d`: the first, the second, and
    /// the last again and again. The first is back after `within` and the last ban without a
    /// refusal that counts.
    #[serde(rename = "for")]
    #[schemars(length(min = 1, max = 16))]
    pub lengths: List<PenaltyTime>,
}

/// Refusals that cause a ban.
pub type StrikeCount = Whole<1, 100>;

/// Lengths of bans, and the time in which refusals count.
pub type PenaltyTime = Duration<1_000, { 30 * 86_400_000 }>;

/// The largest number of ban lengths.
const MAX_LENGTHS: usize = 16;

pub(crate) fn check(policy: &Policy, config: &Config, findings: &Findings<'_>) {
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
            let finding = conflict(second.node, "a ban is not shorter than the one before");
            let finding = finding.help("put them in order");
            findings.add(finding.related(first.node, "the one before"));
        }
    }
    let action = policy.on_limit.action.as_ref();
    let action = action.or(config.responses.on_limit.action.as_ref());
    if let Some(action) = action.filter(|action| action.forwards()) {
        let message = "a policy that tags or routes refuses no client, and bans none";
        let finding = no_effect(penalty.node, message).help("remove `penalty`");
        findings.add(finding.related(action.node, "the action"));
    } else if policy.mode.value == Mode::Shadow {
        let message = "a policy in shadow refuses no client, and bans none";
        findings.add(warn_no_effect(penalty.node, message).related(policy.mode.node, "the mode"));
    }
}

/// Compiles a penalty.
pub(crate) fn compile(written: &Penalty) -> limiter::penalty::Penalty {
    let lengths = written.lengths.iter().map(|length| length.get());
    limiter::penalty::Penalty::new(
        written.strikes.get(),
        written.within.get(),
        lengths.collect(),
    )
}
