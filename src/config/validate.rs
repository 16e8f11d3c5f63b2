//! Checks beyond the types: names resolve, settings fit together, nothing stands twice. Every check
//! adds its findings and goes on.

use std::collections::HashMap;
use std::fmt::Display;
use std::hash::Hash;

use super::schema::Config;
use super::sections::{
    access_log, admin, exception, jwt, listener, policy, redis, responses, route, traces, upstream,
};
use super::{Code, Finding, Findings, List, Located, NodeId};

/// Checks a whole configuration.
pub(super) fn validate(config: &Config, findings: &Findings<'_>) {
    listener::check(config, findings);
    admin::check(config, findings);
    access_log::check(config, findings);
    traces::check(config, findings);
    upstream::check(config, findings);
    jwt::check(config, findings);
    redis::check(config, findings);
    policy::check(config, findings);
    exception::check_top_level(config, findings);
    route::check_limits(config, findings);
    route::check(config, findings);
    responses::check(config, findings);
}

/// Reports every item that equals an earlier one.
pub(super) fn report_repeated<T: Eq + Hash>(
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

/// Reports every value of a list that equals an earlier one.
pub(super) fn report_twice<T: Eq + Hash + Display>(list: &List<T>, findings: &Findings<'_>) {
    let items = list.iter().map(|item| (&item.value, item.node));
    report_repeated(items, findings, |item| {
        (format!("`{item}` twice"), "remove one of them")
    });
}

/// Reports an empty list.
pub(super) fn report_empty<T>(list: &Located<Vec<T>>, findings: &Findings<'_>, help: &str) {
    if list.is_empty() {
        findings.add(Finding::error(list.node, Code::NoValue, "an empty list").help(help));
    }
}

/// True for fields that belong to one connection or to message framing (RFC 9110, 7.6.1).
pub(super) fn is_framing(name: &http::HeaderName) -> bool {
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
