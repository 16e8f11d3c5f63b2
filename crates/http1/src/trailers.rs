//! The fields behind a body (RFC 9110 section 6.5). They pass a proxy in both directions and both
//! versions by the same rules.

use bytes::Bytes;
use http::{HeaderMap, HeaderName};
use http_body::Frame;
use smallvec::SmallVec;

use crate::InvalidMessage;

/// The largest trailers, in bytes.
pub const MAX_TRAILERS: usize = 16 * 1024;

/// The error of larger ones.
pub const TOO_LARGE: InvalidMessage =
    InvalidMessage::TooLarge("its trailers are larger than 16 KiB");

/// The least bound of a header list in HTTP/2.
///
/// h2 drops fields of trailers that go beyond its bound, from the first such field on, and reports
/// nothing. Trailers of one frame are found by [`forwardable`] nevertheless: they have more than
/// [`MAX_TRAILERS`] without that field, which has at most 30 KiB. It has 16 KiB in Huffman's code, of
/// five bits or more for a byte, and a name of at most 4 KiB from the dynamic table. Trailers of several
/// frames are refused.
pub const LEAST_LIST_BOUND: usize = 48 * 1024;

/// Removes the fields that must not be forwarded from a frame of a body. `None` if these were trailers
/// with no other field.
///
/// # Errors
/// When they are larger than [`MAX_TRAILERS`].
pub fn forwardable(mut frame: Frame<Bytes>) -> Result<Option<Frame<Bytes>>, InvalidMessage> {
    let Some(trailers) = frame.trailers_mut() else {
        return Ok(Some(frame));
    };
    if size(trailers) > MAX_TRAILERS {
        return Err(TOO_LARGE);
    }
    let names = trailers.keys().filter(|name| is_forbidden(name)).cloned();
    let names: SmallVec<[HeaderName; 4]> = names.collect();
    for name in &names {
        trailers.remove(name);
    }
    let is_left = names.is_empty() || !trailers.is_empty();
    Ok(is_left.then_some(frame))
}

/// The size of a list of fields, as HTTP/2 counts it (RFC 9113 section 6.5.2).
pub fn size(fields: &HeaderMap) -> usize {
    let sizes = fields
        .iter()
        .map(|(name, value)| name.as_str().len() + value.len() + 32);
    sizes.sum()
}

/// Returns true for a field that is read before the body or not at all: one that frames, routes,
/// authenticates or controls a message, says how to read its content (RFC 9110 section 6.5.1), is for
/// one connection (section 7.6.1, RFC 9113 section 8.2.2), or describes the client.
fn is_forbidden(name: &HeaderName) -> bool {
    match name.as_str() {
        // Framing and routing.
        "content-length" | "host" | "max-forwards" | "trailer" | "transfer-encoding"
        | "x-original-url" | "x-rewrite-url" => true,
        "x-http-method-override" => true,
        // Authentication.
        "authorization" | "cookie" | "proxy-authenticate" | "set-cookie" | "www-authenticate" => {
            true
        }
        "proxy-authorization" => true,
        // Control of the request or the response.
        "age" | "cache-control" | "expect" | "expires" | "location" | "pragma" | "range"
        | "retry-after" | "vary" => true,
        // Content.
        "content-encoding" | "content-range" | "content-type" => true,
        // Connection.
        "connection" | "http2-settings" | "keep-alive" | "proxy-connection" | "te" | "upgrade" => {
            true
        }
        // The client's side.
        "cf-connecting-ip" | "forwarded" | "true-client-ip" | "via" | "x-client-ip"
        | "x-real-ip" => true,
        name => name.starts_with("if-") || name.starts_with("x-forwarded-"),
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use proptest::prelude::*;

    use super::*;

    const FORBIDDEN: [&str; 12] = [
        "connection",
        "te",
        "upgrade",
        "keep-alive",
        "proxy-connection",
        "transfer-encoding",
        "content-length",
        "host",
        "authorization",
        "if-match",
        "x-forwarded-for",
        "x-forwarded-client-cert",
    ];
    const FORWARDED: [&str; 6] = [
        "grpc-status",
        "grpc-message",
        "grpc-status-details-bin",
        "etag",
        "server-timing",
        "x-sum",
    ];

    fn trailers(names: &[&'static str]) -> Frame<Bytes> {
        let mut map = HeaderMap::new();
        for name in names {
            map.append(*name, HeaderValue::from_static("close"));
        }
        Frame::trailers(map)
    }

    proptest! {
        #[test]
        fn only_forbidden_fields_are_removed(
            forbidden in prop::sample::subsequence(&FORBIDDEN[..], 0..=FORBIDDEN.len()),
            forwarded in prop::sample::subsequence(&FORWARDED[..], 0..=FORWARDED.len()),
            twice in any::<bool>(),
        ) {
            let mut names = [&forbidden[..], &forwarded].concat();
            if twice {
                names.extend_from_within(..);
            }
            let frame = forwardable(trailers(&names)).expect("small trailers");
            let left = frame.and_then(|frame| frame.into_trailers().ok());
            prop_assert_eq!(left.is_none(), forwarded.is_empty() && !forbidden.is_empty());
            let left = left.unwrap_or_default();
            prop_assert_eq!(left.len(), forwarded.len() * if twice { 2 } else { 1 });
            prop_assert!(forwarded.iter().all(|name| left.contains_key(*name)));
        }
    }

    #[test]
    fn data_and_the_end_of_a_tunnels_direction_pass() {
        let data = forwardable(Frame::data(Bytes::from_static(b"a")));
        assert!(matches!(data, Ok(Some(frame)) if frame.is_data()));
        let end = forwardable(Frame::trailers(HeaderMap::new()));
        assert!(matches!(end, Ok(Some(frame)) if frame.is_trailers()));
    }

    #[test]
    fn large_trailers_are_refused_whole() {
        for (length, is_refused) in [(MAX_TRAILERS - 37, false), (MAX_TRAILERS - 36, true)] {
            let value = HeaderValue::try_from("x".repeat(length)).expect("a value");
            let map = HeaderMap::from_iter([(HeaderName::from_static("x-sum"), value)]);
            assert_eq!(forwardable(Frame::trailers(map)).is_err(), is_refused);
        }
    }
}
