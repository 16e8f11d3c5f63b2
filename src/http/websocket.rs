//! The opening handshake of WebSocket over HTTP/1.1 (RFC 6455 section 4), which WebSocket over
//! HTTP/2 (RFC 8441) does not have. The proxy makes one of the other.

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use aws_lc_rs::rand;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;
use http::header::{SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY};

use super::headers::Headers;

/// Appended to the key before it is hashed.
const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// The value of `Sec-WebSocket-Accept`, which proves that a server has read the key of a request.
#[derive(Clone, Debug)]
pub(crate) struct Accept(Option<HeaderValue>);

impl Accept {
    /// The answer to the key of a request with these fields.
    pub(crate) fn of(request: &Headers) -> Self {
        Accept(request.get(SEC_WEBSOCKET_KEY).map(|key| {
            let hash = digest(&SHA1_FOR_LEGACY_USE_ONLY, &[key, GUID].concat());
            let accept = STANDARD.encode(hash.as_ref());
            HeaderValue::try_from(accept).expect("Base64 has only visible characters")
        }))
    }

    /// Returns true if a response has this answer, and no other.
    pub(crate) fn is_in(&self, response: &Headers) -> bool {
        let expected = self.0.as_ref().map(HeaderValue::as_bytes);
        response.get_all(SEC_WEBSOCKET_ACCEPT).eq(expected)
    }

    /// Writes the field into the response; nothing if the request had no key.
    pub(crate) fn write(&self, response: &mut Headers) {
        if let Some(accept) = &self.0 {
            response.insert(SEC_WEBSOCKET_ACCEPT, accept.clone());
        }
    }
}

/// Adds a new key to a request.
pub(crate) fn add_key(request: &mut Headers) {
    let mut key = [0; 16];
    // Only a cache needs the key to be random: without it, zeros will do.
    let _ = rand::fill(&mut key);
    let key = HeaderValue::try_from(STANDARD.encode(key));
    request.insert(
        SEC_WEBSOCKET_KEY,
        key.expect("Base64 has only visible characters"),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_of_the_rfc_has_its_answer() {
        let key = HeaderValue::from_static("dGhlIHNhbXBsZSBub25jZQ==");
        let accept = Accept::of(&Headers::from_iter([(SEC_WEBSOCKET_KEY, key)]));
        let mut response = Headers::new();
        accept.write(&mut response);
        let written = response.get(SEC_WEBSOCKET_ACCEPT);
        assert_eq!(written, Some(&b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo="[..]));
        assert!(accept.is_in(&response) && !accept.is_in(&Headers::new()));
        response.append(SEC_WEBSOCKET_ACCEPT, HeaderValue::from_static("x"));
        assert!(!accept.is_in(&response));
    }
}
