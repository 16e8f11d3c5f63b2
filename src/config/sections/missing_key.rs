//! `on_missing_key` of a policy, for requests without a part of its key.

use derive_more::Display;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::located::Located;
use crate::config::located::written_by_form;
use crate::config::value::{KeyPart, KeyValue, MissingKeyWord};

/// The rule for requests without one of the parts.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema, Display)]
#[serde(
    rename = "$form",
    expecting = "`skip`, `refuse`, `shared`, a part that stands in, as `client_ip`, or a value: `{ value: free }`"
)]
#[schemars(rename = "OnMissingKey", untagged)]
pub enum OnMissingKey {
    /// A part, or what happens instead.
    #[serde(rename = "scalar")]
    Word(MissingKeyWord),
    /// A constant value.
    #[display("{{ value: {} }}", _0.value)]
    #[serde(rename = "mapping")]
    Constant(ConstantValue),
}

written_by_form!(OnMissingKey: Word, Constant);

/// A constant value for the part that is missing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ConstantValue {
    /// The value, as if the request had sent it: the bucket is the same, and so are `overrides` and
    /// `exempt`.
    pub value: Located<KeyValue>,
}

impl OnMissingKey {
    /// The part that stands in for a missing one.
    pub fn part(&self) -> Option<&KeyPart> {
        match self {
            Self::Word(MissingKeyWord::Part(part)) => Some(part),
            _ => None,
        }
    }
}
