//! The header fields of a message, in the order in which they came.
//!
//! Not [`http::HeaderMap`]: that hashes each name when a field is added and again when one is looked for, keeps
//! two tables, and each of its values counts as a holder of the text that it is a part of. A head has some ten fields, in
//! which a list finds a name sooner, and which are parts of one text (docs/performance.md).

use std::borrow::Borrow;
use std::fmt;
use std::ops::Range;

use bytes::{BufMut, Bytes, BytesMut};
use http::header::InvalidHeaderValue;
use http::{HeaderMap, HeaderName, HeaderValue};

/// Header fields. Several may have one name: their values are a list (RFC 9110 section 5.2).
///
/// Whatever looks for a name looks at all fields, so that their number has to be bounded where they are read.
#[derive(Clone, Default)]
pub struct Headers {
    /// What the values were read from that are parts of it.
    text: Bytes,
    fields: Vec<Field>,
}

#[derive(Clone, Debug)]
struct Field {
    name: HeaderName,
    value: Value,
}

#[derive(Clone, Debug)]
enum Value {
    /// From where to where in the text.
    Part(u32, u32),
    Own(HeaderValue),
    Short(Short),
}

/// A value in the place where others are pointed at.
#[derive(Clone, Copy, Debug)]
struct Short {
    length: u8,
    bytes: [u8; Short::MOST],
}

impl Short {
    const MOST: usize = 30;

    /// `None` where there is no room for it.
    fn new(value: &[u8]) -> Option<Self> {
        let mut bytes = [0; Short::MOST];
        bytes.get_mut(..value.len())?.copy_from_slice(value);
        Some(Short {
            length: value.len() as u8,
            bytes,
        })
    }

    fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

/// A value that is added to header fields. One that is short, as a number is, takes no memory elsewhere.
#[derive(Clone, Debug)]
pub struct FieldValue(Value);

impl From<HeaderValue> for FieldValue {
    fn from(value: HeaderValue) -> Self {
        FieldValue(Value::Own(value))
    }
}

impl From<u64> for FieldValue {
    fn from(number: u64) -> Self {
        let mut digits = itoa::Buffer::new();
        let digits = digits.format(number).as_bytes();
        FieldValue(Value::Short(Short::new(digits).expect("at most 20 digits")))
    }
}

impl TryFrom<&[u8]> for FieldValue {
    type Error = InvalidHeaderValue;

    /// Copies a value.
    fn try_from(value: &[u8]) -> Result<Self, InvalidHeaderValue> {
        let fits = |byte: &u8| matches!(byte, b' '..=b'~');
        match Short::new(value).filter(|_| value.iter().all(fits)) {
            Some(short) => Ok(FieldValue(Value::Short(short))),
            None => HeaderValue::from_bytes(value).map(Self::from),
        }
    }
}

impl Value {
    fn into_owned(self, text: &Bytes) -> HeaderValue {
        const VALID: &str = "it was found to be a value";
        match self {
            Value::Own(value) => value,
            Value::Short(value) => HeaderValue::from_bytes(value.as_bytes()).expect(VALID),
            Value::Part(from, to) => {
                let part = text.slice(from as usize..to as usize);
                HeaderValue::from_maybe_shared(part).expect(VALID)
            }
        }
    }
}

impl Field {
    fn value<'a>(&'a self, text: &'a [u8]) -> &'a [u8] {
        match &self.value {
            Value::Part(from, to) => &text[*from as usize..*to as usize],
            Value::Own(value) => value.as_bytes(),
            Value::Short(value) => value.as_bytes(),
        }
    }
}

/// Fields that were found in a text.
#[derive(Debug)]
pub(crate) struct Found(Vec<Field>);

impl Found {
    /// Nothing yet, with room for some.
    pub(crate) fn with_capacity(fields: usize) -> Self {
        Found(Vec::with_capacity(fields))
    }

    /// Where a value is, which is valid as such.
    pub(crate) fn push(&mut self, name: HeaderName, value: Range<usize>) {
        let place = |at| u32::try_from(at).expect("heads are read up to a bound far below 4 GiB");
        self.0.push(Field {
            name,
            value: Value::Part(place(value.start), place(value.end)),
        });
    }

    /// The fields of this text.
    pub(crate) fn of(self, text: Bytes) -> Headers {
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

    /// Makes room for more fields.
    pub fn reserve(&mut self, more: usize) {
        self.fields.reserve(more);
    }

    /// How many fields there are.
    pub fn len(&self) -> usize {
        self.fields.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    /// The fields in their order.
    pub fn iter(&self) -> impl Iterator<Item = (&HeaderName, &[u8])> {
        let fields = self.fields.iter();
        fields.map(|field| (&field.name, field.value(&self.text)))
    }

    /// The names of the fields in their order, some of them several times.
    pub fn names(&self) -> impl Iterator<Item = &HeaderName> {
        self.fields.iter().map(|field| &field.name)
    }

    /// The value of the first field of this name.
    pub fn get(&self, name: impl Borrow<HeaderName>) -> Option<&[u8]> {
        self.find(name.borrow())
            .map(|field| field.value(&self.text))
    }

    fn find(&self, name: &HeaderName) -> Option<&Field> {
        self.fields.iter().find(|field| field.name == *name)
    }

    /// The value of the first field of this name, to be kept.
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
            .map(|field| field.value(&self.text))
    }

    /// Whether there is a field of this name.
    pub fn contains(&self, name: impl Borrow<HeaderName>) -> bool {
        self.find(name.borrow()).is_some()
    }

    /// Adds a field behind the others.
    pub fn append(&mut self, name: impl Into<HeaderName>, value: impl Into<FieldValue>) {
        let (name, FieldValue(value)) = (name.into(), value.into());
        self.fields.push(Field { name, value });
    }

    /// Adds a field with the value that the first of another name has, if there is one.
    pub fn append_as(&mut self, name: impl Into<HeaderName>, other: impl Borrow<HeaderName>) {
        if let Some(value) = self.find(other.borrow()).map(|field| field.value.clone()) {
            self.append(name, FieldValue(value));
        }
    }

    /// Adds a field in the place of all others of its name.
    pub fn insert(&mut self, name: impl Into<HeaderName>, value: impl Into<FieldValue>) {
        let name = name.into();
        let mut value = Some(value.into());
        self.fields.retain_mut(|field| {
            field.name != name
                || value.take().is_some_and(|FieldValue(value)| {
                    field.value = value;
                    true
                })
        });
        if let Some(value) = value {
            self.append(name, value);
        }
    }

    /// Adds a field unless there is one of its name.
    pub fn insert_missing(&mut self, name: impl Into<HeaderName>, value: impl Into<FieldValue>) {
        let name = name.into();
        if !self.contains(&name) {
            self.append(name, value);
        }
    }

    /// Leaves out every field of this name.
    pub fn remove(&mut self, name: impl Borrow<HeaderName>) {
        self.retain(|field| field != name.borrow());
    }

    /// Leaves out the fields whose names are not to be kept.
    pub fn retain(&mut self, mut keep: impl FnMut(&HeaderName) -> bool) {
        self.fields.retain(|field| keep(&field.name));
    }

    /// Leaves out all fields.
    pub fn clear(&mut self) {
        *self = Headers::new();
    }
}

/// A value as text, if it is ASCII.
pub(crate) fn ascii(value: &[u8]) -> Option<&str> {
    str::from_utf8(value).ok().filter(|text| text.is_ascii())
}

/// Writes a field as HTTP/1.1 does.
pub(crate) fn write_field(name: &HeaderName, value: &[u8], buffer: &mut BytesMut) {
    for part in [name.as_str().as_bytes(), b": ", value, b"\r\n"] {
        buffer.put_slice(part);
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
            // Only the first of several fields has the name with it.
            last = name.or(last);
            headers.extend(last.clone().map(|name| (name, value)));
        }
        headers
    }
}

impl From<Headers> for HeaderMap {
    fn from(headers: Headers) -> Self {
        let Headers { text, fields } = headers;
        let mut map = HeaderMap::with_capacity(fields.len());
        for Field { name, value } in fields {
            map.append(name, value.into_owned(&text));
        }
        map
    }
}

#[cfg(test)]
mod tests {
    use http::header::{ACCEPT, COOKIE, FROM, HOST, REFERER, VIA};
    use proptest::prelude::*;

    use super::*;
    use crate::http_ext::http1::found;

    fn value(text: &str) -> HeaderValue {
        HeaderValue::from_str(text).expect("a value")
    }

    fn read(head: &str) -> Headers {
        let mut fields = [httparse::EMPTY_HEADER; 64];
        let parsed = httparse::parse_headers(head.as_bytes(), &mut fields).expect("a head");
        let httparse::Status::Complete((_, fields)) = parsed else {
            panic!("{head:?} has no end");
        };
        let found = found(fields, head.as_bytes()).expect("names");
        found.of(Bytes::copy_from_slice(head.as_bytes()))
    }

    fn written(headers: &Headers) -> String {
        let mut buffer = BytesMut::new();
        for (name, value) in headers.iter() {
            write_field(name, value, &mut buffer);
        }
        String::from_utf8(buffer.to_vec()).expect("text")
    }

    #[test]
    fn fields_stay_in_their_order() {
        for mut headers in [
            Headers::from_iter([(VIA, value("1")), (HOST, value("a")), (VIA, value("2"))]),
            read("VIA: 1\r\nHost:a \r\nvia:\t2\r\n\r\n"),
        ] {
            assert_eq!(written(&headers), "via: 1\r\nhost: a\r\nvia: 2\r\n");
            assert_eq!(headers.get(VIA), Some(&b"1"[..]));
            assert_eq!(headers.get_owned(VIA), Some(value("1")));
            assert_eq!(headers.get_all(VIA).next_back(), Some(&b"2"[..]));
            headers.insert(VIA, value("3"));
            headers.insert_missing(HOST, value("b"));
            headers.insert_missing(ACCEPT, value("c"));
            headers.append_as(REFERER, HOST);
            headers.append_as(FROM, COOKIE);
            assert_eq!(
                written(&headers),
                "via: 3\r\nhost: a\r\naccept: c\r\nreferer: a\r\n"
            );
            headers.remove(&HOST);
            assert_eq!((headers.contains(HOST), headers.len()), (false, 3));
        }
    }

    #[test]
    fn what_is_added_is_a_value() {
        for value in ["", "0", "a b", &"x".repeat(30), &"x".repeat(31), "\u{e9}"] {
            let mut headers = Headers::new();
            headers.append(
                FROM,
                FieldValue::try_from(value.as_bytes()).expect("a value"),
            );
            assert_eq!(headers.get(FROM), Some(value.as_bytes()));
            assert_eq!(headers.get_owned(FROM).expect("a field"), value.as_bytes());
        }
        let mut headers = Headers::new();
        headers.append(FROM, u64::MAX);
        assert_eq!(headers.get(FROM), Some(&b"18446744073709551615"[..]));
        for value in ["a\n", "\r\n", "\0", "\u{7f}"] {
            assert!(FieldValue::try_from(value.as_bytes()).is_err(), "{value:?}");
        }
    }

    #[test]
    fn they_are_shown_as_text() {
        let headers = read("A: \u{e9}\"\r\n\r\n");
        assert_eq!(format!("{headers:?}"), r#"{a: \xc3\xa9\"}"#);
    }

    /// What is done to header fields.
    #[derive(Clone, Debug)]
    enum Step {
        Append(u8, u16),
        Insert(u8, u16),
        InsertMissing(u8, u16),
        Remove(u8),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            (0..5_u8, any::<u16>()).prop_map(|(name, value)| Step::Append(name, value)),
            (0..5_u8, any::<u16>()).prop_map(|(name, value)| Step::Insert(name, value)),
            (0..5_u8, any::<u16>()).prop_map(|(name, value)| Step::InsertMissing(name, value)),
            (0..5_u8).prop_map(Step::Remove),
        ];
        proptest::collection::vec(step, 0..40)
    }

    proptest! {
        #[test]
        fn every_name_has_the_values_that_a_map_would_have(
            first in proptest::collection::vec((0..5_usize, "[ -~]{0,6}", "[ \t]{0,2}"), 0..8),
            steps in steps(),
        ) {
            let names = ["x-0", "x-1", "host", "via", "x-4"].map(HeaderName::from_static);
            let name = |place: u8| names[usize::from(place)].clone();
            let mut map = HeaderMap::new();
            let mut head = String::new();
            for (place, text, space) in first {
                map.append(&names[place], value(text.trim_matches([' ', '\t'])));
                let name = names[place].as_str().to_ascii_uppercase();
                head.push_str(&format!("{name}:{space}{text}{space}\r\n"));
            }
            let mut list = read(&format!("{head}\r\n"));
            for step in steps {
                match step {
                    Step::Append(place, new) => {
                        list.append(name(place), u64::from(new));
                        map.append(name(place), new.into());
                    }
                    Step::Insert(place, new) => {
                        list.insert(name(place), u64::from(new));
                        map.insert(name(place), new.into());
                    }
                    Step::InsertMissing(place, new) => {
                        list.insert_missing(name(place), u64::from(new));
                        map.entry(name(place)).or_insert(new.into());
                    }
                    Step::Remove(place) => {
                        list.remove(name(place));
                        map.remove(name(place));
                    }
                }
                for name in &names {
                    let values: Vec<_> = list.get_all(name).collect();
                    let known = map.get_all(name);
                    let known: Vec<_> = known.iter().map(HeaderValue::as_bytes).collect();
                    prop_assert_eq!(&values, &known);
                    prop_assert_eq!(list.get(name), known.first().copied());
                    prop_assert_eq!(list.get_owned(name), map.get(name).cloned());
                    prop_assert_eq!(list.contains(name), map.contains_key(name));
                }
                prop_assert_eq!(list.len(), map.len());
                prop_assert_eq!(HeaderMap::from(read(&format!("{}\r\n", written(&list)))), map.clone());
            }
            prop_assert_eq!(&HeaderMap::from(list.clone()), &map);
            prop_assert_eq!(HeaderMap::from(Headers::from(map.clone())), map);
        }
    }
}
