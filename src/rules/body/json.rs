//! Values at pointers into a JSON document (RFC 8259), which is read once and strictly.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use smallvec::SmallVec;

use super::{Ambiguous, Values, is_like};
use crate::http::json_pointer::JsonPointer;
use crate::whole_number::MAX_EXACT;

/// Finds the value at each of these pointers: none, one, or an ambiguous one.
///
/// A scalar is its text, a number that of its value, so that `1.0` is `1`. `null` is no value.
pub(super) fn find(body: &[u8], pointers: &[&JsonPointer]) -> Vec<Values> {
    let mut found = vec![Ok(Vec::new()); pointers.len()];
    let wanted = pointers.iter().map(|pointer| pointer.tokens()).enumerate();
    let node = Node {
        wanted: wanted.collect(),
        found: &mut found,
    };
    // Readers that know a byte order mark find the same behind it.
    let text = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body);
    if read(text, node).is_none() {
        let values = if may_be_json(body) {
            Err(Ambiguous)
        } else {
            Ok(Vec::new())
        };
        found.fill(values);
    }
    found
}

/// Reads a document; `None` unless it is a valid one.
fn read(text: &[u8], node: Node<'_, '_>) -> Option<()> {
    // A string that is skipped isn't checked.
    let text = std::str::from_utf8(text).ok()?;
    let mut reader = serde_json::Deserializer::from_str(text);
    node.deserialize(&mut reader).ok()?;
    reader.end().ok()
}

/// Returns true if a lenient reader may find an object or an array in a body that isn't valid JSON:
/// one with comments, without quotes, or in UTF-16. Forms, multipart bodies and XML begin otherwise.
pub(super) fn may_be_json(body: &[u8]) -> bool {
    let first = body.trim_ascii_start().first();
    first.is_some_and(|first| !first.is_ascii_graphic() || b"{[(/#".contains(first))
}

#[derive(Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

/// The index of a pointer, and its tokens from here on.
type Wanted<'p> = (usize, &'p [Box<str>]);

/// A value on the way to some pointers.
struct Node<'p, 'f> {
    wanted: SmallVec<[Wanted<'p>; 4]>,
    found: &'f mut [Values],
}

impl Node<'_, '_> {
    /// Takes a scalar for the pointers that end here.
    fn take<E>(self, text: &str) -> Result<(), E> {
        for (index, _) in self.wanted.iter().filter(|(_, tokens)| tokens.is_empty()) {
            if let Ok(values) = &mut self.found[*index] {
                values.push(text.as_bytes().into());
            }
        }
        Ok(())
    }

    /// Notes that the pointers which end here have no one value.
    fn refuse(&mut self) {
        for (index, _) in self.wanted.iter().filter(|(_, tokens)| tokens.is_empty()) {
            self.found[*index] = Err(Ambiguous);
        }
    }
}

impl<'de> DeserializeSeed<'de> for Node<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<(), D::Error> {
        if self.wanted.is_empty() {
            return reader.deserialize_ignored_any(IgnoredAny).map(drop);
        }
        reader.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, value: bool) -> Result<(), E> {
        self.take(if value { "true" } else { "false" })
    }

    fn visit_str<E>(self, value: &str) -> Result<(), E> {
        self.take(value)
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<(), E> {
        self.visit_f64(value as f64)
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<(), E> {
        self.visit_f64(value as f64)
    }

    fn visit_f64<E>(mut self, value: f64) -> Result<(), E> {
        if value.abs() > MAX_EXACT {
            self.refuse();
            return Ok(());
        }
        // Without the sign of 0.
        self.take(&(value + 0.0).to_string())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut items: A) -> Result<(), A::Error> {
        self.refuse();
        let Node { wanted, found } = self;
        for place in 0_usize.. {
            let inner = wanted.iter().filter_map(|(index, tokens)| {
                let (first, rest) = tokens.split_first()?;
                let is_here = first.parse() == Ok(place) && **first == *place.to_string();
                is_here.then_some((*index, rest))
            });
            let wanted = inner.collect();
            let found = &mut *found;
            if items.next_element_seed(Node { wanted, found })?.is_none() {
                break;
            }
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut members: A) -> Result<(), A::Error> {
        self.refuse();
        let Node { wanted, found } = self;
        let mut known: SmallVec<[usize; 4]> = SmallVec::new();
        while let Some(Name(name)) = members.next_key()? {
            let mut inner = SmallVec::new();
            for (index, tokens) in &wanted {
                let Some((first, rest)) = tokens
                    .split_first()
                    .filter(|(first, _)| is_like(&name, first))
                else {
                    continue;
                };
                if *name == **first && !known.contains(index) {
                    inner.push((*index, rest));
                    known.push(*index);
                } else {
                    found[*index] = Err(Ambiguous);
                }
            }
            let (wanted, found) = (inner, &mut *found);
            members.next_value_seed(Node { wanted, found })?;
        }
        Ok(())
    }
}
