//! Checks that many sections need: lists without items, items that stand twice, alternatives.

use std::collections::HashMap;
use std::hash::Hash;

use http::HeaderName;
use serde::Serialize;
use serde_json::Value;

use super::document::NodeValue;
use super::finding::{conflict, invalid};
use super::value::FieldName;
use super::{Code, Finding, Findings, List, Located, NodeId, Table};
use crate::proxy::TemplateError;

/// Reports every item that equals an earlier one. `describe` says what is wrong.
pub(super) fn report_repeated<T: Eq + Hash>(
    items: impl IntoIterator<Item = (T, NodeId)>,
    help: &str,
    findings: &Findings<'_>,
    describe: impl Fn(&T) -> String,
) {
    let mut seen = HashMap::new();
    for (item, node) in items {
        if let Some(&first) = seen.get(&item) {
            let finding = Finding::error(node, Code::DuplicateName, describe(&item)).help(help);
            findings.add(finding.related(first, "it stands here first"));
        } else {
            seen.insert(item, node);
        }
    }
}

/// Reports every value of a list that equals an earlier one.
pub(super) fn report_twice<T: Serialize>(list: &[Located<T>], findings: &Findings<'_>) {
    let items = list.iter().map(|item| (word(item), item.node));
    report_repeated(items, REMOVE_ONE, findings, |item| {
        format!("`{item}` twice")
    });
}

/// Advice on what stands twice.
pub(super) const REMOVE_ONE: &str = "remove one of them";

/// A scalar as it is written in the configuration.
pub(super) fn word(value: &impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(Value::String(text)) => text,
        other => other.unwrap_or_default().to_string(),
    }
}

/// Advice on an empty list or mapping that may be left out.
pub(super) const OPTIONAL: &str = "name one at least, or remove it";

/// Reports an empty list.
pub(super) fn report_empty<T>(all: &List<T>, findings: &Findings<'_>, help: &str) {
    if all.is_empty() {
        findings.add(Finding::error(all.node, Code::NoValue, "this is empty").help(help));
    }
}

/// Reports each list or mapping of the section at `node` that is empty, and optional.
pub(super) fn report_empty_options(node: NodeId, findings: &Findings<'_>) {
    for &option in findings.document.entries(node) {
        if let NodeValue::Sequence(all) | NodeValue::Mapping(all) = findings.document.value(option)
            && all.is_empty()
        {
            findings.add(Finding::error(option, Code::NoValue, "this is empty").help(OPTIONAL));
        }
    }
}

/// The error for a text with a wrong placeholder at `node`.
pub(super) fn wrong_text(node: NodeId, error: &TemplateError) -> Finding {
    let finding = invalid(node, error.to_string());
    finding.help(error.help.as_str())
}

/// These options of a section, and their nodes if they are given.
macro_rules! options {
    ($section:expr, $($key:ident),+) => {
        [$((stringify!($key), $crate::config::located::Given::given(&$section.$key))),+]
    };
}
pub(super) use options;

/// The options that are given.
pub(super) fn given<'k>(
    options: impl IntoIterator<Item = (&'k str, Option<NodeId>)>,
) -> impl Iterator<Item = (&'k str, NodeId)> {
    let options = options.into_iter();
    options.filter_map(|(key, node)| Some((key, node?)))
}

/// Reports options of which none is given, which `none` says, or several, with advice. Returns the
/// given option, if there is one alone.
pub(super) fn exactly_one<'k>(
    options: &[(&'k str, Option<NodeId>)],
    none: Finding,
    several: &str,
    findings: &Findings<'_>,
) -> Option<&'k str> {
    let mut given = given(options.iter().copied()).peekable();
    let Some((first, at)) = given.next() else {
        findings.add(none);
        return None;
    };
    let is_only = given.peek().is_none();
    for (other, node) in given {
        let finding = conflict(node, format!("`{other}` beside `{first}`")).at_key();
        findings.add(finding.related(at, "the other").help(several));
    }
    is_only.then_some(first)
}

/// Reports a field that the proxy writes itself: one of the connection, or of `own`. `help` says what
/// to do.
pub(super) fn report_reserved(
    name: &FieldName,
    node: NodeId,
    own: &[HeaderName],
    help: &str,
    findings: &Findings<'_>,
) {
    if is_framing(name.get()) || own.contains(name.get()) {
        findings.add(conflict(node, format!("the proxy writes `{name}` itself")).help(help));
    }
}

/// Checks the names of fields to remove beside those to set. `sender` is whose fields they are; `own`
/// are fields that the proxy writes itself.
pub(super) fn check_removed<V>(
    removed: &List<FieldName>,
    set: &Table<FieldName, V>,
    own: &[HeaderName],
    sender: &str,
    findings: &Findings<'_>,
) {
    for name in removed.iter() {
        report_reserved(name, name.node, own, "remove it from the list", findings);
        if let Some(other) = set.get(name) {
            let finding = conflict(name.node, format!("`{name}` is set and removed"));
            let finding = finding.related(other.node, "set here");
            let help = format!("setting a field replaces what the {sender} sent");
            findings.add(finding.help(help));
        }
    }
    report_twice(removed, findings);
}

/// True for fields that belong to one connection or to message framing (RFC 9110, 7.6.1).
pub(super) fn is_framing(name: &HeaderName) -> bool {
    matches!(
        name.as_str(),
        "connection"
            | "content-length"
            | "host"
            | "keep-alive"
            | "proxy-authenticate"
            | "proxy-authorization"
            | "proxy-connection"
            | "te"
            | "trailer"
            | "transfer-encoding"
            | "upgrade"
    )
}
