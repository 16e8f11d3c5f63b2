//! `on_missing_key` of a policy, for requests without a part of its key.

use derive_more::Display;

use crate::config::sections::prelude::*;

by_form! {
    /// The rule for requests without one of the parts.
    #[derive(PartialEq, Eq, Display)]
    pub enum OnMissingKey("OnMissingKey", "`skip`, `refuse`, `shared`, a part that stands in, as `client_ip`, or a value: `{ value: free }`") {
        /// A part, or what happens instead.
        Word(MissingKeyWord) = "scalar",
        /// A constant value.
        #[display("{{ value: {} }}", _0.value)]
        Constant(ConstantValue) = "mapping",
    }
}

/// A constant value for the part that is missing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
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
