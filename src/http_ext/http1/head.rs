//! The fields of a head.

use bytes::{BufMut, Bytes, BytesMut};
use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{HeaderName, HeaderValue};

use super::Invalid;
use crate::http_ext::headers::Headers;

/// Room for the fields of an ordinary message and for those that the proxy adds. It takes 1 KiB: allocators are fastest with
/// powers of two.
const ROOM: usize = 14;

/// Fields whose values are parts of `text`, not copies.
///
/// # Errors
/// When a name or a value is not one.
pub(crate) fn headers(fields: &[httparse::Header<'_>], text: &Bytes) -> Result<Headers, Invalid> {
    let mut headers = Headers::with_capacity(fields.len().max(ROOM));
    for field in fields {
        let name = HeaderName::from_bytes(field.name.as_bytes());
        let value = HeaderValue::from_maybe_shared(text.slice_ref(field.value));
        match (name, value) {
            (Ok(name), Ok(value)) => headers.append(name, value),
            (Err(_), _) => return Err(httparse::Error::HeaderName.into()),
            (_, Err(_)) => return Err(httparse::Error::HeaderValue.into()),
        }
    }
    Ok(headers)
}

/// Whether a field says where the body ends: written by who writes the body, and by nobody else.
pub(crate) fn tells_framing(name: &HeaderName) -> bool {
    *name == CONTENT_LENGTH || *name == TRANSFER_ENCODING
}

pub(crate) fn write_field(name: &HeaderName, value: &[u8], buffer: &mut BytesMut) {
    buffer.put_slice(name.as_str().as_bytes());
    buffer.put_slice(b": ");
    buffer.put_slice(value);
    buffer.put_slice(b"\r\n");
}
