//! `when` of a policy: the requests on which it applies.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::checks::{report_empty, report_twice};
use crate::config::value::{
    Cidr, FieldName, FieldValue, Hidden, Method, PathPattern, Text, hidden_fields,
};
use crate::config::{Code, Finding, Findings, List, Located, NodeId, Table};
use crate::rules::{self, PathCondition, PathEquivalence};

/// `when` of a policy; all that is said here must be met.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("minProperties" = 1))]
pub struct Condition {
    /// The method is one of these. `GET` does not include `HEAD`.
    #[schemars(length(min = 1))]
    #[serde(skip_serializing_if = "is_absent")]
    pub method: List<Method>,
    /// Fields with their exact values, all of them. One that is given with different values does
    /// not take a request out of the policy.
    #[serde(skip_serializing_if = "is_absent")]
    pub header: Table<FieldName, Hidden<FieldValue>>,
    /// Claims of the request's token, which has to be verified, with their exact values, all of
    /// them.
    #[serde(skip_serializing_if = "is_absent")]
    pub jwt: Table<Text, Hidden<Text>>,
    /// The path, as in `match` of a route: `/a/b` exactly, `/a/{name}` any one segment, `/a/**`
    /// everything below and `/a` itself.
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

/// Checks the condition at `node` and those inside it.
pub(in crate::config) fn check(condition: &Condition, node: NodeId, findings: &Findings<'_>) {
    if condition.is_empty() {
        let finding = Finding::error(node, Code::NoValue, "a condition that says nothing");
        findings.add(finding.help("add a condition, as in `{ method: [POST] }`, or remove it"));
    }
    report_empty(
        &condition.method,
        findings,
        "name a method at least, or remove it",
    );
    report_empty(
        &condition.cidr,
        findings,
        "name a network at least, or remove it",
    );
    report_empty(
        &condition.header,
        findings,
        "name a field at least, or remove it",
    );
    report_empty(
        &condition.jwt,
        findings,
        "name a claim at least, or remove it",
    );
    for list in [&condition.any, &condition.all] {
        report_empty(list, findings, "give it a condition at least, or remove it");
        for inner in list.iter() {
            check(inner, inner.node, findings);
        }
    }
    if let Some(not) = &condition.not {
        check(not, not.node, findings);
    }
    report_twice(&condition.method, findings);
    report_twice(&condition.cidr, findings);
}

/// Compiles a checked condition for a route on which `form` makes paths equal.
pub(in crate::config) fn condition(written: &Condition, form: PathEquivalence) -> rules::Condition {
    let mut all = Vec::new();
    if !written.method.is_empty() {
        let methods = written.method.iter().map(|method| method.get().clone());
        all.push(rules::Condition::Method(methods.collect()));
    }
    let fields = hidden_fields(&written.header);
    all.extend(fields.map(|(name, value)| rules::Condition::Header(name, value)));
    let claims = written.jwt.iter();
    all.extend(claims.map(|(name, value)| {
        rules::Condition::Claim(name.as_str().to_owned(), value.reveal().as_str().to_owned())
    }));
    if let Some(path) = &written.path {
        let path = PathCondition::new(path.comparable(), form);
        all.push(rules::Condition::Path(path));
    }
    if !written.cidr.is_empty() {
        let networks = written.cidr.iter().map(|cidr| cidr.get());
        all.push(rules::Condition::ClientIp(networks.collect()));
    }
    let list = |list: &List<Condition>| {
        let conditions = list.iter().map(|one| condition(one, form));
        conditions.collect::<Vec<_>>()
    };
    if !written.any.is_empty() {
        all.push(rules::Condition::Any(list(&written.any)));
    }
    all.append(&mut list(&written.all));
    if let Some(not) = &written.not {
        all.push(rules::Condition::Not(Box::new(condition(not, form))));
    }
    match <[rules::Condition; 1]>::try_from(all) {
        Ok([only]) => only,
        Err(all) => rules::Condition::All(all),
    }
}
