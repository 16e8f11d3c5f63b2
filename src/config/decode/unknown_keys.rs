//! Keys that the schema doesn't have where they stand, with advice.

use super::Reader;
use crate::config::Finding;
use crate::config::diagnostic::Code;
use crate::config::document::{EXTENSION, JOINED, NodeId, NodeValue};
use crate::nearest;
use crate::text_table;

/// The longest unknown key that is shown without a known one that is near, in bytes.
const MAX_UNKNOWN_KEY: usize = 32;

/// The most words of a key such as `trustedProxies`; a secret with capital letters looks like more.
const MAX_WORDS: usize = 4;

/// Words of other proxies, each group with the key that means the same, and advice.
const FOREIGN: &str = include_str!("../tables/foreign_keys.txt");

/// Keys that stand elsewhere, each group with a key of the mapping where they don't, and advice.
/// `KEY` is the key, and `ONE` the key without an `s` at its end.
const ELSEWHERE: &str = include_str!("../tables/misplaced_keys.txt");

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
            let elsewhere = find(ELSEWHERE, key, known);
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
            let foreign = find(FOREIGN, key, known);
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

/// The key and the advice for a word in a mapping with these known keys.
fn find(table: &'static str, word: &str, known: &[&str]) -> Option<(&'static str, &'static str)> {
    let is_of = |words: &str| words.split(' ').any(|one| one == word);
    let mut rows = text_table::rows(table);
    let found = rows.find(|[words, here, _]| known.contains(here) && is_of(words));
    found.map(|[_, here, advice]| (here, advice))
}

/// True for a text in the form of keys, also in that of other programs: `maxBody` has few words. One of
/// another form may be a secret in the wrong place.
pub(super) fn looks_like_key(text: &str) -> bool {
    let is_of_keys = |c: char| c.is_ascii_lowercase() || c == '_' || c == '-';
    let mut words = text.split(|c: char| c.is_ascii_uppercase());
    let first = words.next();
    let is_first = first.is_some_and(|word| word.chars().all(is_of_keys));
    let rest: Vec<_> = words.collect();
    let is_word = |word: &&str| !word.is_empty() && word.chars().all(|c| c.is_ascii_lowercase());
    let are_words = rest.len() < MAX_WORDS && rest.iter().all(is_word);
    text.len() <= MAX_UNKNOWN_KEY && is_first && are_words
}
