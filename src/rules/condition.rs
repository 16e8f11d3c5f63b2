//! Conditions on request heads, which say if a limit applies.
//!
//! If a header is repeated with different values, the upstream may use either, so a condition on it
//! is *unknown*. A limit applies unless its condition is certainly false, so repeating a header
//! doesn't avoid the limit.

use http::Method;
use http::header::{HeaderName, HeaderValue};
use ipnet::IpNet;

use super::descriptor::KeyPart;
use super::matcher::{PathEquivalence, PathPattern, RouteMatch};
use super::{Head, Lookup};

/// A condition on a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// The method is one of these.
    Method(Vec<Method>),
    /// This field has this value and no other.
    Header(HeaderName, HeaderValue),
    /// The token has this claim with this value.
    Claim(String, String),
    /// The path matches.
    Path(PathCondition),
    /// The client's address is in one of these networks.
    ClientIp(Vec<IpNet>),
    /// One of these is met.
    Any(Vec<Condition>),
    /// All of these are met.
    All(Vec<Condition>),
    /// This is not met.
    Not(Box<Condition>),
    /// True or false, but it is not known which.
    Unknown,
}

/// A pattern for paths, in each spelling that the route treats as equal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathCondition {
    equivalence: PathEquivalence,
    spellings: Vec<PathPattern>,
}

impl PathCondition {
    /// Makes the condition that `path` matches under this equivalence.
    pub fn new(path: PathPattern, equivalence: PathEquivalence) -> Self {
        let route = RouteMatch {
            path,
            form: equivalence,
            ..RouteMatch::default()
        };
        PathCondition {
            equivalence,
            spellings: route.spellings(),
        }
    }

    fn matches(&self, path: &str) -> bool {
        let path = self.equivalence.fold(path);
        self.spellings.iter().any(|pattern| pattern.matches(&path))
    }
}

impl Condition {
    /// Returns true unless the condition is certainly false.
    pub fn applies(&self, head: &Head<'_>) -> bool {
        self.is_met(head) != Some(false)
    }

    /// Returns the condition for a client whose next request may have any method and any path.
    #[must_use]
    pub fn for_any_target(&self) -> Self {
        let all = |conditions: &[Self]| conditions.iter().map(Self::for_any_target).collect();
        match self {
            Self::Method(_) | Self::Path(_) | Self::Unknown => Self::Unknown,
            Self::Any(conditions) => Self::Any(all(conditions)),
            Self::All(conditions) => Self::All(all(conditions)),
            Self::Not(condition) => Self::Not(Box::new(condition.for_any_target())),
            Self::Header(..) | Self::Claim(..) | Self::ClientIp(_) => self.clone(),
        }
    }

    /// Returns true if the condition reads the token.
    pub fn reads_token(&self) -> bool {
        match self {
            Self::Claim(..) => true,
            Self::Any(conditions) | Self::All(conditions) => {
                conditions.iter().any(Self::reads_token)
            }
            Self::Not(condition) => condition.reads_token(),
            Self::Method(_)
            | Self::Header(..)
            | Self::Path(_)
            | Self::ClientIp(_)
            | Self::Unknown => false,
        }
    }

    /// Returns the fields and claims that the condition reads.
    pub fn inputs(&self) -> Vec<KeyPart> {
        match self {
            Self::Header(name, _) => vec![KeyPart::Header(name.clone())],
            Self::Claim(name, _) => vec![KeyPart::Claim(name.clone())],
            Self::Any(conditions) | Self::All(conditions) => {
                conditions.iter().flat_map(Self::inputs).collect()
            }
            Self::Not(condition) => condition.inputs(),
            Self::Method(_) | Self::Path(_) | Self::ClientIp(_) | Self::Unknown => Vec::new(),
        }
    }

    /// Returns `None` if that is unknown: a header or claim has different values, or the method or
    /// path isn't known yet ([`Unknown`](Self::Unknown)).
    fn is_met(&self, head: &Head<'_>) -> Option<bool> {
        match self {
            Self::Method(methods) => Some(methods.contains(head.method)),
            Self::Header(name, value) => match Lookup::among(head.headers.get_all(name)) {
                Lookup::One(given) => Some(given == value),
                Lookup::Missing => Some(false),
                Lookup::Several => None,
            },
            Self::Claim(name, value) => {
                match head
                    .token
                    .map_or(Lookup::Missing, |token| token.claim(name))
                {
                    Lookup::One(given) => Some(given == value),
                    Lookup::Missing => Some(false),
                    Lookup::Several => None,
                }
            }
            Self::Path(path) => Some(path.matches(head.path)),
            Self::ClientIp(networks) => {
                let within = |network: &IpNet| network.contains(&head.client_ip);
                Some(networks.iter().any(within))
            }
            Self::Any(conditions) => combine(conditions, true, head),
            Self::All(conditions) => combine(conditions, false, head),
            Self::Not(condition) => condition.is_met(head).map(|met| !met),
            Self::Unknown => None,
        }
    }
}

/// Combines conditions by Kleene's three-valued logic. `decisive` is true for `any`, false for `all`.
fn combine(conditions: &[Condition], decisive: bool, head: &Head<'_>) -> Option<bool> {
    let mut met = Some(!decisive);
    for condition in conditions {
        match condition.is_met(head) {
            Some(one) if one == decisive => return Some(decisive),
            Some(_) => {}
            None => met = None,
        }
    }
    met
}

#[cfg(test)]
mod tests;
