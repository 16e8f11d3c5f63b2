//! The fields that tell an upstream about the client's side: X-Forwarded-*, Forwarded, Via.
//!
//! Fields of a trusted peer are extended. Those of any other peer are replaced, so that upstreams
//! can trust them.

use std::net::IpAddr;

use bytes::{BufMut, BytesMut};
use http::Version;
use http::header::{FORWARDED, HOST, HeaderName, HeaderValue, VIA};
use http::uri::Authority;
use smallvec::SmallVec;

use super::client_ip::{ClientIp, MAX_HOPS, X_FORWARDED_FOR, list_from_the_right};
use super::connection::{ClientConnection, Scheme};
use super::host::port_number;
use crate::http::headers::{FieldValue, Headers};

const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
pub(crate) const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const X_FORWARDED_PORT: HeaderName = HeaderName::from_static("x-forwarded-port");

/// The prefixes that proxies have removed from the path, the first one first.
pub const X_FORWARDED_PREFIX: HeaderName = HeaderName::from_static("x-forwarded-prefix");

/// Trust in the peer's own fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// A proxy in `trusted_proxies`.
    Trusted,
    /// Any other peer.
    Untrusted,
}

/// The values that are the same for all requests of a connection.
#[derive(Clone, Debug)]
pub struct Forwarding {
    /// `None` for a peer without an address.
    address: Option<FieldValue>,
    scheme: Scheme,
    /// The port of hosts that name none.
    port: u16,
    /// `for=..;proto=..`
    element: FieldValue,
}

impl Peer {
    /// The trust in a peer of whom it is known if it is trusted.
    pub fn of(is_trusted: bool) -> Self {
        if is_trusted {
            Self::Trusted
        } else {
            Self::Untrusted
        }
    }
}

/// The scheme that trusted proxies name, if they name one: in `Forwarded` if they are known to
/// write it, else in X-Forwarded-Proto. That is unknown if they name different ones, because either
/// proxy or client may have added each.
pub fn named_scheme(rules: &ClientIp, headers: &Headers) -> Option<Option<Scheme>> {
    if let Some(proto) = rules.forwarded_parameter(headers, "proto") {
        return Some(scheme(proto.as_bytes()));
    }
    let name = X_FORWARDED_PROTO;
    let names = headers
        .get_all(&name)
        .flat_map(|field| field.split(|&byte| byte == b','));
    let mut named = names.map(scheme);
    let first = named.next()?;
    Some(first.filter(|_| named.all(|other| other == first)))
}

/// The scheme of this name. Some proxies name `ws` and `wss` for WebSockets.
fn scheme(name: &[u8]) -> Option<Scheme> {
    match std::str::from_utf8(name.trim_ascii()).ok()? {
        "ws" => Some(Scheme::Http),
        "wss" => Some(Scheme::Https),
        name => name.parse().ok(),
    }
}

/// Writes the scheme and the host that trusted proxies name in `Forwarded`, if they are known to
/// write it, to the fields that others read.
pub fn restate(rules: &ClientIp, headers: &mut Headers) {
    let named = |name| rules.forwarded_parameter(headers, name);
    let proto = named("proto").and_then(|proto| scheme(proto.as_bytes()));
    let host =
        named("host").filter(|host| !host.contains('@') && Authority::try_from(*host).is_ok());
    let host = host.and_then(|host| HeaderValue::from_str(host).ok());
    if proto.is_some() || host.is_some() {
        headers.remove(X_FORWARDED_PORT);
    }
    if let Some(proto) = proto {
        headers.insert(X_FORWARDED_PROTO, HeaderValue::from_static(proto.into()));
    }
    if let Some(host) = host {
        headers.insert(X_FORWARDED_HOST, host);
    }
}

/// The port in a `Host`; `None` without one.
fn port_of(host: &[u8]) -> Option<u16> {
    // The port has five digits at most.
    let tail = &host[host.len().saturating_sub(6)..];
    let colon = tail.iter().rposition(|byte| *byte == b':')?;
    port_number(&tail[colon + 1..]).filter(|port| *port != 0)
}

impl Forwarding {
    /// The values of this connection.
    pub fn new(connection: &ClientConnection) -> Self {
        let address = connection.peer.ip();
        let proto: &str = connection.scheme.into();
        let element = match address {
            Some(IpAddr::V4(address)) => format!("for={address};proto={proto}"),
            Some(IpAddr::V6(address)) => format!("for=\"[{address}]\";proto={proto}"),
            None => format!("for=unknown;proto={proto}"),
        };
        let value = |text: &str| {
            FieldValue::try_from(text.as_bytes()).expect("addresses are visible ASCII")
        };
        Forwarding {
            address: address.map(|address| value(&address.to_string())),
            scheme: connection.scheme,
            port: connection
                .asked_port
                .unwrap_or(connection.scheme.default_port()),
            element: value(&element),
        }
    }

    /// Replaces the forwarding fields of a request that is about to be forwarded.
    pub fn write(&self, peer: Peer, rules: &ClientIp, headers: &mut Headers) {
        let is_said = headers.names().any(is_by_proxies);
        if is_said && peer == Peer::Untrusted {
            headers.retain(|name| !is_by_proxies(name));
        }
        if is_said && peer == Peer::Trusted {
            self.extend(rules, headers)
        } else {
            self.begin(headers)
        }
    }

    fn proto(&self) -> HeaderValue {
        HeaderValue::from_static(self.scheme.into())
    }

    fn begin(&self, headers: &mut Headers) {
        if let Some(address) = &self.address {
            headers.append(X_FORWARDED_FOR, address.clone());
        }
        headers.append(X_FORWARDED_PROTO, self.proto());
        if let Some(host) = headers.append_as(X_FORWARDED_HOST, HOST) {
            let port = port_of(host).unwrap_or(self.port);
            headers.append(X_FORWARDED_PORT, u64::from(port));
        }
        headers.append(FORWARDED, self.element.clone());
    }

    /// The first proxy knows the client's host and port; later ones keep its values.
    fn extend(&self, rules: &ClientIp, headers: &mut Headers) {
        restate(rules, headers);
        let scheme = named_scheme(rules, headers);
        // A hop without an address would end the reader's search for the client.
        if let Some(address) = &self.address {
            for (name, value) in [(X_FORWARDED_FOR, address), (FORWARDED, &self.element)] {
                let list = extended(headers, &name, value);
                headers.insert(name, list);
            }
        }
        headers.insert_missing(X_FORWARDED_PROTO, self.proto());
        if !headers.contains(X_FORWARDED_HOST) {
            headers.append_as(X_FORWARDED_HOST, HOST);
        }
        if !headers.contains(X_FORWARDED_PORT)
            && let Some(hosts) = headers.get(X_FORWARDED_HOST)
        {
            // Of a list, the first host is the client's.
            let host = hosts.split(|&byte| byte == b',').next().unwrap_or_default();
            // Unknown with the scheme.
            let default = scheme.map_or(Some(self.port), |named| Some(named?.default_port()));
            if let Some(port) = port_of(host.trim_ascii()).or(default) {
                headers.append(X_FORWARDED_PORT, u64::from(port));
            }
        }
    }
}

/// Returns true for a field in which proxies describe the client's side, down to its user or certificate.
fn is_by_proxies(name: &HeaderName) -> bool {
    let name = name.as_str();
    name.starts_with("x-forwarded-") || name == "forwarded"
}

/// Appends an element to a list in a single field, since not all readers of X-Forwarded-For read a
/// second field. Drops the oldest hops beyond [`MAX_HOPS`].
fn extended(headers: &Headers, name: &HeaderName, value: &FieldValue) -> HeaderValue {
    let (before, value) = (headers.get_all(name).rev(), value.as_bytes());
    let hops: SmallVec<[&[u8]; 8]> = before
        .flat_map(list_from_the_right)
        .take(MAX_HOPS - 1)
        .collect();
    let length = hops.iter().map(|hop| hop.len() + 2).sum::<usize>() + value.len();
    let mut list = BytesMut::with_capacity(length);
    for hop in hops.iter().rev() {
        list.put_slice(hop);
        list.put_slice(b", ");
    }
    list.put_slice(value);
    HeaderValue::from_maybe_shared(list.freeze()).expect("values, commas and spaces make a value")
}

/// The Via field of this proxy for a message that came in `version` (RFC 9110 section 7.6.3).
pub fn via(version: Version) -> (HeaderName, HeaderValue) {
    let value = match version {
        Version::HTTP_10 => const { HeaderValue::from_static("1.0 sluicegate") },
        Version::HTTP_2 => const { HeaderValue::from_static("2.0 sluicegate") },
        _ => const { HeaderValue::from_static("1.1 sluicegate") },
    };
    (VIA, value)
}

#[cfg(test)]
mod tests;
