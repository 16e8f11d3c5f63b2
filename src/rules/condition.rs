//! On which requests a limit applies: conditions on the head of a request, and what is made of them.
//!
//! Of a field that is given with different values nobody knows which one the upstream will use, so that a
//! condition on it is neither met nor unmet. A limit applies unless its condition is certainly unmet:
//! nobody leaves it by repeating a field.

use http::Method;
use http::header::{HeaderName, HeaderValue};
use ipnet::IpNet;

use super::descriptor::KeyPart;
use super::matcher::{PathEquivalence, PathPattern, RouteMatch};
use super::{Head, Lookup};

/// Something that a request is, or is not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// It has one of these methods.
    Method(Vec<Method>),
    /// It has this field, with this value and no other.
    Header(HeaderName, HeaderValue),
    /// Its token has this claim, with this value.
    Claim(String, String),
    /// It asks for such a path.
    Path(PathCondition),
    /// The client's address is in one of these networks.
    ClientIp(Vec<IpNet>),
    /// One of these is met.
    Any(Vec<Condition>),
    /// All of these are met.
    All(Vec<Condition>),
    /// This is not met.
    Not(Box<Condition>),
}

/// A pattern for paths, in every spelling that is one to the route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathCondition {
    form: PathEquivalence,
    spellings: Vec<PathPattern>,
}

impl PathCondition {
    /// The paths that `path` takes on a route to which those paths are one that `form` makes one.
    pub fn new(path: PathPattern, form: PathEquivalence) -> Self {
        let route = RouteMatch {
            path,
            form,
            ..RouteMatch::default()
        };
        PathCondition {
            form,
            spellings: route.spellings(),
        }
    }

    fn matches(&self, path: &str) -> bool {
        let path = self.form.fold(path);
        self.spellings.iter().any(|pattern| pattern.matches(&path))
    }
}

impl Condition {
    /// Whether what has this condition applies to `head`: unless it is certainly unmet.
    pub fn applies(&self, head: &Head<'_>) -> bool {
        self.is_met(head) != Some(false)
    }

    /// Whether it has to know what the token of a request says.
    pub fn reads_token(&self) -> bool {
        match self {
            Self::Claim(..) => true,
            Self::Any(conditions) | Self::All(conditions) => {
                conditions.iter().any(Self::reads_token)
            }
            Self::Not(condition) => condition.reads_token(),
            Self::Method(_) | Self::Header(..) | Self::Path(_) | Self::ClientIp(_) => false,
        }
    }

    /// The fields and claims that it asks for.
    pub fn fields(&self) -> Vec<KeyPart> {
        match self {
            Self::Header(name, _) => vec![KeyPart::Header(name.clone())],
            Self::Claim(name, _) => vec![KeyPart::Claim(name.clone())],
            Self::Any(conditions) | Self::All(conditions) => {
                conditions.iter().flat_map(Self::fields).collect()
            }
            Self::Not(condition) => condition.fields(),
            Self::Method(_) | Self::Path(_) | Self::ClientIp(_) => Vec::new(),
        }
    }

    /// `None` where nobody knows.
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
            Self::Any(conditions) => any_decides(conditions, true, head),
            Self::All(conditions) => any_decides(conditions, false, head),
            Self::Not(condition) => condition.is_met(head).map(|met| !met),
        }
    }
}

/// A list in which one condition that is `decisive` decides: without one, an unknown one makes all unknown.
fn any_decides(conditions: &[Condition], decisive: bool, head: &Head<'_>) -> Option<bool> {
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
