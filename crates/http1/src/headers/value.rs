//! The value of a header field, and its storage.

use bytes::Bytes;
use http::HeaderValue;
use http::header::InvalidHeaderValue;

#[derive(Clone, Debug)]
pub(super) enum Value {
    /// The range in the text.
    Part(u32, u32),
    Own(HeaderValue),
    Short(Short),
}

/// A value of at most 30 bytes, stored in place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Short {
    length: u8,
    bytes: [u8; Short::MOST],
}

impl Short {
    const MOST: usize = 30;

    /// `None` if it is too long, or not of visible characters and spaces alone.
    fn new(value: &[u8]) -> Option<Self> {
        let mut bytes = [b' '; Short::MOST];
        bytes.get_mut(..value.len())?.copy_from_slice(value);
        // All 30 bytes at once, which is faster than a loop of any length.
        let fits = bytes
            .iter()
            .fold(true, |fits, byte| fits & matches!(byte, b' '..=b'~'));
        fits.then_some(Short {
            length: value.len() as u8,
            bytes,
        })
    }

    fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

/// A value that is added to header fields. A short one, such as a number, is stored in place.
#[derive(Clone, Debug)]
pub struct FieldValue(pub(super) Value);

impl From<HeaderValue> for FieldValue {
    fn from(value: HeaderValue) -> Self {
        FieldValue(Value::Own(value))
    }
}

impl From<u64> for FieldValue {
    fn from(number: u64) -> Self {
        let mut digits = itoa::Buffer::new();
        let digits = digits.format(number).as_bytes();
        let mut bytes = [b' '; Short::MOST];
        bytes[..digits.len()].copy_from_slice(digits);
        // At most 20 digits.
        let length = digits.len() as u8;
        FieldValue(Value::Short(Short { length, bytes }))
    }
}

impl TryFrom<&[u8]> for FieldValue {
    type Error = InvalidHeaderValue;

    /// Copies a value.
    fn try_from(value: &[u8]) -> Result<Self, InvalidHeaderValue> {
        match Short::new(value) {
            Some(short) => Ok(FieldValue(Value::Short(short))),
            None => HeaderValue::from_bytes(value).map(Self::from),
        }
    }
}

impl FieldValue {
    /// The bytes of the value.
    pub fn as_bytes(&self) -> &[u8] {
        // It is never a part of a text.
        self.0.of(b"")
    }
}

impl Value {
    /// Returns the bytes; `text` is the text that it may be a part of.
    pub(super) fn of<'a>(&'a self, text: &'a [u8]) -> &'a [u8] {
        match self {
            Value::Part(from, to) => &text[*from as usize..*to as usize],
            Value::Own(value) => value.as_bytes(),
            Value::Short(value) => value.as_bytes(),
        }
    }

    /// Returns an owned value; `text` is the text that it may be a part of.
    pub(super) fn into_owned(self, text: &Bytes) -> HeaderValue {
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
