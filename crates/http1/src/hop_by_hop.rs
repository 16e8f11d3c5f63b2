//! Hop-by-hop fields (RFC 9110 section 7.6.1).

use http::header::{
    self, CONNECTION, HeaderName, HeaderValue, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE,
    TRANSFER_ENCODING, UPGRADE,
};
use smallvec::SmallVec;

use crate::headers::Headers;

static KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
static PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");

/// Returns true for a field of a connection of HTTP/1.1, which HTTP/2 has not (RFC 9113 section 8.2.2).
pub fn is_of_connection(name: &HeaderName) -> bool {
    match *name {
        CONNECTION | TE | TRANSFER_ENCODING | UPGRADE => true,
        _ => *name == KEEP_ALIVE || *name == PROXY_CONNECTION,
    }
}

/// Returns true for a field that is not forwarded; `TE` is in part. Fields that `Connection` names
/// are handled apart.
fn is_hop_by_hop(name: &HeaderName) -> bool {
    matches!(*name, PROXY_AUTHENTICATE | PROXY_AUTHORIZATION) || is_of_connection(name)
}

/// Returns true for fields that frame or route a message, or in which proxies describe the client or
/// its request. A client cannot remove them by naming them in `Connection`, not even through a trusted
/// proxy that forwards `Connection`. Hop-by-hop fields are read before they are removed.
fn is_protected(name: &HeaderName) -> bool {
    match *name {
        header::HOST | header::CONTENT_LENGTH | header::EXPECT => true,
        header::FORWARDED | header::VIA => true,
        _ if is_hop_by_hop(name) => true,
        _ => {
            let name = name.as_str();
            let has_client = matches!(name, "x-real-ip" | "cf-connecting-ip" | "true-client-ip");
            has_client || name.starts_with("x-forwarded-") || name.starts_with("x-original-")
        }
    }
}

/// Options of `Connection` that name no further field to remove.
const PLAIN_OPTIONS: [&str; 4] = ["keep-alive", "close", "upgrade", "te"];

/// Removes hop-by-hop fields, and the fields that `Connection` names.
pub fn remove(headers: &mut Headers) {
    if !headers.names().any(is_hop_by_hop) {
        return;
    }
    if headers.get_all(CONNECTION).any(|value| !is_plain(value)) {
        remove_named(headers);
    }
    let trailers = takes_trailers(headers);
    headers.retain(|name| !is_hop_by_hop(name));
    if trailers {
        headers.append(TE, const { HeaderValue::from_static("trailers") });
        headers.append(CONNECTION, const { HeaderValue::from_static("te") });
    }
}

fn is_plain(option: &[u8]) -> bool {
    let mut plain = PLAIN_OPTIONS.iter();
    plain.any(|plain| option.eq_ignore_ascii_case(plain.as_bytes()))
}

/// Removes the fields that `Connection` names, unless a client may not remove them.
#[cold]
pub fn remove_named(headers: &mut Headers) {
    let mut named: SmallVec<[HeaderName; 4]> = headers
        .get_all(CONNECTION)
        .flat_map(|value| value.split(|&byte| byte == b','))
        .map(<[u8]>::trim_ascii)
        .filter(|option| !is_plain(option))
        .filter_map(|option| HeaderName::from_bytes(option).ok())
        .filter(|name| !is_protected(name))
        .collect();
    // Sorted: a client may name thousands.
    named.sort_unstable_by(|one, other| one.as_str().cmp(other.as_str()));
    headers.retain(|name| {
        let place = named.binary_search_by(|one| one.as_str().cmp(name.as_str()));
        place.is_err()
    });
}

/// `TE: trailers` says that the client accepts trailers, which proxies may forward. `Connection`
/// must name it again (RFC 9110 section 10.1.4).
fn takes_trailers(headers: &Headers) -> bool {
    headers
        .get_all(TE)
        .flat_map(|value| value.split(|&byte| byte == b','))
        .any(|coding| coding.trim_ascii().eq_ignore_ascii_case(b"trailers"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is left of these fields, sorted.
    fn left(fields: &[(&'static str, &'static str)]) -> Vec<(String, String)> {
        let mut headers = Headers::new();
        for (name, value) in fields {
            headers.append(
                HeaderName::from_static(name),
                HeaderValue::from_static(value),
            );
        }
        remove(&mut headers);
        let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
        let fields = headers.iter();
        let mut left: Vec<_> = fields
            .map(|(name, value)| (name.to_string(), text(value)))
            .collect();
        left.sort();
        left
    }

    fn names_left(fields: &[(&'static str, &'static str)]) -> Vec<String> {
        left(fields).into_iter().map(|(name, _)| name).collect()
    }

    #[test]
    fn hop_by_hop_fields_are_removed() {
        assert_eq!(
            names_left(&[
                ("connection", "close"),
                ("proxy-connection", "keep-alive"),
                ("keep-alive", "timeout=5"),
                ("transfer-encoding", "chunked"),
                ("upgrade", "websocket"),
                ("proxy-authenticate", "Basic"),
                ("proxy-authorization", "Basic eA=="),
                ("te", "gzip"),
                ("authorization", "Basic eA=="),
                ("trailer", "x-sum"),
            ]),
            ["authorization", "trailer"]
        );
    }

    #[test]
    fn fields_that_connection_names_are_removed() {
        let fields = [
            ("connection", "keep-alive, X-One ,,\tx-two"),
            ("connection", "X-THREE"),
            ("connection", "x-three, not a name, \"x-four\""),
            ("x-one", "1"),
            ("x-two", "2"),
            ("x-two", "2 again"),
            ("x-three", "3"),
            ("x-four", "4"),
        ];
        assert_eq!(names_left(&fields), ["x-four"]);
    }

    #[test]
    fn a_binary_value_of_connection_hides_no_name() {
        let mut headers = Headers::new();
        let connection = HeaderValue::from_bytes(b"x-one, \xff").expect("obs-text is a value");
        headers.insert(CONNECTION, connection);
        headers.insert(
            HeaderName::from_static("x-one"),
            HeaderValue::from_static("1"),
        );
        remove(&mut headers);
        assert!(headers.is_empty());
    }

    #[test]
    fn connection_cannot_remove_framing_or_routing_fields() {
        let fields = [
            ("connection", "host, content-length, close"),
            ("host", "a"),
            ("content-length", "5"),
        ];
        assert_eq!(names_left(&fields), ["content-length", "host"]);
    }

    #[test]
    fn connection_cannot_remove_forwarding_fields() {
        let fields = [
            (
                "connection",
                "X-Forwarded-For, x-forwarded-host, x-forwarded-port, x-forwarded-proto, Via, Forwarded, \
                 X-Original-URI",
            ),
            ("forwarded", "for=1.2.3.4"),
            ("via", "1.1 a"),
            ("x-forwarded-for", "1.2.3.4"),
            ("x-forwarded-host", "a"),
            ("x-forwarded-port", "443"),
            ("x-forwarded-proto", "https"),
            ("x-original-uri", "/a"),
        ];
        let said: Vec<&str> = fields[1..].iter().map(|(name, _)| *name).collect();
        assert_eq!(names_left(&fields), said);
    }

    #[test]
    fn only_trailers_of_te_is_forwarded() {
        let kept =
            [("connection", "te"), ("te", "trailers")].map(|(n, v)| (n.to_owned(), v.to_owned()));
        for fields in [
            &[("te", "trailers")][..],
            &[("te", "Trailers"), ("connection", "TE")],
            &[("te", "gzip;q=0.5, trailers ,deflate")],
            &[("te", "gzip"), ("te", "trailers")],
        ] {
            assert_eq!(left(fields), kept, "{fields:?}");
        }
        for value in ["", "gzip", "trailers;q=1", "xtrailers", "chunked"] {
            assert_eq!(left(&[("te", value)]), [], "{value}");
        }
    }
}
