//! `when` of a policy: the requests on which it applies.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::document::NodeId;
use crate::config::located::{List, Located, Table};
use crate::config::value::{Cidr, FieldName, FieldValue, Method, PathPattern, Text};

/// `when` of a policy; all that is said here must be met.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("minProperties" = 1))]
pub struct Condition {
    /// The method is one of these. `GET` does not include `HEAD`.
    #[schemars(length(min = 1))]
    #[serde(skip_serializing_if = "is_absent")]
    pub method: List<Method>,
    /// Fields with their exact values, all of them. One that is given with different values does not take a
    /// request out of the policy.
    #[serde(skip_serializing_if = "is_absent")]
    pub header: Table<FieldName, FieldValue>,
    /// Claims of the request's token, which has to be verified, with their exact values, all of them.
    #[serde(skip_serializing_if = "is_absent")]
    pub jwt: Table<Text, Text>,
    /// The path, as in `match` of a route: `/a/b` exactly, `/a/{name}` any one segment, `/a/**`
    /// everything below and `/a` itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<Located<PathPattern>>,
    /// The client's address is one of these, or in one of these networks.
    #[schemars(length(min = 1))]
    #[serde(skip_serializing_if = "is_absent")]
    pub cidr: List<Cidr>,
    /// One of these is met.
    #[schemars(length(min = 1))]
    #[serde(skip_serializing_if = "is_absent")]
    pub any: List<Condition>,
    /// All of these are met.
    #[schemars(length(min = 1))]
    #[serde(skip_serializing_if = "is_absent")]
    pub all: List<Condition>,
    /// This is not met.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not: Option<Located<Box<Condition>>>,
}

fn is_absent<T>(value: &Located<T>) -> bool {
    value.node == NodeId::ABSENT
}

impl Condition {
    /// True without any condition.
    pub fn is_empty(&self) -> bool {
        is_absent(&self.method)
            && is_absent(&self.header)
            && is_absent(&self.jwt)
            && self.path.is_none()
            && is_absent(&self.cidr)
            && is_absent(&self.any)
            && is_absent(&self.all)
            && self.not.is_none()
    }
}
