//! Fields that are meant for the next hop only (RFC 9110 section 7.6.1).

use http::header::{
    self, CONNECTION, Entry, HeaderMap, HeaderName, HeaderValue, TE, TRANSFER_ENCODING, UPGRADE,
};

/// Fields that never go further. `TE` and those that `Connection` names are treated apart.
static HOP_BY_HOP: [HeaderName; 7] = [
    CONNECTION,
    HeaderName::from_static("proxy-connection"),
    HeaderName::from_static("keep-alive"),
    TRANSFER_ENCODING,
    UPGRADE,
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
];

/// Removes them. What `Connection` names goes too, but for what frames or routes the message, which
/// a sender has no say in.
pub fn remove(headers: &mut HeaderMap) {
    if headers.contains_key(CONNECTION) {
        remove_named(headers);
    }
    for name in &HOP_BY_HOP {
        headers.remove(name);
    }
    keep_te_trailers(headers);
}

fn remove_named(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| HeaderName::from_bytes(name.trim().as_bytes()).ok())
        .filter(|name| ![header::HOST, header::CONTENT_LENGTH, TE].contains(name))
        .collect();
    for name in named {
        headers.remove(name);
    }
}

/// `TE: trailers` says that the client takes trailers, which this proxy forwards.
fn keep_te_trailers(headers: &mut HeaderMap) {
    let Entry::Occupied(field) = headers.entry(TE) else {
        return;
    };
    let trailers = field
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|coding| coding.trim().eq_ignore_ascii_case("trailers"));
    field.remove_entry_mult();
    if trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
    }
}
