//! Parses text to a tree with spans, with serde-saphyr, which handles syntax, anchors, merge keys
//! and budgets. Scalars stay texts: their key says what `1.10` or `no` means.

use std::fmt;
use std::ops::{Range, RangeInclusive};

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_yaml::options::DuplicateKeyPolicy;
use serde_yaml::{Location, Options, Spanned};

use super::syntax::problem;
use crate::config::diagnostic::{Problem, SourceText};

/// The largest number of values in all files, with aliases expanded: several times 10,000 routes.
const MAX_NODES: usize = 1_000_000;
/// The parser events that aliases of any file may expand to, and those of all files: 10,000 routes on
/// one anchor.
const REPLAYED: RangeInclusive<usize> = 20_000..=500_000;
/// The events that each byte of a file adds: a small file is as little work as its size. A line
/// `- *route` may stand for a route.
const REPLAYED_PER_BYTE: usize = 8;
/// Nesting of lists and mappings; the schema needs eight.
const MAX_DEPTH: usize = 32;

/// A value as the parser gives it.
pub(super) enum Raw {
    Text(String),
    /// A number or a boolean; the source has its text.
    Typed,
    /// No value, or a word for it.
    Null,
    Sequence(Vec<Spanned<Raw>>),
    Mapping(Vec<(Spanned<Raw>, Spanned<Raw>)>),
}

/// Parses one file. Keeps duplicate keys, so that the error can show both. The files before it have
/// `nodes` values, and aliases in them stand for `replayed` events.
pub(super) fn parse(
    source: &SourceText,
    file: Range<usize>,
    nodes: usize,
    replayed: usize,
) -> Result<Spanned<Raw>, Box<Problem>> {
    let text = &source.text[file.clone()];
    let own = REPLAYED.start() + text.len().saturating_mul(REPLAYED_PER_BYTE);
    let events = own.min(REPLAYED.end().saturating_sub(replayed));
    let tree = |policy| serde_yaml::from_str_with_options(text, options(policy, nodes, events));
    let strict = tree(DuplicateKeyPolicy::Error);
    let tree = match strict {
        Err(serde_yaml::Error::DuplicateMappingKey { .. }) => tree(DuplicateKeyPolicy::LastWins),
        strict => strict,
    };
    tree.map_err(|error| Box::new(problem(&error, source, file)))
}

fn options(duplicate_keys: DuplicateKeyPolicy, nodes: usize, replayed: usize) -> Options {
    serde_yaml::options! {
        budget: serde_yaml::budget! {
            max_nodes: MAX_NODES.saturating_sub(nodes),
            max_events: 3 * MAX_NODES,
            max_depth: MAX_DEPTH,
            flow_nesting_limit: MAX_DEPTH,
            max_documents: 1,
            // Many routes may share one anchor; the total size is the bound.
            max_anchors: MAX_NODES,
            max_aliases: MAX_NODES,
            max_merge_keys: MAX_NODES,
            enforce_alias_anchor_ratio: false,
        },
        alias_limits: serde_yaml::alias_limits! {
            max_total_replayed_events: replayed,
            max_alias_expansions_per_anchor: MAX_NODES,
        },
        duplicate_keys: duplicate_keys,
        strict_booleans: true,
        reject_unsupported_tags: true,
        non_finite_float_policy: serde_yaml::options::NonFiniteFloatPolicy::PassThrough,
        emit_comments: false,
        with_snippet: false,
    }
}

/// The byte range of a location; empty, at the start, if the parser knows none.
pub(super) fn bytes(location: &Location) -> Range<usize> {
    let span = location.span();
    let start = span.byte_offset().unwrap_or(0) as usize;
    start..start + span.byte_len().unwrap_or(0) as usize
}

/// The text of a scalar; for numbers and the like, that in the file.
pub(super) fn scalar_text(node: &Spanned<Raw>, file: &str) -> String {
    match &node.value {
        Raw::Text(text) => text.clone(),
        Raw::Typed | Raw::Null => file[bytes(&node.defined)].to_owned(),
        Raw::Sequence(_) | Raw::Mapping(_) => String::new(),
    }
}

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(RawVisitor)
    }
}

struct RawVisitor;

impl<'de> Visitor<'de> for RawVisitor {
    type Value = Raw;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any YAML value")
    }

    fn visit_unit<E>(self) -> Result<Raw, E> {
        Ok(Raw::Null)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Raw, E> {
        Ok(Raw::Typed)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Raw, E> {
        Ok(Raw::Typed)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Raw, E> {
        Ok(Raw::Typed)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Raw, E> {
        Ok(Raw::Typed)
    }

    fn visit_str<E>(self, text: &str) -> Result<Raw, E> {
        Ok(Raw::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Raw, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = access.next_element()? {
            items.push(item);
        }
        Ok(Raw::Sequence(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Raw, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = access.next_entry()? {
            entries.push(entry);
        }
        Ok(Raw::Mapping(entries))
    }
}
