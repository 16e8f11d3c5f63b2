//! serde's access to a document: items, entries, fields of structs, and located values.

use std::cell::RefCell;

use serde::de::value::{MapDeserializer, SeqDeserializer, StrDeserializer, U32Deserializer};
use serde::de::{DeserializeSeed, IntoDeserializer, MapAccess, SeqAccess};

use super::{DecodeError, FLATTENED, Reader};
use crate::config::{Finding, NodeId};

/// The items of a list.
pub(super) fn items<'de>(
    reader: Reader<'_>,
    items: &[NodeId],
) -> impl SeqAccess<'de, Error = DecodeError> {
    SeqDeserializer::new(items.iter().map(move |&item| reader.at(item)))
}

impl IntoDeserializer<'_, DecodeError> for Reader<'_> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

/// The entries of a mapping with names of the user.
pub(super) fn entries<'de>(
    reader: Reader<'_>,
    entries: &[NodeId],
) -> impl MapAccess<'de, Error = DecodeError> {
    let entries = entries.iter().map(move |&entry| reader.at(entry));
    MapDeserializer::new(entries.map(|entry| (entry.key(), entry)))
}

/// The entries of a struct that have known keys; `report_unknown_keys` reports the others. Flattened
/// fields come first.
pub(super) struct Fields<'a> {
    reader: Reader<'a>,
    rest: std::slice::Iter<'a, NodeId>,
    fields: &'static [&'static str],
    current: Current,
    /// The keys, in order; those of flattened fields as soon as these have been read.
    pub(super) known: Vec<&'static str>,
}

/// A struct whose keys stand in the mapping of the struct around it.
pub(super) struct Flattened {
    omitted: Option<&'static str>,
    /// Its known keys, as soon as it has been read.
    pub(super) known: RefCell<Vec<&'static str>>,
}

/// The place of the next value.
#[derive(Clone, Copy)]
enum Current {
    Entry(NodeId),
    /// A flattened field, and its index among the known keys.
    Flattened(usize),
}

impl<'a> Fields<'a> {
    pub(super) fn new(
        reader: Reader<'a>,
        entries: &'a [NodeId],
        fields: &'static [&'static str],
    ) -> Self {
        let omitted = reader.flattened.and_then(|flattened| flattened.omitted);
        let known = fields.iter().copied().filter(|key| Some(*key) != omitted);
        Self {
            reader,
            rest: entries.iter(),
            fields,
            current: Current::Entry(NodeId::ABSENT),
            known: known.collect(),
        }
    }
}

impl<'de> MapAccess<'de> for Fields<'_> {
    type Error = DecodeError;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, DecodeError> {
        if let Some(place) = self.known.iter().position(|key| key.starts_with(FLATTENED)) {
            self.current = Current::Flattened(place);
            let name: StrDeserializer<'_, DecodeError> = self.known[place].into_deserializer();
            return seed.deserialize(name).map(Some);
        }
        let (document, fields) = (self.reader.findings.document, self.fields);
        let known = |key| fields.contains(&key) && self.known.contains(&key);
        let is_known = |child: &&NodeId| document.key(**child).is_some_and(known);
        let Some(&child) = self.rest.find(is_known) else {
            return Ok(None);
        };
        self.current = Current::Entry(child);
        seed.deserialize(self.reader.at(child).key()).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(
        &mut self,
        seed: V,
    ) -> Result<V::Value, DecodeError> {
        match self.current {
            Current::Entry(node) => seed.deserialize(self.reader.at(node)),
            Current::Flattened(place) => {
                let flattened = Flattened {
                    omitted: self.known[place].split_once('-').map(|(_, key)| key),
                    known: RefCell::default(),
                };
                let value = seed.deserialize(Reader {
                    flattened: Some(&flattened),
                    ..self.reader
                });
                self.known.splice(place..=place, flattened.known.take());
                value
            }
        }
    }
}

/// The node of a value, then the value. An error in the value is recorded here, and the caller goes
/// on without the value.
pub(super) struct LocatedParts<'a> {
    reader: Reader<'a>,
    node_taken: bool,
}

impl<'a> LocatedParts<'a> {
    pub(super) fn new(reader: Reader<'a>) -> Self {
        Self {
            reader,
            node_taken: false,
        }
    }
}

impl<'de> SeqAccess<'de> for LocatedParts<'_> {
    type Error = DecodeError;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, DecodeError> {
        if !std::mem::replace(&mut self.node_taken, true) {
            let node: U32Deserializer<DecodeError> = self.reader.node.0.into_deserializer();
            return seed.deserialize(node).map(Some);
        }
        let value = self.reader.place(seed.deserialize(self.reader));
        if let Err(DecodeError::Placed(finding)) = &value {
            self.reader.findings.add(Finding::clone(finding));
        }
        value.map(Some)
    }
}
