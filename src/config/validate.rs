//! Checks beyond the types: names resolve, settings fit together, nothing stands twice. Every check
//! adds its findings and goes on.

mod algorithms;
mod answers;
mod applicability;
mod concurrency;
mod conditions;
mod costs;
mod exceptions;
mod jwt;
mod limits;
mod listeners;
mod overflow;
mod penalties;
mod policies;
mod redis;
mod routes;
mod upstreams;

use std::collections::HashMap;
use std::hash::Hash;

use super::diagnostic::Code;
use super::document::NodeId;
use super::finding::{Finding, Findings};
use super::located::Located;
use super::schema::Config;

/// Checks a whole configuration.
pub(super) fn validate(config: &Config, findings: &Findings<'_>) {
    listeners::check(config, findings);
    upstreams::check(config, findings);
    jwt::check(config, findings);
    redis::check(config, findings);
    policies::check(config, findings);
    exceptions::check_top_level(config, findings);
    limits::check(config, findings);
    routes::check(config, findings);
    answers::check(config, findings);
}

/// Reports every item that equals an earlier one.
fn report_repeated<T: Eq + Hash>(
    items: impl IntoIterator<Item = (T, NodeId)>,
    findings: &Findings<'_>,
    describe: impl Fn(&T) -> (String, &'static str),
) {
    let mut seen = HashMap::new();
    for (item, node) in items {
        if let Some(&first) = seen.get(&item) {
            let (message, help) = describe(&item);
            let finding = Finding::error(node, Code::DuplicateName, message).help(help);
            findings.add(finding.related(first, "it stands here first"));
        } else {
            seen.insert(item, node);
        }
    }
}

/// Reports an empty list.
fn report_empty<T>(list: &Located<Vec<T>>, findings: &Findings<'_>, help: &str) {
    if list.is_empty() {
        findings.add(Finding::error(list.node, Code::NoValue, "an empty list").help(help));
    }
}

/// True for fields that belong to one connection or to message framing (RFC 9110, 7.6.1).
fn is_framing(name: &http::HeaderName) -> bool {
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
