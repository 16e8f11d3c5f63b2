//! Whose bucket a request is charged to: parts of the request, hashed one after the other.
//!
//! No text is built on the way. A part that is given twice (two fields of one name, two cookies, two
//! parameters) counts as missing, and so does one that is empty: an upstream may use either, and nobody
//! shall get a fresh bucket by adding another.

use std::net::IpAddr;
use std::sync::Arc;

use http::header::{COOKIE, HeaderMap, HeaderName};

use super::{Head, PathForm, query, segments};
use crate::limiter::{Fingerprint, KeyHasher, Secret};

/// A part of a request that can be in a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyPart {
    /// The client's address; an IPv6 address by its first bits only, 1 to 128 of them.
    ClientIp {
        /// How many bits.
        ipv6_prefix: u8,
    },
    /// The only value of this field, unless it is empty.
    Header(HeaderName),
    /// The only value of this cookie, without quotes around it, unless it is empty.
    Cookie(String),
    /// The only value of this parameter, unless it is empty.
    Query(String),
    /// A segment of the path.
    Segment {
        /// Its place, counted from 0.
        place: usize,
        /// Which paths are one to the route.
        form: PathForm,
    },
    /// The whole path, in the form that all paths share that are one to the route.
    Path(PathForm),
    /// The method.
    Method,
    /// The host.
    Host,
    /// The route's name.
    Route(Arc<str>),
    /// Nothing: one bucket for all.
    Constant,
}

/// What happens to requests without a part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OnMissingKey {
    /// This part is taken in its place, and where it is missing too, the client's address.
    Part(KeyPart),
    /// The limit does not apply.
    Skip,
    /// The limit refuses.
    Refuse,
    /// All such requests share a bucket.
    Shared,
}

/// A key, compiled for one route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Descriptor {
    parts: Vec<KeyPart>,
    on_missing: OnMissingKey,
    ipv6_prefix: u8,
}

/// What a descriptor makes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// Charge this bucket.
    Bucket(Fingerprint),
    /// The limit does not apply.
    Skip,
    /// The limit refuses.
    Refuse,
}

/// A part as people read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Described {
    /// What it is, as the configuration writes it.
    pub part: String,
    /// Its value; `None` where it is missing.
    pub value: Option<String>,
}

/// The kind under which a part that is missing, and shared, is hashed.
const MISSING: u8 = 0;
/// Added to the kind of a part that stands in for a missing one: a value of the one is none of the
/// other.
const STAND_IN: u8 = 128;

impl Descriptor {
    /// The key that consists of `parts`, at least one. `ipv6_prefix` is for a fallback to the client's
    /// address.
    pub fn new(parts: Vec<KeyPart>, on_missing: OnMissingKey, ipv6_prefix: u8) -> Self {
        Descriptor {
            parts,
            on_missing,
            ipv6_prefix,
        }
    }

    /// The bucket of this request. Allocates nothing, but for parameters that need decoding.
    pub fn fingerprint(&self, secret: &Secret, head: &Head<'_>) -> Key {
        let mut hasher = secret.hasher();
        for part in &self.parts {
            if part.feed(part.kind(), head, &mut hasher) {
                continue;
            }
            match &self.on_missing {
                OnMissingKey::Part(other) => self.stand_in(other, head, &mut hasher),
                OnMissingKey::Skip => return Key::Skip,
                OnMissingKey::Refuse => return Key::Refuse,
                OnMissingKey::Shared => hasher.part(MISSING, b""),
            }
        }
        Key::Bucket(hasher.finish())
    }

    fn stand_in(&self, other: &KeyPart, head: &Head<'_>, hasher: &mut KeyHasher) {
        if !other.feed(STAND_IN + other.kind(), head, hasher) {
            let address = self.last_resort();
            address.feed(STAND_IN + address.kind(), head, hasher);
        }
    }

    /// Every request has it.
    fn last_resort(&self) -> KeyPart {
        KeyPart::ClientIp {
            ipv6_prefix: self.ipv6_prefix,
        }
    }

    /// Its parts and their values in this request, fallbacks included.
    pub fn describe(&self, head: &Head<'_>) -> Vec<Described> {
        let mut described = Vec::new();
        for part in &self.parts {
            let mut chain = vec![part.clone()];
            if let OnMissingKey::Part(other) = &self.on_missing {
                chain.extend([other.clone(), self.last_resort()]);
            }
            for part in chain {
                let value = part.text(head);
                let is_there = value.is_some();
                let part = part.to_string();
                described.push(Described { part, value });
                if is_there {
                    break;
                }
            }
        }
        described
    }
}

impl KeyPart {
    /// Hashes the part under `kind`; false if it is missing.
    fn feed(&self, kind: u8, head: &Head<'_>, hasher: &mut KeyHasher) -> bool {
        self.with(head, |value| hasher.part(kind, value)).is_some()
    }

    /// So that a field that says `1.2.3.4` is not that address.
    fn kind(&self) -> u8 {
        match self {
            Self::ClientIp { .. } => 1,
            Self::Header(_) => 2,
            Self::Cookie(_) => 3,
            Self::Query(_) => 4,
            Self::Segment { .. } => 5,
            Self::Path(_) => 6,
            Self::Method => 7,
            Self::Host => 8,
            Self::Route(_) => 9,
            Self::Constant => 10,
        }
    }

    /// Gives the value to `take`, unless it is missing.
    fn with<T>(&self, head: &Head<'_>, take: impl FnOnce(&[u8]) -> T) -> Option<T> {
        match self {
            Self::ClientIp { ipv6_prefix } => Some(match head.client_ip {
                IpAddr::V4(address) => take(&address.octets()),
                IpAddr::V6(address) => {
                    let mask = u128::MAX << (128 - u32::from((*ipv6_prefix).clamp(1, 128)));
                    take(&(address.to_bits() & mask).to_be_bytes())
                }
            }),
            Self::Header(name) => {
                let mut values = head.headers.get_all(name).iter();
                let value = values.next().filter(|value| !value.is_empty())?;
                values.next().is_none().then(|| take(value.as_bytes()))
            }
            Self::Cookie(name) => cookie(head.headers, name).map(take),
            Self::Query(name) => query::only(head.query, name, |value| {
                (!value.is_empty()).then(|| take(value.as_bytes()))
            })
            .flatten(),
            Self::Segment { place, form } => segments(head.path)
                .nth(*place)
                .map(|text| take(form.fold(text).as_bytes())),
            Self::Path(form) => Some(take(form.canonical(head.path).as_bytes())),
            Self::Method => Some(take(head.method.as_str().as_bytes())),
            Self::Host => Some(take(head.host.as_bytes())),
            Self::Route(name) => Some(take(name.as_bytes())),
            Self::Constant => Some(take(b"")),
        }
    }

    fn text(&self, head: &Head<'_>) -> Option<String> {
        match (self, head.client_ip) {
            (Self::ClientIp { .. }, IpAddr::V4(address)) => Some(address.to_string()),
            (Self::ClientIp { ipv6_prefix }, IpAddr::V6(address)) => {
                let net = ipnet::Ipv6Net::new(address, *ipv6_prefix).ok()?;
                Some(net.trunc().to_string())
            }
            _ => self.with(head, |value| String::from_utf8_lossy(value).into_owned()),
        }
    }
}

/// As the configuration writes it.
impl std::fmt::Display for KeyPart {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::ClientIp { .. } => f.write_str("client_ip"),
            Self::Header(name) => write!(f, "header:{name}"),
            Self::Cookie(name) => write!(f, "cookie:{name}"),
            Self::Query(name) => write!(f, "query:{name}"),
            Self::Segment { place, .. } => write!(f, "path segment {}", place.saturating_add(1)),
            Self::Path(_) => f.write_str("path"),
            Self::Method => f.write_str("method"),
            Self::Host => f.write_str("host"),
            Self::Route(_) => f.write_str("route"),
            Self::Constant => f.write_str("constant"),
        }
    }
}

/// The only cookie called `name` (RFC 6265 section 4.2), unless it is empty. Quotes around a value are
/// none of it to many servers, and none of it here.
fn cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a [u8]> {
    let mut values = headers
        .get_all(COOKIE)
        .iter()
        .flat_map(|field| field.as_bytes().split(|&byte| byte == b';'))
        .filter_map(|pair| {
            pair.trim_ascii()
                .strip_prefix(name.as_bytes())?
                .strip_prefix(b"=")
        })
        .map(unquote);
    let value = values.next().filter(|value| !value.is_empty())?;
    values.next().is_none().then_some(value)
}

fn unquote(value: &[u8]) -> &[u8] {
    let inner = value
        .strip_prefix(b"\"")
        .and_then(|value| value.strip_suffix(b"\""));
    inner.unwrap_or(value)
}

#[cfg(test)]
mod tests;
