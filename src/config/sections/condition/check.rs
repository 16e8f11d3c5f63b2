//! Checks of conditions: not empty, and without repetitions.

use crate::config::diagnostic::Code;
use crate::config::document::NodeId;
use crate::config::finding::{Finding, Findings};
use crate::config::schema::Condition;
use crate::config::validate::{report_empty, report_repeated};

/// Checks the condition at `node` and those inside it.
pub(in crate::config) fn check(condition: &Condition, node: NodeId, findings: &Findings<'_>) {
    if condition.is_empty() {
        let finding = Finding::error(node, Code::NoValue, "a condition that says nothing");
        findings.add(finding.help("say what is asked, as in `{ method: [POST] }`, or remove it"));
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
    for list in [&condition.any, &condition.all] {
        report_empty(list, findings, "give it a condition at least, or remove it");
        for inner in list.iter() {
            check(inner, inner.node, findings);
        }
    }
    if condition.header.is_empty() {
        let finding = Finding::error(condition.header.node, Code::NoValue, "an empty mapping");
        findings.add(finding.help("name a field at least, or remove it"));
    }
    if condition.jwt.is_empty() {
        let finding = Finding::error(condition.jwt.node, Code::NoValue, "an empty mapping");
        findings.add(finding.help("name a claim at least, or remove it"));
    }
    if let Some(not) = &condition.not {
        check(not, not.node, findings);
    }
    let methods = condition
        .method
        .iter()
        .map(|method| (&method.value, method.node));
    report_repeated(methods, findings, twice);
    let networks = condition.cidr.iter().map(|cidr| (&cidr.value, cidr.node));
    report_repeated(networks, findings, twice);
}

fn twice(item: &impl std::fmt::Display) -> (String, &'static str) {
    (format!("`{item}` twice"), "remove one of them")
}
