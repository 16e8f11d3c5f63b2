//! `overflow` of a policy: further buckets for requests that exceed the first.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::located::{Located, Table};
use crate::config::schema::{Policy, Units};
use crate::config::value::{FieldName, FieldValue, Quota, Refill, Whole};

/// `overflow` of a policy: a second bucket, for requests that the first cannot pay. They are admitted at a lower
/// priority.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("anyOf" = [{ "required": ["quota"] }, { "required": ["capacity", "refill"] }]))]
pub struct Overflow {
    /// The quota; 0 refuses always.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quota: Option<Located<Quota>>,
    /// The burst; as many units as this quota has unless given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub burst: Option<Located<Units>>,
    /// The capacity, with a `refill`, in place of a `quota`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity: Option<Located<Units>>,
    /// The refill, with a `capacity`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refill: Option<Located<Refill>>,
    /// Fields that tell the upstream so, with their values; what clients write in them goes.
    pub priority_header: Table<FieldName, FieldValue>,
    /// The code point (DSCP) with which they are sent to the upstream, 0 to 63, over connections of their own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dscp: Option<Located<CodePoint>>,
    /// A third bucket, for requests that this one cannot pay either.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overflow: Option<Located<Box<Overflow>>>,
}

/// A code point of Differentiated Services (RFC 2474): six bits.
pub type CodePoint = Whole<0, 63>;

impl Overflow {
    /// The policy of the overflow bucket.
    pub fn applied_to(&self, policy: &Policy) -> Policy {
        Policy {
            quota: self.quota.clone(),
            burst: self.burst.clone(),
            capacity: self.capacity.clone(),
            refill: self.refill.clone(),
            overrides: Vec::new().into(),
            candidate: None,
            // The first bucket's policy bans.
            penalty: None,
            overflow: self.overflow.clone(),
            ..policy.clone()
        }
    }
}
