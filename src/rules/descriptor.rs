//! The key of a request's bucket: parts of the request, hashed one after the other.
//!
//! Requests that an upstream may take for the same client have the same key: parts are hashed in a
//! canonical spelling. A part with different values (two fields, cookies or parameters of one name)
//! has no bucket. The upstream may use either value, and each added value would bring a fresh
//! bucket.

mod key_text;

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;

use derive_more::Display;
use http::Method;
use http::header::{AUTHORIZATION, HeaderName, PROXY_AUTHORIZATION};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::cookie::cookies;
use super::credentials::{Credentials, basic_user};
use super::selector::canonical_value;
use super::{Head, Lookup, PathEquivalence, query};
use crate::http::json_pointer::JsonPointer;
use crate::limiter::{Fingerprint, KeyParts, Secret};
use crate::net::peer_address::translated_ipv4;
use crate::visible;

pub use key_text::{KeyText, KeyTextError, PartText};

/// A part of a request that can be in a key. It is shown as the configuration writes it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Display)]
#[display(rename_all = "snake_case")]
pub enum KeyPart {
    /// The client's address; an IPv6 address by its first bits only, 1 to 128 of them.
    #[display("client_ip")]
    ClientIp {
        /// How many bits.
        ipv6_prefix: u8,
    },
    /// The value of this field, unless it is empty.
    #[display("header:{_0}")]
    Header(HeaderName),
    /// The credentials in this field, however they are spelled.
    #[display("header:{_0}")]
    Credentials(HeaderName),
    /// The value of this cookie, decoded, unless it is empty.
    #[display("cookie:{_0}")]
    Cookie(String),
    /// The value of this parameter, decoded, unless it is empty.
    #[display("query:{_0}")]
    Query(String),
    /// This claim of the request's token, which has to be verified.
    #[display("jwt:{_0}")]
    Claim(String),
    /// The name of the client that the request's key belongs to.
    Client,
    /// The value that the client has in this column.
    #[display("client:{_0}")]
    ClientColumn(String),
    /// The user of basic authentication, unless it is empty.
    BasicUser,
    /// A segment of the path.
    #[display("path segment {}", place.saturating_add(1))]
    Segment {
        /// Its place, counted from 0.
        place: usize,
        /// The paths that the route treats as equal.
        form: PathEquivalence,
    },
    /// The whole path, in the canonical form of the paths that the route treats as equal.
    #[display("path")]
    Path(PathEquivalence),
    /// The method. All that HTTP does not define itself count as one.
    Method,
    /// The host.
    Host,
    /// The route's name.
    #[display("route")]
    Route(Arc<str>),
    /// Nothing: one bucket for all.
    Constant,
    /// The scalar here in a JSON body, unless it is empty or `null`.
    #[display("body:{_0}")]
    Body(Arc<JsonPointer>),
    /// This field of a form in the body, decoded, unless it is empty.
    #[display("form:{_0}")]
    Form(String),
    /// Kind and name of the operation in a GraphQL body.
    #[display("body:graphql")]
    Graphql,
}

/// The rule for requests without a part. It is shown as the configuration writes it, without a
/// constant.
#[derive(Clone, Debug, PartialEq, Eq, Display)]
#[display(rename_all = "snake_case")]
pub enum OnMissingKey {
    /// This part replaces it; if that is missing too, the client's address does.
    Part(KeyPart),
    /// The limit does not apply.
    Skip,
    /// The limit refuses.
    Refuse,
    /// All such requests share a bucket.
    Shared,
    /// The part has this value, as if the request had sent it.
    #[display("a value")]
    Value(Arc<str>),
}

/// The handling of requests with different values in a part of the key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnSeveralValues {
    /// The request is refused.
    #[default]
    Refuse,
    /// The first value counts: that of the first field, cookie or parameter.
    First,
    /// All values together are the key, in any order.
    All,
}

/// A key, compiled for one route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// The parts that the key consists of.
    pub parts: Vec<KeyPart>,
    /// The rule for requests without a part.
    pub on_missing: OnMissingKey,
    /// The handling of requests with different values in a part.
    pub on_several: OnSeveralValues,
    /// The client's address, which replaces a part whose replacement is missing too.
    address: KeyPart,
}

/// The key of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// Charge this bucket.
    Bucket(Fingerprint),
    /// The limit does not apply.
    Skip,
    /// The limit refuses: a required part is missing, or a part has different values.
    Refuse,
}

/// The reason why a request has no bucket, and is refused for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyFault<'a> {
    /// The request lacks this part.
    Missing(&'a KeyPart),
    /// The request has different values in this part.
    Several(&'a KeyPart),
}

/// A part of a key as people read it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "KeyPartReport")]
pub struct PartDescription {
    /// The part, as the configuration writes it.
    pub part: String,
    /// Its value, short and printable; absent if there is none, or several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// `present`, `missing`, or `several` for different values.
    pub state: Cow<'static, str>,
    /// True for values that only the client has to know: those of fields, cookies, parameters,
    /// claims and bodies.
    #[serde(skip)]
    pub is_secret: bool,
}

/// The kind of a missing part under `on_missing_key: shared`.
const MISSING: u8 = 0;
/// The name of all methods that HTTP does not define itself.
const OTHER_METHOD: &str = "other";
/// Added to the kind of a part that replaces a missing one, so that their values never collide.
const STAND_IN: u8 = 128;

impl Descriptor {
    /// The key that consists of `parts`, at least one. `ipv6_prefix` is for a fallback to the
    /// client's address.
    pub fn new(parts: Vec<KeyPart>, on_missing: OnMissingKey, ipv6_prefix: u8) -> Self {
        Descriptor {
            parts,
            on_missing,
            on_several: OnSeveralValues::default(),
            address: KeyPart::ClientIp { ipv6_prefix },
        }
    }

    /// Returns the parts that the key may read.
    pub fn inputs(&self) -> impl Iterator<Item = &KeyPart> {
        let stand_in = match &self.on_missing {
            OnMissingKey::Part(part) => Some(part),
            _ => None,
        };
        self.parts.iter().chain(stand_in)
    }

    /// Returns true if the key reads the token.
    pub fn reads_token(&self) -> bool {
        self.inputs().any(|part| matches!(part, KeyPart::Claim(_)))
    }

    /// Returns true if each client's address has buckets of its own, whatever the client claims.
    pub fn is_by_address(&self) -> bool {
        let is_address = |part: &KeyPart| matches!(part, KeyPart::ClientIp { .. });
        self.parts.iter().any(is_address) && !self.parts.iter().any(KeyPart::is_claimed)
    }

    /// Returns true if the request's key is a client's name or columns, and nothing that is a secret or
    /// an address.
    pub fn names_client(&self, head: &Head<'_>) -> bool {
        let is_public =
            |part: &KeyPart| part.is_of_client() && !part.is_missing(head) || part.is_of_all();
        self.parts.iter().any(KeyPart::is_of_client) && self.parts.iter().all(is_public)
    }

    /// Returns true if all clients have the same keys.
    pub fn is_of_all(&self) -> bool {
        self.parts.iter().all(KeyPart::is_of_all)
    }

    /// Returns the key of this request. Allocates only to decode or fold a part.
    pub fn fingerprint(&self, secret: &Secret, head: &Head<'_>) -> Key {
        let mut hasher = secret.hasher();
        match self.feed(head, &mut hasher) {
            Ok(()) => Key::Bucket(hasher.finish()),
            Err(keyless) => keyless,
        }
    }

    /// Returns the fingerprint of a key of which the request has all parts.
    pub fn whole_fingerprint(&self, secret: &Secret, head: &Head<'_>) -> Option<Fingerprint> {
        let is_whole = !self.parts.iter().any(|part| part.is_missing(head));
        match is_whole.then(|| self.fingerprint(secret, head)) {
            Some(Key::Bucket(key)) => Some(key),
            _ => None,
        }
    }

    /// Feeds the parts of this request's key to `hasher`.
    ///
    /// # Errors
    /// The `Key` without a bucket, as [`fingerprint`](Self::fingerprint) returns it.
    pub fn feed(&self, head: &Head<'_>, hasher: &mut impl KeyParts) -> Result<(), Key> {
        for part in &self.parts {
            let found = match self.feed_part(part, part.kind(), head, hasher) {
                Lookup::Missing => match &self.on_missing {
                    OnMissingKey::Part(other) => self.stand_in(other, head, hasher),
                    OnMissingKey::Skip => return Err(Key::Skip),
                    OnMissingKey::Refuse => return Err(Key::Refuse),
                    OnMissingKey::Shared => {
                        hasher.part(MISSING, b"");
                        Lookup::One(())
                    }
                    OnMissingKey::Value(value) => {
                        part.feed_value(
                            part.kind(),
                            &canonical_value(part, value.as_bytes()),
                            hasher,
                        );
                        Lookup::One(())
                    }
                },
                found => found,
            };
            if found == Lookup::Several {
                return Err(Key::Refuse);
            }
        }
        Ok(())
    }

    fn feed_part(
        &self,
        part: &KeyPart,
        kind: u8,
        head: &Head<'_>,
        hasher: &mut impl KeyParts,
    ) -> Lookup<()> {
        let found = part.feed(kind, head, hasher);
        if found != Lookup::Several {
            return found;
        }
        let values = self.several(part, head);
        if values.len() > 1 {
            // Their number, so that values of one part never pass for those of the next.
            hasher.part(MISSING, &values.len().to_be_bytes());
        }
        for value in &values {
            part.feed_value(kind, value, hasher);
        }
        if values.is_empty() {
            Lookup::Several
        } else {
            Lookup::One(())
        }
    }

    /// The values that count of a part with different ones; none if such requests are refused.
    fn several<'a>(&self, part: &'a KeyPart, head: &Head<'a>) -> Vec<Cow<'a, [u8]>> {
        let mut values = match self.on_several {
            OnSeveralValues::Refuse => return Vec::new(),
            OnSeveralValues::First | OnSeveralValues::All => part.values(head),
        };
        if self.on_several == OnSeveralValues::First {
            values.truncate(1);
        }
        values.sort_unstable();
        values.dedup();
        values
    }

    fn stand_in(&self, other: &KeyPart, head: &Head<'_>, hasher: &mut impl KeyParts) -> Lookup<()> {
        match self.feed_part(other, STAND_IN + other.kind(), head, hasher) {
            Lookup::Missing => self
                .address
                .feed(STAND_IN + self.address.kind(), head, hasher),
            found => found,
        }
    }

    /// A part, and those that replace it one after the other if it is missing. Every request has the
    /// last, an address.
    fn chain<'a>(&'a self, part: &'a KeyPart) -> impl Iterator<Item = &'a KeyPart> {
        let others = match &self.on_missing {
            OnMissingKey::Part(other) => Some([other, &self.address]),
            _ => None,
        };
        std::iter::once(part).chain(others.into_iter().flatten())
    }

    /// The first of them that the request doesn't lack, with its value, an address as text.
    fn found<'a, T>(
        &'a self,
        part: &'a KeyPart,
        head: &Head<'_>,
        take: impl Fn(&[u8]) -> T,
    ) -> Option<(&'a KeyPart, Lookup<T>)> {
        let mut chain = self.chain(part);
        chain.find_map(|part| match part.with_text(head, &take) {
            Lookup::Missing => None,
            value => Some((part, value)),
        })
    }

    /// Returns the values that the key of this request consists of, each cut to 256 bytes, including
    /// fallbacks. A part that all requests without it share is empty.
    pub fn texts(&self, head: &Head<'_>) -> Vec<Box<[u8]>> {
        let text = |part: &KeyPart| {
            let found = self.found(part, head, |value| Box::from(cut(value)));
            match (found, &self.on_missing) {
                (Some((_, Lookup::One(text))), _) => text,
                (Some((part, _)), _) => cut(&self.several(part, head).join(&b", "[..])).into(),
                (None, OnMissingKey::Value(value)) => cut(value.as_bytes()).into(),
                (None, _) => Box::default(),
            }
        };
        self.parts.iter().map(text).collect()
    }

    /// Returns the part for whose lack, or different values, the request has no
    /// bucket.
    pub fn fault(&self, head: &Head<'_>) -> Option<KeyFault<'_>> {
        self.parts
            .iter()
            .find_map(|part| match self.found(part, head, |_| ()) {
                Some((part, Lookup::Several)) => Some(KeyFault::Several(part)),
                None if self.on_missing == OnMissingKey::Refuse => Some(KeyFault::Missing(part)),
                _ => None,
            })
    }

    /// Returns the parts and their values in this request, including fallbacks.
    pub fn describe(&self, head: &Head<'_>) -> Vec<PartDescription> {
        let mut described = Vec::new();
        for part in &self.parts {
            let mut is_missing = true;
            for part in self.chain(part) {
                let value = part.with_text(head, |value| shown(&String::from_utf8_lossy(value)));
                is_missing = value == Lookup::Missing;
                described.push(part.described(value));
                if !is_missing {
                    break;
                }
            }
            if let OnMissingKey::Value(value) = &self.on_missing
                && is_missing
            {
                described.push(PartDescription {
                    part: "on_missing_key".to_owned(),
                    value: Some(shown(value)),
                    state: "present".into(),
                    is_secret: false,
                });
            }
        }
        described
    }
}

impl KeyPart {
    /// The value, or the credentials, in this field.
    pub fn field(name: HeaderName) -> Self {
        if [AUTHORIZATION, PROXY_AUTHORIZATION].contains(&name) {
            Self::Credentials(name)
        } else {
            Self::Header(name)
        }
    }

    /// Returns true for parts from the body.
    pub fn is_from_body(&self) -> bool {
        matches!(self, Self::Body(_) | Self::Form(_) | Self::Graphql)
    }

    /// Returns true if the request has a body that is too long to be read: the upstream may find the
    /// part in it.
    pub fn is_unread(&self, head: &Head<'_>) -> bool {
        let body = head.body.filter(|_| self.is_from_body());
        body.is_some_and(|body| body.length().is_none())
    }

    /// Returns true for parts from header fields or the body, which some logs lack.
    pub fn is_from_fields(&self) -> bool {
        !matches!(self, Self::Query(_)) && self.is_claimed() || self.is_of_client()
    }

    /// Returns true for the client by its key. No other client can have its name, which is no secret.
    pub fn is_of_client(&self) -> bool {
        matches!(self, Self::Client | Self::ClientColumn(_))
    }

    /// Returns true for values that say nothing of the client.
    fn is_of_all(&self) -> bool {
        matches!(self, Self::Route(_) | Self::Method | Self::Constant)
    }

    /// Returns true for values that a client chooses, and that only the client has to know.
    fn is_claimed(&self) -> bool {
        matches!(
            self,
            Self::Header(_)
                | Self::Credentials(_)
                | Self::Cookie(_)
                | Self::Query(_)
                | Self::Claim(_)
                | Self::BasicUser
        ) || self.is_from_body()
    }

    /// Returns true if the request lacks the part.
    pub fn is_missing(&self, head: &Head<'_>) -> bool {
        self.with_value(head, |_| ()) == Lookup::Missing
    }

    /// Hashes the part under `kind`.
    fn feed(&self, kind: u8, head: &Head<'_>, hasher: &mut impl KeyParts) -> Lookup<()> {
        if let Self::Credentials(name) = self {
            return match Lookup::among(head.headers.get_all(name)).map(Credentials::of) {
                Lookup::One(credentials) if !credentials.feed(kind, hasher) => Lookup::Missing,
                found => found.map(drop),
            };
        }
        self.with_value(head, |value| self.feed_value(kind, value, hasher))
    }

    fn feed_value(&self, kind: u8, value: &[u8], hasher: &mut impl KeyParts) {
        if let Self::Credentials(_) = self {
            Credentials::of(value).feed(kind, hasher);
        } else {
            hasher.part(kind, value);
        }
    }

    /// Distinguishes parts, so that a field with `1.2.3.4` is not that address.
    fn kind(&self) -> u8 {
        match self {
            Self::ClientIp { .. } => 1,
            Self::Header(_) | Self::Credentials(_) => 2,
            Self::Cookie(_) => 3,
            Self::Query(_) => 4,
            Self::Segment { .. } => 5,
            Self::Path(_) => 6,
            Self::Method => 7,
            Self::Host => 8,
            Self::Route(_) => 9,
            Self::Constant => 10,
            Self::Claim(_) => 11,
            Self::BasicUser => 12,
            Self::Client => 13,
            Self::ClientColumn(_) => 14,
            Self::Body(_) => 15,
            Self::Form(_) => 16,
            Self::Graphql => 17,
        }
    }

    /// Returns the value of a field, cookie, parameter, claim or part of the body, also if it is empty,
    /// or of the client; no other part has a value here.
    #[inline]
    pub(super) fn named_value<'a>(&'a self, head: &Head<'a>) -> Lookup<Cow<'a, [u8]>> {
        match self {
            Self::Header(name) => Lookup::among(head.headers.get_all(name)).map(Cow::Borrowed),
            Self::Credentials(name) => Lookup::among(head.headers.get_all(name))
                .map(|field| Cow::Owned(Credentials::of(field).plain())),
            Self::Cookie(name) => Lookup::among(cookies(head.headers, name)),
            Self::Query(name) => Lookup::among(query::parameters(head.query, name)).map(bytes),
            Self::Claim(name) => {
                let claim = head.token.map(|token| token.claim(name));
                let claim = claim.unwrap_or(Lookup::Missing);
                claim.map(|value| Cow::Borrowed(value.as_bytes()))
            }
            Self::Body(_) | Self::Form(_) | Self::Graphql => {
                let found = head.body.map(|body| body.lookup(self));
                found.unwrap_or(Lookup::Missing)
            }
            Self::Client | Self::ClientColumn(_) => {
                let client = head.client.map(|client| client.value(self, head));
                let client = client.unwrap_or(Lookup::Missing);
                client.map(|value| Cow::Borrowed(value.as_bytes()))
            }
            _ => Lookup::Missing,
        }
    }

    /// Passes the value to `take`, in its canonical spelling.
    pub(super) fn with_value<T>(
        &self,
        head: &Head<'_>,
        take: impl FnOnce(&[u8]) -> T,
    ) -> Lookup<T> {
        let value = match self {
            Self::ClientIp { ipv6_prefix } => {
                return Lookup::One(address_bits(head.client_ip, *ipv6_prefix, take));
            }
            Self::BasicUser => basic_user(head.headers),
            Self::Segment { place, form } => match form.segment(head.path, *place) {
                Some(segment) => Lookup::One(bytes(segment)),
                None => Lookup::Missing,
            },
            Self::Path(form) => Lookup::One(bytes(form.canonical(head.path))),
            Self::Method => return Lookup::One(take(method(head.method).as_bytes())),
            Self::Host => return Lookup::One(take(head.host.as_bytes())),
            Self::Route(name) => return Lookup::One(take(name.as_bytes())),
            Self::Constant => return Lookup::One(take(b"")),
            named => named.named_value(head),
        };
        match value {
            Lookup::One(value) if value.is_empty() => Lookup::Missing,
            value => value.map(|value| take(&value)),
        }
    }

    /// The values of a field, cookie, parameter or form's field, without empty ones.
    fn values<'a>(&'a self, head: &Head<'a>) -> Vec<Cow<'a, [u8]>> {
        let mut values: Vec<_> = match self {
            Self::Header(name) => head.headers.get_all(name).map(Cow::Borrowed).collect(),
            Self::Credentials(name) => {
                let fields = head.headers.get_all(name).map(Credentials::of);
                fields.map(|one| Cow::Owned(one.canonical())).collect()
            }
            Self::Cookie(name) => cookies(head.headers, name).collect(),
            Self::Query(name) => query::parameters(head.query, name).map(bytes).collect(),
            Self::Form(_) => {
                let values = head.body.map_or(&[][..], |body| body.values(self));
                values.iter().map(|value| Cow::Borrowed(&**value)).collect()
            }
            _ => Vec::new(),
        };
        values.retain(|value| !value.is_empty());
        values
    }

    fn described(&self, value: Lookup<String>) -> PartDescription {
        let state = match value {
            Lookup::One(_) => "present",
            Lookup::Missing => "missing",
            Lookup::Several => "several",
        };
        PartDescription {
            part: self.to_string(),
            value: value.one(),
            state: state.into(),
            is_secret: self.is_claimed(),
        }
    }

    /// Like [`with_value`](Self::with_value), with an address as text.
    fn with_text<T>(&self, head: &Head<'_>, take: impl FnOnce(&[u8]) -> T) -> Lookup<T> {
        let Self::ClientIp { ipv6_prefix } = self else {
            return self.with_value(head, take);
        };
        let text = match head.client_ip {
            IpAddr::V4(address) => address.to_string(),
            IpAddr::V6(address) => match translated_ipv4(address) {
                Some(embedded) => embedded.to_string(),
                None => {
                    let net = ipnet::Ipv6Net::new(address, (*ipv6_prefix).clamp(1, 128));
                    let net = net.expect("a prefix of 1 to 128 bits").trunc();
                    net.to_string()
                }
            },
        };
        Lookup::One(take(text.as_bytes()))
    }
}

/// As `explain` shows it.
impl std::fmt::Display for PartDescription {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let part = &self.part;
        match (&self.value, &*self.state) {
            (Some(value), _) => write!(f, "{part} = {value}"),
            (None, "missing") => write!(f, "{part} is missing"),
            (None, _) => write!(f, "{part} is given with different values"),
        }
    }
}

fn bytes(text: Cow<'_, str>) -> Cow<'_, [u8]> {
    match text {
        Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
        Cow::Owned(text) => Cow::Owned(text.into_bytes()),
    }
}

/// Clients may invent methods, but no buckets with them.
fn method(method: &Method) -> &str {
    match *method {
        Method::GET
        | Method::HEAD
        | Method::POST
        | Method::PUT
        | Method::DELETE
        | Method::PATCH
        | Method::OPTIONS => method.as_str(),
        _ => OTHER_METHOD,
    }
}

/// Passes an address to `take`; an IPv6 address by its first bits only, or as the IPv4 address in it.
fn address_bits<T>(address: IpAddr, ipv6_prefix: u8, take: impl FnOnce(&[u8]) -> T) -> T {
    match address {
        IpAddr::V4(address) => take(&address.octets()),
        IpAddr::V6(address) => match translated_ipv4(address) {
            Some(embedded) => take(&embedded.octets()),
            None => {
                let mask = u128::MAX << (128 - u32::from(ipv6_prefix.clamp(1, 128)));
                take(&(address.to_bits() & mask).to_be_bytes())
            }
        },
    }
}

/// The beginning of a value that clients may make long.
fn cut(value: &[u8]) -> &[u8] {
    const LONGEST: usize = 256;
    &value[..value.len().min(LONGEST)]
}

/// Shortens a value for display, and escapes what is not as it looks.
fn shown(value: &str) -> String {
    const LONGEST: usize = 80;
    match value.char_indices().nth(LONGEST) {
        Some((end, _)) => visible::key(&value[..end]) + "…",
        None => visible::key(value),
    }
}

#[cfg(test)]
mod tests;
