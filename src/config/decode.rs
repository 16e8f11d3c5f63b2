//! Reads the schema's types from a document with serde. Unlike most deserializers it goes on after
//! a mistake. It records unknown keys, and values of [`Located`](super::Located) that cannot be
//! read. One run so finds nearly all mistakes.

mod access;
mod error;
mod unknown_keys;

use serde::de::value::{MapAccessDeserializer, MapDeserializer, StrDeserializer};
use serde::de::{Deserialize, Deserializer, Expected, IntoDeserializer, Visitor};

use super::diagnostic::{Code, Content};
use super::document::{LOCATED, NodeId, NodeValue, Part, SECRET, SHOWN, missing_space};
use super::finding::{Finding, Findings};
use super::variables;
use crate::nearest;
use access::{Fields, Flattened, LocatedParts, entries};
use error::DecodeError;
use unknown_keys::looks_like_key;

/// The name of an enum whose variant depends on the form of the value. Its variants are called
/// `scalar`, `sequence` and `mapping`, and are read from that value.
const BY_FORM: &str = "$form";
/// The first character in the name of a field whose struct has its keys in the same mapping:
/// `$amounts`, or `$amounts-max` for all keys but `max`.
pub(super) const FLATTENED: char = '$';

/// Reads a `T` from the whole document. Returns `None` after an error for which no default can
/// stand in; the findings then have it.
pub(super) fn decode<T: for<'de> Deserialize<'de>>(findings: &Findings<'_>) -> Option<T> {
    let reader = Reader {
        findings,
        node: NodeId::ROOT,
        part: Part::Whole,
        is_secret: false,
        shows_all: false,
        flattened: None,
    };
    for &root in &findings.document.included {
        reader.at(root).check_included();
    }
    T::deserialize(reader)
        .map_err(|error| findings.add(error.into_finding(reader)))
        .ok()
}

/// A deserializer over one value, or over its key.
#[derive(Clone, Copy)]
struct Reader<'a> {
    findings: &'a Findings<'a>,
    node: NodeId,
    part: Part,
    /// True within values that are never shown.
    is_secret: bool,
    /// True where such values are none.
    shows_all: bool,
    /// Set for a struct in the mapping of another.
    flattened: Option<&'a Flattened>,
}

impl<'a> Reader<'a> {
    fn at(self, node: NodeId) -> Self {
        Self {
            node,
            flattened: None,
            ..self
        }
    }

    fn key(self) -> Self {
        Self {
            part: Part::Key,
            ..self
        }
    }

    fn value(self) -> &'a NodeValue {
        self.findings.document.value(self.node)
    }

    /// The value. `key:` without a value is an error everywhere.
    fn present(self) -> Result<&'a NodeValue, DecodeError> {
        match self.value() {
            NodeValue::Null => Err(self.no_value()),
            value => Ok(value),
        }
    }

    fn no_value(self) -> DecodeError {
        let finding = match self.findings.document.key(self.node) {
            Some(key) => {
                let message = if self.findings.knows_key(self.node) {
                    format!("`{key}` has no value")
                } else {
                    "a key has no value".to_owned()
                };
                Finding::error(self.node, Code::NoValue, message)
                    .help("give it one, or remove the key")
                    .at_key()
            }
            None if self.node == NodeId::ROOT => {
                Finding::error(self.node, Code::NoValue, "the configuration is empty")
                    .help("the smallest one is `routes: [{ upstream: echo }]`")
            }
            None => Finding::error(self.node, Code::NoValue, "an item without a value")
                .help("give it one, or remove it"),
        };
        DecodeError::Placed(Box::new(finding))
    }

    fn mismatch(self, expected: &dyn Expected) -> DecodeError {
        let found = match self.value() {
            NodeValue::Sequence(_) => "a list",
            NodeValue::Mapping(_) => "a mapping",
            // Not its text: where no text is expected, nobody knows if it is a secret.
            NodeValue::Scalar { .. } => "a text",
            NodeValue::Null => "nothing",
        };
        let error = DecodeError::mismatch(found, expected);
        match self.value() {
            NodeValue::Sequence(_) => error.with_help("write one value, without `[ ]` or `-`"),
            _ => error,
        }
    }

    /// The text of a key that the schema knows.
    fn known_key(self) -> &'a str {
        let key = self.findings.document.key(self.node).unwrap_or_default();
        // A text that a comma has cut, as in `{ x-key: a,b }`, is a key without a value.
        let may_be_cut = matches!(self.value(), NodeValue::Null) && !looks_like_key(key);
        let written = self.findings.document.written_key(self.node);
        if !self.is_secret && !may_be_cut && !is_of_many_lines(written) {
            self.findings.know_key(self.node);
        }
        key
    }

    /// The text of a scalar where the schema has one.
    fn known_text(self, text: &'a str) -> &'a str {
        let written = self.findings.document.written(self.node);
        let is_secret = self.is_secret || may_have_login(text) || is_of_many_lines(written);
        let content = if is_secret && !variables::is_only_name(written) {
            Content::Secret
        } else {
            Content::Value
        };
        self.findings.know_value(self.node, content);
        text
    }

    /// Adds this place to an error that has none yet.
    fn place<T>(self, result: Result<T, DecodeError>) -> Result<T, DecodeError> {
        result.map_err(|error| {
            let error = match self.advice() {
                Some(advice) => error.with_help(advice),
                None => error,
            };
            DecodeError::Placed(Box::new(error.into_finding(self)))
        })
    }

    /// Advice that depends on the key, for texts that a type alone cannot explain.
    fn advice(self) -> Option<&'static str> {
        let text = match self.value() {
            NodeValue::Scalar { text, .. } => &**text,
            NodeValue::Sequence(_) | NodeValue::Mapping(_) => "",
            NodeValue::Null => return None,
        };
        match (self.findings.document.key(self.node)?, text) {
            ("upstream", "") => Some(
                "list the addresses under a name: `upstreams: { api: { endpoints: [http://a, \
                 http://b] } }`, and write `upstream: api` here",
            ),
            ("burst", "0") => Some(
                "a burst is what a client may do at once, and one request is the least: \
                 leave it out for as many as the quota, or write `burst: 1` for none at once",
            ),
            _ => None,
        }
    }
}

/// Structs that a text may stand for, as the value of this key, and its type; of a condition, an address
/// or a network.
pub(super) const SHORT: [(&str, &str, &str); 3] = [
    ("Condition", "cidr", "Cidr"),
    ("Endpoint", "url", "OriginUrl"),
    ("HeaderFields", "style", "HeaderStyle"),
];

/// True for a text that looks like an address or a network.
fn is_like_network(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_digit()) || text.contains("::")
}

/// True for a text of several lines, except a block. A `:` or a quote may be missing between two texts.
fn is_of_many_lines(written: &str) -> bool {
    written.contains('\n') && !written.starts_with(['|', '>'])
}

/// True for a text that may have a password before an `@`, or a secret in its query, as URLs do.
fn may_have_login(text: &str) -> bool {
    let has_login = text.contains('@') && !text.starts_with(['/', '@']);
    has_login || has_odd_port(text) || (text.contains('?') && text.contains('='))
}

/// True for a URL with something else than a number behind its host's `:`. It may be a password that lacks
/// its `@`.
fn has_odd_port(text: &str) -> bool {
    let rest = text.split_once("://").map(|(_, rest)| rest);
    let authority = rest.and_then(|rest| rest.split('/').next());
    let name = authority.filter(|authority| !authority.starts_with('['));
    let after = name.and_then(|name| name.split_once(':'));
    after.is_some_and(|(_, port)| !port.bytes().all(|byte| byte.is_ascii_digit()))
}

impl<'de> Deserializer<'de> for Reader<'_> {
    type Error = DecodeError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        if self.part == Part::Key {
            return self.deserialize_str(visitor);
        }
        self.place(match self.present()? {
            NodeValue::Scalar { text, .. } => visitor.visit_str(self.known_text(text)),
            NodeValue::Null => visitor.visit_unit(),
            NodeValue::Sequence(items) => visitor.visit_seq(access::items(self, items)),
            NodeValue::Mapping(children) => visitor.visit_map(entries(self, children)),
        })
    }

    /// Takes scalars as texts. The key gives them their meaning, so that `1.10`, `no` and `12:30`
    /// are no traps.
    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        if self.part == Part::Key {
            return self.place(visitor.visit_str(self.known_key()));
        }
        self.place(match self.present()? {
            NodeValue::Scalar { text, .. } => visitor.visit_str(self.known_text(text)),
            _ => Err(self.mismatch(&visitor)),
        })
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        match name {
            LOCATED => visitor.visit_seq(LocatedParts::new(self)),
            SECRET => visitor.visit_newtype_struct(Reader {
                is_secret: !self.shows_all,
                ..self
            }),
            SHOWN => visitor.visit_newtype_struct(Reader {
                shows_all: true,
                ..self
            }),
            _ => visitor.visit_newtype_struct(self),
        }
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        // At the top, a mapping may be one of names, and several texts are most likely.
        let may_be_item = match self.present()? {
            NodeValue::Scalar { text, .. } => !text.contains([',', ' ', '\n']),
            NodeValue::Mapping(_) => true,
            _ => false,
        };
        let is_item = may_be_item && self.findings.document.path(self.node).contains(['.', '[']);
        self.place(match self.present()? {
            NodeValue::Sequence(items) => visitor.visit_seq(access::items(self, items)),
            _ if is_item => visitor.visit_seq(access::items(self, &[self.node])),
            _ => Err(self
                .mismatch(&"a list")
                .with_help("write `[..]`, or a line `- ..` for each item")),
        })
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        self.place(match self.present()? {
            NodeValue::Mapping(children) => visitor.visit_map(entries(self, children)),
            _ => Err(self
                .mismatch(&"a mapping")
                .with_help("write `name: ..` lines, or `{ name: .. }`")),
        })
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        let short = SHORT.iter().find(|(known, ..)| *known == name);
        let (children, is_mapping) = match (self.present()?, short) {
            (NodeValue::Mapping(children), _) => (children.as_slice(), true),
            (NodeValue::Scalar { text, .. }, Some((_, key, _)))
                if *key != "cidr" || is_like_network(text) =>
            {
                let short = MapDeserializer::new([(*key, self)].into_iter());
                return self.place(visitor.visit_map(short));
            }
            _ => (&[][..], false),
        };
        let expected = short.map_or_else(
            || "a mapping".to_owned(),
            |_| (&visitor as &dyn Expected).to_string(),
        );
        let mut fields = Fields::new(self, children, fields);
        let value = visitor.visit_map(&mut fields);
        if let Some(flattened) = self.flattened {
            flattened.known.replace(fields.known);
            return value;
        }
        self.report_unknown_keys(children, &fields.known);
        if is_mapping {
            return self.place(value);
        }
        let keys = || format!("its keys are {}", nearest::list(&fields.known));
        let written = self.findings.document.written(self.node);
        let advice = missing_space(written).unwrap_or_else(keys);
        self.place(Err(self.mismatch(&expected.as_str()).with_help(advice)))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        let value = self.present()?;
        if name != BY_FORM {
            return self.place(match value {
                NodeValue::Scalar { text, .. } => {
                    let text = self.known_text(text);
                    let word: StrDeserializer<'_, DecodeError> = text.into_deserializer();
                    visitor.visit_enum(word)
                }
                _ => Err(self.mismatch(&format!("one of {}", nearest::list(variants)).as_str())),
            });
        }
        let form = match value {
            NodeValue::Scalar { .. } | NodeValue::Null => "scalar",
            NodeValue::Sequence(_) => "sequence",
            NodeValue::Mapping(_) => "mapping",
        };
        if !variants.contains(&form) {
            return self.place(Err(self.mismatch(&visitor)));
        }
        let expected = (&visitor as &dyn Expected).to_string();
        // An enum as a mapping from its variant to the value.
        let form = MapDeserializer::new([(form, self)].into_iter());
        let value = visitor.visit_enum(MapAccessDeserializer::new(form));
        self.place(value.map_err(|error| error.of_form(&expected)))
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char string bytes byte_buf
        unit unit_struct tuple tuple_struct identifier ignored_any
    }
}
