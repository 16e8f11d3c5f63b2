//! What a proxy tells the upstream about the client's side: X-Forwarded-*, Forwarded, Via.
//!
//! Fields of a peer that is trusted are continued; those of anybody else are replaced, so that an
//! upstream can believe them.

use std::net::IpAddr;

use bytes::{BufMut, BytesMut};
use http::Version;
use http::header::{FORWARDED, HOST, HeaderMap, HeaderName, HeaderValue, VIA};
use smallvec::SmallVec;

use super::client_ip::{MAX_HOPS, X_FORWARDED_FOR};
use super::connection::Connection;

const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const X_FORWARDED_PORT: HeaderName = HeaderName::from_static("x-forwarded-port");

/// Whether the peer's own fields are believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// A proxy in `trusted_proxies`.
    Trusted,
    /// Anybody else.
    Untrusted,
}

/// The values that are the same for all requests of a connection.
#[derive(Clone, Debug)]
pub struct Forwarding {
    address: HeaderValue,
    proto: HeaderValue,
    port: HeaderValue,
    /// `for=..;proto=..`
    element: HeaderValue,
}

impl Forwarding {
    /// The values of this connection.
    pub fn new(connection: &Connection) -> Self {
        let address = connection.peer.ip();
        let proto = connection.scheme.as_str();
        let element = match address {
            IpAddr::V4(address) => format!("for={address};proto={proto}"),
            IpAddr::V6(address) => format!("for=\"[{address}]\";proto={proto}"),
        };
        let value =
            |text: String| HeaderValue::try_from(text).expect("addresses are visible ASCII");
        Forwarding {
            address: value(address.to_string()),
            proto: HeaderValue::from_static(proto),
            port: HeaderValue::from(connection.local.port()),
            element: value(element),
        }
    }

    /// Writes the fields of a request that is about to be forwarded.
    pub fn write(&self, peer: Peer, headers: &mut HeaderMap) {
        match peer {
            Peer::Untrusted => self.replace(headers),
            Peer::Trusted => self.append(headers),
        }
    }

    fn replace(&self, headers: &mut HeaderMap) {
        headers.insert(X_FORWARDED_FOR, self.address.clone());
        headers.insert(X_FORWARDED_PROTO, self.proto.clone());
        headers.insert(X_FORWARDED_PORT, self.port.clone());
        match headers.get(HOST).cloned() {
            Some(host) => headers.insert(X_FORWARDED_HOST, host),
            None => headers.remove(X_FORWARDED_HOST),
        };
        headers.insert(FORWARDED, self.element.clone());
    }

    /// The first proxy knows how the client came; the others add where they stand.
    fn append(&self, headers: &mut HeaderMap) {
        extend(headers, X_FORWARDED_FOR, &self.address);
        extend(headers, FORWARDED, &self.element);
        headers
            .entry(X_FORWARDED_PROTO)
            .or_insert_with(|| self.proto.clone());
        headers
            .entry(X_FORWARDED_PORT)
            .or_insert_with(|| self.port.clone());
        if let Some(host) = headers.get(HOST).cloned() {
            headers.entry(X_FORWARDED_HOST).or_insert(host);
        }
    }
}

/// Adds to a list in one field: not all readers of X-Forwarded-For read a second one. Of a list that is
/// longer than anybody believes, the oldest hops are left out.
fn extend(headers: &mut HeaderMap, name: HeaderName, value: &HeaderValue) {
    let list = extended(headers, &name, value);
    headers.insert(name, list);
}

fn extended(headers: &HeaderMap, name: &HeaderName, value: &HeaderValue) -> HeaderValue {
    let before = headers.get_all(name).iter().rev();
    let hops: SmallVec<[&[u8]; 8]> = before
        .flat_map(|field| field.as_bytes().rsplit(|&byte| byte == b','))
        .map(<[u8]>::trim_ascii)
        .take(MAX_HOPS - 1)
        .collect();
    let length = hops.iter().map(|hop| hop.len() + 2).sum::<usize>() + value.len();
    let mut list = BytesMut::with_capacity(length);
    for hop in hops.iter().rev() {
        list.put_slice(hop);
        list.put_slice(b", ");
    }
    list.put_slice(value.as_bytes());
    HeaderValue::from_maybe_shared(list.freeze()).expect("values, commas and spaces make a value")
}

/// Says that this proxy passed a message on that came in `version` (RFC 9110 section 7.6.3).
pub fn via(headers: &mut HeaderMap, version: Version) {
    let value = match version {
        Version::HTTP_10 => const { HeaderValue::from_static("1.0 sluicegate") },
        Version::HTTP_2 => const { HeaderValue::from_static("2.0 sluicegate") },
        _ => const { HeaderValue::from_static("1.1 sluicegate") },
    };
    headers.append(VIA, value);
}

#[cfg(test)]
mod tests;
