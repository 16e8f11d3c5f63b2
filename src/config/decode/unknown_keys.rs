//! Keys that the schema doesn't have where they stand, with advice.

use super::Reader;
use crate::config::Finding;
use crate::config::diagnostic::Code;
use crate::config::document::{EXTENSION, JOINED, NodeId, NodeValue};
use crate::nearest;

/// The longest unknown key that is shown without a known one that is near, in bytes.
const MAX_UNKNOWN_KEY: usize = 32;

/// The most words of a key such as `trustedProxies`; a secret with capital letters looks like more.
const MAX_WORDS: usize = 4;

/// Words of other proxies, each group with the key that means the same, and advice.
const FOREIGN: [(&str, &str, &str); 7] = [
    (
        "average interval limit per period rate requests rpm rps time_window window",
        "quota",
        "say how many in which time: `quota: 100/1m`",
    ),
    (
        "concurrent connections in_flight max_concurrent max_connections max_in_flight",
        "quota",
        "for requests at the same time, write `algorithm: concurrency` and `max: 20`",
    ),
    (
        "dry_run enforce log_only report_only shadow",
        "mode",
        "write `mode: shadow` to count without refusing",
    ),
    (
        "ban ban_time block jail",
        "penalty",
        "ban clients that keep asking: `penalty: { strikes: 5, within: 1m, for: [10m] }`",
    ),
    (
        "from",
        "response_header",
        "say where the cost stands: `header: x-cost`, or in responses `response_header: x-cost`",
    ),
    (
        "bind listen port",
        "listeners",
        "say where clients connect: `listeners: [{ address: \"[::]:8080\" }]`",
    ),
    (
        "backend proxy_pass service target to",
        "upstream",
        "name the upstream, or its URL: `upstream: http://10.0.0.11:3000`",
    ),
];

const UNDER_MATCH: &str = "put it under `match`: `match: { KEY: .. }`";
const UNDER_RESPONSES: &str = "put it under `responses`, at the top: `responses: { KEY: .. }`";
const UNDER_REWRITE: &str = "put it under `rewrite` of the route: `rewrite: { KEY: .. }`";
const UNDER_WHEN: &str = "put it under `when`: `when: { ONE: .. }`";
const POLICY: &str = "name the policy as a text: `limits: [login]`; its `overrides` have other amounts for some keys";

/// Keys that stand elsewhere, each group with a key of the mapping where they don't, and advice.
/// `KEY` is the key, and `ONE` the key without an `s` at its end.
const ELSEWHERE: [(&str, &str, &str); 13] = [
    (
        "cors debug error_pages on_limit set_headers add_headers remove_headers",
        "listeners",
        UNDER_RESPONSES,
    ),
    ("cors error_pages", "forward_path", UNDER_RESPONSES),
    (
        "cookies grpc headers hosts methods path query when",
        "forward_path",
        UNDER_MATCH,
    ),
    (
        "add_prefix regex replace strip_prefix",
        "forward_path",
        UNDER_REWRITE,
    ),
    ("add_prefix strip_prefix", "max_body", UNDER_REWRITE),
    ("all any cidr jwt listener not scheme", "grpc", UNDER_WHEN),
    (
        "cidr cookie cookies header headers host hosts listener method methods path query scheme",
        "on_missing_key",
        UNDER_WHEN,
    ),
    ("policy", "on_missing_key", POLICY),
    (
        "address client_ip ip remote_addr source_ip",
        "any",
        "write networks: `cidr: [10.0.0.0/8]`",
    ),
    (
        "address client_ip ip remote_addr source_ip",
        "cidr",
        "write a network: `cidr: 10.0.0.0/8`",
    ),
    (
        "address client_ip ip remote_addr source_ip",
        "grpc",
        "write networks: `when: { cidr: [10.0.0.0/8] }`",
    ),
    (
        "user_agent",
        "grpc",
        "write `headers: { user-agent: { contains: bot } }`",
    ),
    (
        "user_agent",
        "scheme",
        "write `header: { user-agent: { contains: bot } }`",
    ),
];

impl Reader<'_> {
    /// Checks the top level of an included file, which may be empty.
    pub(super) fn check_included(self) {
        let children = match self.value() {
            NodeValue::Mapping(children) => children,
            NodeValue::Null => return,
            _ => {
                let error = self.mismatch(&"a mapping");
                let error = error.with_help(format!("its keys are {}", nearest::list(&JOINED)));
                return self.findings.add(error.into_finding(self));
            }
        };
        for &child in children {
            let key = self.findings.document.key(child);
            if key.is_some_and(|key| JOINED.contains(&key)) {
                self.findings.know_key(child);
            }
        }
        self.report_unknown_keys(children, &JOINED);
    }

    pub(super) fn report_unknown_keys(self, children: &[NodeId], known: &[&str]) {
        let document = self.findings.document;
        let mut is_listed = false;
        let introduction = if self.node != NodeId::ROOT && document.is_root(self.node) {
            "the main file has all else; known keys of an included file"
        } else {
            "known keys here"
        };
        for &child in children {
            let Some(key) = document.key(child).filter(|key| !known.contains(key)) else {
                continue;
            };
            if document.is_root(self.node) && key.starts_with(EXTENSION) {
                if looks_like_key(key) {
                    self.findings.know_key(child);
                }
                continue;
            }
            self.findings.mean(self.node, "");
            let elsewhere = find(&ELSEWHERE, key, known);
            let nearest = match elsewhere {
                Some(_) => None,
                None => self.findings.nearest(key, known),
            };
            let is_shown = !self.is_secret && (nearest.is_some() || looks_like_key(key));
            let message = if is_shown {
                self.findings.know_key(child);
                format!("unknown key `{key}`")
            } else {
                "unknown key, which is not shown: it may be a secret".to_owned()
            };
            let foreign = find(&FOREIGN, key, known);
            let meant = foreign.map(|(meant, _)| meant).or(nearest);
            let is_first = meant.is_none_or(|meant| self.findings.mean(self.node, meant));
            let help = match (foreign, elsewhere) {
                (Some((_, advice)), _) if is_first => Some(advice.to_owned()),
                // The first one says it.
                (Some(_), _) => continue,
                (None, Some((_, advice))) => {
                    let one = key.strip_suffix('s').unwrap_or(key);
                    Some(advice.replace("KEY", key).replace("ONE", one))
                }
                (None, None) => {
                    let is_new = nearest.is_some() || !std::mem::replace(&mut is_listed, true);
                    is_new.then(|| nearest::phrase(nearest, known, introduction))
                }
            };
            let finding = Finding::error(child, Code::UnknownKey, message);
            let finding = Finding { help, ..finding };
            self.findings.add(finding.at_key());
        }
    }
}

/// The row for a word in a mapping with these known keys.
fn find(
    table: &[(&'static str, &'static str, &'static str)],
    word: &str,
    known: &[&str],
) -> Option<(&'static str, &'static str)> {
    let is_of = |words: &str| words.split(' ').any(|one| one == word);
    let mut rows = table.iter();
    let found = rows.find(|(words, here, _)| known.contains(here) && is_of(words));
    found.map(|&(_, here, advice)| (here, advice))
}

/// True for a text in the form of keys, also in that of other programs: `maxBody` has few words. One of
/// another form may be a secret in the wrong place.
pub(super) fn looks_like_key(text: &str) -> bool {
    let is_of_keys = |c: char| c.is_ascii_lowercase() || c == '_' || c == '-';
    let mut words = text.split(|c: char| c.is_ascii_uppercase());
    let is_first = words
        .next()
        .is_some_and(|word| word.chars().all(is_of_keys));
    let rest: Vec<_> = words.collect();
    let is_word = |word: &&str| !word.is_empty() && word.chars().all(|c| c.is_ascii_lowercase());
    let are_words = rest.len() < MAX_WORDS && rest.iter().all(is_word);
    text.len() <= MAX_UNKNOWN_KEY && is_first && are_words
}
