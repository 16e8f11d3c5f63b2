//! What the body of a request says: the fields in it that the limits of a route read.
//!
//! Upstreams differ in how they read bodies that are odd: which of two equal names counts, what a
//! name in other letters is, or a byte order mark. A field of which two common readers may find
//! different values is ambiguous, like a header with several values, and the limits that read it
//! refuse the request.

mod change;
mod content_type;
mod form;
mod graphql;
mod json;
mod multipart;

use std::borrow::Cow;

use super::query::parameters;
use super::{KeyPart, Lookup};
use crate::http::headers::Headers;
use crate::http::json_pointer::JsonPointer;
pub use change::BodyChange;
use content_type::ContentType;

/// The fields of a body. Its `Debug` output leaves the values out: they are secrets.
#[derive(derive_more::Debug)]
#[debug("BodyFields(..)")]
pub struct BodyFields {
    fields: Vec<(KeyPart, Values)>,
    length: u64,
    is_unread: bool,
}

/// The values of a field, or [`Ambiguous`].
type Values = Result<Vec<Box<[u8]>>, Ambiguous>;

/// Upstreams may read different values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ambiguous;

impl BodyFields {
    /// Reads these `parts` of a whole body. `query` is that of the request.
    pub fn read(parts: &[KeyPart], headers: &Headers, query: Option<&str>, body: &[u8]) -> Self {
        let content_type = ContentType::of(headers);
        let mut fields: Vec<_> = parts
            .iter()
            .map(|part| (part.clone(), Err(Ambiguous)))
            .collect();
        if let Ok(content_type) = content_type {
            read_json(&mut fields, query, body);
            for (part, values) in &mut fields {
                if let KeyPart::Form(name) = part {
                    *values = content_type.form(body, name).map(|mut values| {
                        // Many frameworks join both.
                        let others = parameters(query, name);
                        values.extend(others.map(|value| value.as_bytes().into()));
                        values
                    });
                }
            }
        }
        Self {
            fields,
            length: body.len() as u64,
            is_unread: false,
        }
    }

    /// A body that is too long to be read.
    pub fn unread() -> Self {
        Self {
            fields: Vec::new(),
            length: u64::MAX,
            is_unread: true,
        }
    }

    /// The length of the body in bytes; `None` if it is too long to be read.
    pub fn length(&self) -> Option<u64> {
        (!self.is_unread).then_some(self.length)
    }

    /// Returns true if upstreams may find different values of a field.
    pub fn is_ambiguous(&self, part: &KeyPart) -> bool {
        matches!(self.find(part), Some(Err(Ambiguous)))
    }

    /// All values of a field.
    pub(super) fn values(&self, part: &KeyPart) -> &[Box<[u8]>] {
        match self.find(part) {
            Some(Ok(values)) => values,
            Some(Err(Ambiguous)) | None => &[],
        }
    }

    /// The value of a field.
    pub(super) fn lookup(&self, part: &KeyPart) -> Lookup<Cow<'_, [u8]>> {
        match self.find(part) {
            Some(Ok(values)) => Lookup::among(values.iter()).map(|one| Cow::Borrowed(&**one)),
            Some(Err(Ambiguous)) => Lookup::Several,
            None => Lookup::Missing,
        }
    }

    fn find(&self, part: &KeyPart) -> Option<&Values> {
        let mut fields = self.fields.iter();
        let found = fields.find(|(known, _)| known == part);
        found.map(|(_, values)| values)
    }
}

/// Reads the fields of JSON, whatever the content type says: many upstreams don't look at it.
fn read_json(fields: &mut [(KeyPart, Values)], query: Option<&str>, body: &[u8]) {
    let pointers = fields.iter().filter_map(|(part, _)| match part {
        KeyPart::Body(pointer) => Some(&**pointer),
        _ => None,
    });
    let pointers: Vec<&JsonPointer> = pointers.collect();
    let has_operation = fields.iter().any(|(part, _)| *part == KeyPart::Graphql);
    if pointers.is_empty() && !has_operation {
        return;
    }
    let mut found = json::find(body, &pointers).into_iter();
    for (part, values) in fields {
        match part {
            KeyPart::Body(_) => *values = found.next().expect("a result for each pointer"),
            KeyPart::Graphql => *values = graphql::operation(query, body),
            _ => {}
        }
    }
}

/// Returns true if some reader takes `name` for `wanted`: Go ignores the case of names in JSON, and
/// other languages that of names in forms.
fn is_like(name: &str, wanted: &str) -> bool {
    folded(name.chars()).eq(folded(wanted.chars()))
}

/// Letters without their case. The long s is an `s` as a capital letter alone.
fn folded(letters: impl Iterator<Item = char>) -> impl Iterator<Item = char> {
    let upper = letters.flat_map(char::to_uppercase);
    upper.flat_map(char::to_lowercase)
}

#[cfg(test)]
mod tests;
