//! `on_missing_key` of a policy, for requests without a part of its key.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};

use crate::config::located::Located;
use crate::config::value::{KeyPart, KeyValue, MissingKeyWord};

/// What happens to a request without one of the parts.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(from = "OnMissingKeyForm")]
pub enum OnMissingKey {
    /// Another part stands in for it.
    Part(KeyPart),
    /// The policy does not apply.
    Skip,
    /// The request is refused.
    Refuse,
    /// All such requests share one bucket.
    Shared,
    /// The part has this value.
    Value(KeyValue),
}

#[derive(Deserialize, JsonSchema)]
#[serde(
    rename = "$form",
    rename_all = "snake_case",
    expecting = "`skip`, `refuse`, `shared`, a part that stands in, as `client_ip`, or a value: `{ value: free }`"
)]
#[schemars(rename = "OnMissingKey", untagged)]
enum OnMissingKeyForm {
    /// A part, or what happens instead.
    Scalar(MissingKeyWord),
    /// A constant value.
    Mapping(ConstantValue),
}

/// A constant value for the part that is missing.
#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ConstantValue {
    /// The value, as if the request had sent it: the bucket is the same, and so are `overrides` and `exempt`.
    value: Located<KeyValue>,
}

impl From<OnMissingKeyForm> for OnMissingKey {
    fn from(form: OnMissingKeyForm) -> Self {
        match form {
            OnMissingKeyForm::Scalar(MissingKeyWord::Part(part)) => Self::Part(part),
            OnMissingKeyForm::Scalar(MissingKeyWord::Skip) => Self::Skip,
            OnMissingKeyForm::Scalar(MissingKeyWord::Refuse) => Self::Refuse,
            OnMissingKeyForm::Scalar(MissingKeyWord::Shared) => Self::Shared,
            OnMissingKeyForm::Mapping(constant) => Self::Value(constant.value.value),
        }
    }
}

/// Dropping a header so escapes no limit.
impl Default for OnMissingKey {
    fn default() -> Self {
        Self::Part(KeyPart::ClientIp)
    }
}

impl OnMissingKey {
    /// The part that stands in for a missing one.
    pub fn part(&self) -> Option<&KeyPart> {
        match self {
            Self::Part(part) => Some(part),
            Self::Skip | Self::Refuse | Self::Shared | Self::Value(_) => None,
        }
    }
}

impl fmt::Display for OnMissingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Part(part) => part.fmt(f),
            Self::Skip => f.write_str("skip"),
            Self::Refuse => f.write_str("refuse"),
            Self::Shared => f.write_str("shared"),
            Self::Value(value) => write!(f, "{{ value: {value} }}"),
        }
    }
}

/// Serializes the written form.
impl Serialize for OnMissingKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Value(value) => {
                let value = value.clone().into();
                ConstantValue { value }.serialize(serializer)
            }
            word => serializer.collect_str(word),
        }
    }
}
