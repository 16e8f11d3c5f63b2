//! The header fields of a message, in the order in which they came.
//!
//! [`http::HeaderMap`] hashes each name when a field is added and looked up, keeps two tables, and
//! counts references to the text for each value. A head has some ten fields, which are parts of one
//! text: a list finds a name sooner (docs/performance.md).

mod value;

use std::borrow::Borrow;
use std::fmt;
use std::ops::Range;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};

pub use value::FieldValue;
use value::Value;

/// Header fields. Several fields of one name are a list (RFC 9110 section 5.2).
///
/// A search looks at all fields, so readers must bound their number.
#[derive(Clone, Default)]
pub struct Headers {
    /// The text that parsed values are parts of.
    text: Bytes,
    fields: Vec<Field>,
}

#[derive(Clone, Debug)]
struct Field {
    name: HeaderName,
    value: Value,
}

/// Fields that were parsed from a text.
#[derive(Debug)]
pub struct ParsedFields(Vec<Field>);

impl ParsedFields {
    /// No fields yet, with room for some.
    pub fn with_capacity(fields: usize) -> Self {
        ParsedFields(Vec::with_capacity(fields))
    }

    /// Adds a field with the position of its valid value.
    pub fn push(&mut self, name: HeaderName, value: Range<usize>) {
        let place = |at| u32::try_from(at).expect("heads are read up to a bound far below 4 GiB");
        self.0.push(Field {
            name,
            value: Value::Part(place(value.start), place(value.end)),
        });
    }

    /// Binds the fields to their text.
    pub fn of(self, text: Bytes) -> Headers {
        Headers {
            text,
            fields: self.0,
        }
    }
}

impl Headers {
    /// No fields.
    pub const fn new() -> Self {
        Headers {
            text: Bytes::new(),
            fields: Vec::new(),
        }
    }

    /// No fields yet, with room for some.
    pub fn with_capacity(fields: usize) -> Self {
        Headers {
            text: Bytes::new(),
            fields: Vec::with_capacity(fields),
        }
    }

    /// How many fields there are.
    pub fn len(&self) -> usize {
        self.fields.len()
    }

    /// Returns true if there are no fields.
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    /// The fields in their order.
    pub fn iter(&self) -> impl Iterator<Item = (&HeaderName, &[u8])> {
        let fields = self.fields.iter();
        fields.map(|field| (&field.name, field.value.of(&self.text)))
    }

    /// The names of the fields in their order, some of them several times.
    pub fn names(&self) -> impl Iterator<Item = &HeaderName> {
        self.fields.iter().map(|field| &field.name)
    }

    /// The value of the first field of this name.
    pub fn get(&self, name: impl Borrow<HeaderName>) -> Option<&[u8]> {
        self.find(name.borrow())
            .map(|field| field.value.of(&self.text))
    }

    fn find(&self, name: &HeaderName) -> Option<&Field> {
        self.fields.iter().find(|field| field.name == *name)
    }

    /// A copy of the value of the first field of this name.
    pub fn get_owned(&self, name: impl Borrow<HeaderName>) -> Option<HeaderValue> {
        self.find(name.borrow())
            .map(|field| field.value.clone().into_owned(&self.text))
    }

    /// The values of all fields of this name.
    pub fn get_all<'a>(
        &'a self,
        name: impl Borrow<HeaderName> + 'a,
    ) -> impl DoubleEndedIterator<Item = &'a [u8]> {
        let fields = self.fields.iter();
        fields
            .filter(move |field| field.name == *name.borrow())
            .map(|field| field.value.of(&self.text))
    }

    /// Returns true if there is a field of this name.
    pub fn contains(&self, name: impl Borrow<HeaderName>) -> bool {
        self.find(name.borrow()).is_some()
    }

    /// Adds a field at the end.
    pub fn append(&mut self, name: impl Into<HeaderName>, value: impl Into<FieldValue>) {
        let (name, FieldValue(value)) = (name.into(), value.into());
        self.fields.push(Field { name, value });
    }

    /// Adds a field with the value of the first field of another name, if there is one. Returns the
    /// value.
    pub fn append_as(
        &mut self,
        name: impl Into<HeaderName>,
        other: impl Borrow<HeaderName>,
    ) -> Option<&[u8]> {
        let value = self.find(other.borrow())?.value.clone();
        let name = name.into();
        self.fields.push(Field { name, value });
        self.fields.last().map(|field| field.value.of(&self.text))
    }

    /// Replaces all fields of this name with one.
    pub fn insert(&mut self, name: impl Into<HeaderName>, value: impl Into<FieldValue>) {
        let name = name.into();
        if !self.contains(&name) {
            return self.append(name, value);
        }
        let mut value = Some(value.into());
        self.fields.retain_mut(|field| {
            field.name != name
                || value.take().is_some_and(|FieldValue(value)| {
                    field.value = value;
                    true
                })
        });
    }

    /// Adds a field unless there is one of its name.
    pub fn insert_missing(&mut self, name: impl Into<HeaderName>, value: impl Into<FieldValue>) {
        let name = name.into();
        if !self.contains(&name) {
            self.append(name, value);
        }
    }

    /// Removes all fields of this name.
    pub fn remove(&mut self, name: impl Borrow<HeaderName>) {
        self.retain(|field| field != name.borrow());
    }

    /// Removes the fields whose names `keep` rejects.
    pub fn retain(&mut self, mut keep: impl FnMut(&HeaderName) -> bool) {
        self.fields.retain(|field| keep(&field.name));
    }
}

/// A value as text, if it is ASCII.
pub fn ascii(value: &[u8]) -> Option<&str> {
    str::from_utf8(value).ok().filter(|text| text.is_ascii())
}

/// Writes a field as HTTP/1.1 does.
pub fn write_field(name: &HeaderName, value: &[u8], buffer: &mut Vec<u8>) {
    for part in [name.as_str().as_bytes(), b": ", value, b"\r\n"] {
        buffer.extend_from_slice(part);
    }
}

impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut map = f.debug_map();
        for (name, value) in self.iter() {
            map.entry(
                &format_args!("{name}"),
                &format_args!("{}", value.escape_ascii()),
            );
        }
        map.finish()
    }
}

impl Extend<(HeaderName, HeaderValue)> for Headers {
    fn extend<T: IntoIterator<Item = (HeaderName, HeaderValue)>>(&mut self, fields: T) {
        for (name, value) in fields {
            self.append(name, value);
        }
    }
}

impl FromIterator<(HeaderName, HeaderValue)> for Headers {
    fn from_iter<T: IntoIterator<Item = (HeaderName, HeaderValue)>>(fields: T) -> Self {
        let mut headers = Headers::new();
        headers.extend(fields);
        headers
    }
}

impl From<HeaderMap> for Headers {
    fn from(map: HeaderMap) -> Self {
        let mut headers = Headers::with_capacity(map.len());
        let mut last = None;
        for (name, value) in map {
            // The map returns a name only with its first value.
            last = name.or(last);
            headers.extend(last.clone().map(|name| (name, value)));
        }
        headers
    }
}

impl Headers {
    /// A map with copies of the fields that `is_kept` accepts.
    pub fn to_map(&self, is_kept: impl Fn(&HeaderName, &[u8]) -> bool) -> HeaderMap {
        let mut map = HeaderMap::with_capacity(self.fields.len());
        for Field { name, value } in &self.fields {
            if is_kept(name, value.of(&self.text)) {
                map.append(name.clone(), value.clone().into_owned(&self.text));
            }
        }
        map
    }
}

/// Fields that are added to a response over HTTP/2: `Content-Length` and `Date`. Without room for them
/// the map would be built again.
const ADDED: usize = 2;

impl Headers {
    /// These fields in the map of the `http` crate.
    pub fn into_map(self, is_kept: impl Fn(&HeaderName) -> bool) -> HeaderMap {
        let Headers { text, fields } = self;
        let mut map = HeaderMap::with_capacity(fields.len() + ADDED);
        for Field { name, value } in fields {
            if is_kept(&name) {
                map.append(name, value.into_owned(&text));
            }
        }
        map
    }
}

impl From<Headers> for HeaderMap {
    fn from(headers: Headers) -> Self {
        headers.into_map(|_| true)
    }
}

#[cfg(test)]
mod tests;
