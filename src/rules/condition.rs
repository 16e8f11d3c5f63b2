//! Conditions on request heads. They say which requests a route takes, a limit applies to, and access
//! rules deny.
//!
//! If a header is repeated with different values, the upstream may use either, so a condition on it
//! is *unknown*. A limit applies unless its condition is certainly false, so repeating a header
//! doesn't avoid the limit.

use std::fmt;

use http::Method;

use super::credentials::Credentials;
use super::descriptor::KeyPart;
use super::matcher::{CaseSensitivity, HostPattern, PathEquivalence, PathPattern, TrailingSlash};
use super::network_set::NetworkSet;
use super::string_matcher::{LinearRegex, StringMatcher};
use super::{Head, KeyText, Lookup};
use crate::http::connection::Scheme;
use crate::http::grpc;
use crate::net::socket::StreamAddress;

/// A condition on a request.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Condition {
    /// The method is one of these.
    Method(Methods),
    /// The host is one of these.
    Host(Vec<HostPattern>),
    /// This field, query parameter, cookie, claim or part of the body, decoded, has a value that matches, and no other.
    Value(KeyPart, StringMatcher),
    /// The path matches.
    Path(PathCondition),
    /// The client's address is in one of these networks.
    ClientIp(NetworkSet),
    /// The connection was accepted at one of these addresses.
    Listener(Vec<StreamAddress>),
    /// The client's connection has this scheme.
    Scheme(Scheme),
    /// The request is one of gRPC.
    Grpc,
    /// One of these is met.
    Any(Vec<Condition>),
    /// All of these are met.
    All(Vec<Condition>),
    /// This is not met.
    Not(Box<Condition>),
    /// True or false, but it is not known which.
    Unknown,
}

/// Methods. `GET` includes `HEAD`, whose response differs by the missing body alone (RFC 9110 section
/// 9.3.2), unless another route takes `HEAD`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Methods {
    /// As they are written.
    pub named: Vec<Method>,
    pub(super) includes_head: bool,
}

impl From<Vec<Method>> for Methods {
    fn from(named: Vec<Method>) -> Self {
        let includes_head = named.contains(&Method::GET);
        Self {
            named,
            includes_head,
        }
    }
}

impl Methods {
    /// Returns true if a request with this method is meant.
    pub fn contains(&self, method: &Method) -> bool {
        self.named.contains(method) || self.includes_head && *method == Method::HEAD
    }
}

/// A pattern or an expression for paths, for each spelling that the route treats as equal.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PathCondition {
    equivalence: PathEquivalence,
    matcher: PathMatcher,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum PathMatcher {
    /// One of these spellings of a pattern.
    Spellings(Vec<PathPattern>),
    /// Paths in which this expression finds something.
    Regex(LinearRegex),
}

impl PathCondition {
    /// Makes the condition that `path` matches under this equivalence.
    pub fn new(path: PathPattern, equivalence: PathEquivalence) -> Self {
        PathCondition {
            matcher: PathMatcher::Spellings(path.spellings(equivalence)),
            equivalence,
        }
    }

    /// Makes the condition that this expression finds something in the path, with or without a slash
    /// at the end if the equivalence ignores it.
    ///
    /// # Errors
    /// As [`LinearRegex::new`].
    pub fn regex(text: &str, equivalence: PathEquivalence) -> Result<Self, String> {
        let ignores_case = equivalence.case == CaseSensitivity::Insensitive;
        let regex = LinearRegex::new(text, ignores_case)?;
        Ok(PathCondition {
            equivalence,
            matcher: PathMatcher::Regex(regex),
        })
    }

    fn matches(&self, path: &str) -> bool {
        let path = self.equivalence.fold(path);
        match &self.matcher {
            PathMatcher::Spellings(patterns) => {
                patterns.iter().any(|pattern| pattern.matches(&path))
            }
            // `*`, which begins with no slash, is no path.
            PathMatcher::Regex(regex) => {
                let ignores_slash = self.equivalence.trailing_slash == TrailingSlash::Ignore;
                let other = || match path.strip_suffix('/') {
                    Some(bare) => regex.finds(bare.as_bytes()),
                    None => regex.finds([&*path, "/"].concat().as_bytes()),
                };
                path.starts_with('/')
                    && (regex.finds(path.as_bytes()) || ignores_slash && path != "/" && other())
            }
        }
    }
}

impl Condition {
    /// Returns true unless the condition is certainly false.
    pub fn applies(&self, head: &Head<'_>) -> bool {
        self.is_met(head) != Some(false)
    }

    /// Returns true if the condition is certainly true.
    pub fn is_certain(&self, head: &Head<'_>) -> bool {
        self.is_met(head) == Some(true)
    }

    /// Returns true if every request that meets `other` meets this condition too. Only lists of
    /// methods are compared item by item; other conditions have to be equal.
    pub(super) fn is_implied_by(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Method(own), Self::Method(others)) => {
                let head = others.includes_head.then_some(&Method::HEAD);
                let mut methods = others.named.iter().chain(head);
                methods.all(|method| own.contains(method))
            }
            _ => self == other,
        }
    }

    /// Returns true if the condition reads the token.
    pub fn reads_token(&self) -> bool {
        let mut inputs = self.inputs().into_iter();
        inputs.any(|part| matches!(part, KeyPart::Claim(_)))
    }

    /// Returns the fields, cookies, claims and parts of the body that the condition reads.
    pub fn inputs(&self) -> Vec<KeyPart> {
        match self {
            Self::Value(part, _) if part.is_from_fields() => vec![part.clone()],
            Self::Any(conditions) | Self::All(conditions) => {
                conditions.iter().flat_map(Self::inputs).collect()
            }
            Self::Not(condition) => condition.inputs(),
            _ => Vec::new(),
        }
    }

    /// Returns `None` if that is unknown: a header or claim has different values, the body wasn't read,
    /// or the method or path isn't known yet.
    fn is_met(&self, head: &Head<'_>) -> Option<bool> {
        match self {
            Self::Method(_)
            | Self::Host(_)
            | Self::Path(_)
            | Self::Value(KeyPart::Query(_), _)
            | Self::Grpc
                if head.is_any_target =>
            {
                None
            }
            Self::Method(methods) => Some(methods.contains(head.method)),
            Self::Host(hosts) => Some(hosts.iter().any(|host| host.matches(head.host))),
            Self::Value(part, matcher) => {
                let matches = match part {
                    KeyPart::Credentials(name) => Lookup::among(head.headers.get_all(name))
                        .map(|field| Credentials::of(field).match_with(matcher)),
                    _ => part.named_value(head).map(|value| matcher.matches(&value)),
                };
                match matches {
                    Lookup::One(matches) => Some(matches),
                    Lookup::Missing if part.is_unread(head) => None,
                    Lookup::Missing => Some(false),
                    Lookup::Several => None,
                }
            }
            Self::Path(path) => Some(path.matches(head.path)),
            Self::ClientIp(networks) => Some(networks.contains(head.client_ip)),
            Self::Listener(addresses) => {
                let local = head.local?;
                Some(addresses.iter().any(|address| address.accepts_at(local)))
            }
            Self::Scheme(scheme) => Some(head.scheme? == *scheme),
            Self::Grpc => Some(grpc::is_request(head.headers)),
            Self::Any(conditions) => combine(conditions, true, |one| one.is_met(head)),
            Self::All(conditions) => combine(conditions, false, |one| one.is_met(head)),
            Self::Not(condition) => condition.is_met(head).map(|met| !met),
            Self::Unknown => None,
        }
    }

    /// Returns if requests with this key meet the condition, by what is known of their client; `None`
    /// for conditions on anything else.
    pub(super) fn is_met_by_key(&self, key: &KeyText) -> Option<bool> {
        match self {
            Self::Value(part, matcher) if part.is_of_client() => {
                Some(matcher.matches(key.value(part)?))
            }
            Self::Any(conditions) => combine(conditions, true, |one| one.is_met_by_key(key)),
            Self::All(conditions) => combine(conditions, false, |one| one.is_met_by_key(key)),
            Self::Not(condition) => condition.is_met_by_key(key).map(|met| !met),
            _ => None,
        }
    }
}

/// The reason why a request doesn't meet the condition, without values, which may be secrets.
impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Method(_) => f.write_str("another method"),
            Self::Host(_) => f.write_str("another host"),
            Self::Value(part, _) => write!(f, "{part} is absent, or another"),
            Self::Path(_) => f.write_str("another path"),
            Self::ClientIp(_) => f.write_str("another client address"),
            Self::Listener(_) => f.write_str("another listener"),
            Self::Scheme(_) => f.write_str("another scheme"),
            Self::Grpc => f.write_str("no request of gRPC"),
            Self::Any(_) | Self::All(_) | Self::Not(_) | Self::Unknown => {
                f.write_str("a condition of `when` isn't met")
            }
        }
    }
}

/// Combines conditions by Kleene's three-valued logic. `decisive` is true for `any`, false for `all`.
fn combine(
    conditions: &[Condition],
    decisive: bool,
    is_met: impl Fn(&Condition) -> Option<bool>,
) -> Option<bool> {
    let mut met = Some(!decisive);
    for condition in conditions {
        match is_met(condition) {
            Some(one) if one == decisive => return Some(decisive),
            Some(_) => {}
            None => met = None,
        }
    }
    met
}

#[cfg(test)]
mod tests;
