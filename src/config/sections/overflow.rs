//! `overflow` of a policy: further buckets for requests that exceed the first.

use schemars::Schema;
use serde_json::Value;

use crate::config::sections::algorithm;
use crate::config::sections::prelude::*;

/// `overflow` of a policy: a second bucket, for requests that the first cannot pay. They are
/// admitted at a lower priority.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("anyOf" = [{ "required": ["quota"] }, { "required": ["capacity", "refill"] }]))]
#[schemars(transform = without_max)]
pub struct Overflow {
    /// The quota, or a capacity with a refill.
    #[serde(rename = "$amounts-max")]
    #[schemars(flatten)]
    pub amounts: Amounts,
    /// Fields that tell the upstream so, with their values; what clients write in them goes.
    pub priority_header: Table<FieldName, FieldValue>,
    /// The code point (DSCP) with which they are sent to the upstream, 0 to 63, over connections of
    /// their own.
    pub dscp: Option<Located<CodePoint>>,
    /// A third bucket, for requests that this one cannot pay either.
    pub overflow: Option<Located<Box<Overflow>>>,
}

/// Removes the `max` of requests in flight, which do not overflow.
fn without_max(schema: &mut Schema) {
    let properties = schema.get_mut("properties").and_then(Value::as_object_mut);
    properties.map(|properties| properties.remove("max"));
}

/// A code point of Differentiated Services (RFC 2474): six bits.
pub type CodePoint = Whole<0, 63>;

impl Overflow {
    /// The policy of the overflow bucket.
    pub fn applied_to(&self, policy: &Policy) -> Policy {
        Policy {
            amounts: self.amounts.clone(),
            overrides: Vec::new().into(),
            candidate: None,
            // The first bucket's policy bans.
            penalty: None,
            overflow: self.overflow.clone(),
            ..policy.clone()
        }
    }
}

/// The most buckets of a policy, the first included.
const MAX_TIERS: usize = 3;

pub(crate) fn check(policy: &Policy, config: &Config, findings: &Findings<'_>) {
    let action = policy.on_limit.action_over(&config.responses.on_limit);
    if let Some(overflow) = policy.overflow.as_ref().filter(|_| action.forwards()) {
        let message = "a policy that tags or routes refuses nothing that could overflow";
        let finding = conflict(overflow.node, message);
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
        let finding = conflict(overflow.node, message).at_key();
        return findings.add(finding.help("remove this one"));
    }
    for (name, _) in overflow.priority_header.iter() {
        report_reserved(
            name,
            name.node,
            &[],
            "choose another name, as in `x-priority`",
            findings,
        );
    }
    let next = overflow.applied_to(policy);
    algorithm::check(&next, overflow.node, config, findings);
    check_tiers(&next, above + 1, config, findings);
}
