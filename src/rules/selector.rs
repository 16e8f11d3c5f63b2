//! Whom the exceptions of a limit are about: a value of a key's part, values that start alike, or a network of
//! clients.
//!
//! Values are compared in the spelling in which keys are hashed, so that nobody leaves an exception, or gets into
//! one, by writing the same thing another way. A part that is missing and for which no constant stands in, or that is given
//! with different values, is none.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use http::header::AUTHORIZATION;
use ipnet::IpNet;

use super::descriptor::KeyPart;
use super::{Head, Lookup};

/// Whom an exception is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selector {
    /// Who has this value in this part.
    Value(KeyPart, String),
    /// Whose value in this part starts so.
    Prefix(KeyPart, String),
    /// Clients in this network.
    Network(IpNet),
}

/// What a limit makes an exception of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exception {
    /// The limit does not apply.
    Exempt,
    /// Another quota holds: the one at this place.
    Override(usize),
}

/// The exceptions of a limit. An exemption goes before an override.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exceptions {
    /// Of all limits.
    exempt_everywhere: Arc<Selectors>,
    /// Of the policy, shared by the routes that read its key alike.
    exempt: Arc<Selectors>,
    overrides: Arc<Selectors>,
}

impl Exceptions {
    /// Those that are selected so, and those `from_all` limits; `None` without any.
    pub fn new(
        from_all: Arc<Selectors>,
        exempt: Arc<Selectors>,
        overrides: Arc<Selectors>,
    ) -> Option<Self> {
        let some = !(from_all.is_empty() && exempt.is_empty() && overrides.is_empty());
        some.then(|| Exceptions {
            exempt_everywhere: from_all,
            exempt,
            overrides,
        })
    }

    /// What is excepted about this request.
    pub fn find(&self, head: &Head<'_>) -> Option<Exception> {
        match self
            .exempt_everywhere
            .find(head)
            .or_else(|| self.exempt.find(head))
        {
            Some(_) => Some(Exception::Exempt),
            None => self.overrides.find(head).map(Exception::Override),
        }
    }

    /// The parts of requests that it asks for.
    pub fn parts(&self) -> impl Iterator<Item = &KeyPart> {
        let lists = [&*self.exempt_everywhere, &*self.exempt, &*self.overrides];
        lists
            .into_iter()
            .flat_map(|list| &list.parts)
            .map(|of| &of.part)
    }
}

/// A list of selectors, of which the closest is found: a value goes before a prefix, a longer prefix before a
/// shorter one, and networks come last, small before large ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selectors {
    parts: Vec<PartSelectors>,
    /// Longest prefixes first.
    networks: Vec<LengthGroup<IpNet>>,
    /// The value of parts that are missing.
    stand_in: Option<Box<str>>,
}

/// The selectors of one length, by what they select. Looked up once a length: there are few of these however many there are.
#[derive(Clone, Debug, PartialEq, Eq)]
struct LengthGroup<K: Eq + Hash> {
    length: usize,
    places: HashMap<K, usize>,
}

/// The selectors by one part, with their places in the list.
#[derive(Clone, Debug, PartialEq, Eq)]
struct PartSelectors {
    part: KeyPart,
    values: HashMap<Box<[u8]>, usize>,
    /// Longest first.
    prefixes: Vec<LengthGroup<Box<[u8]>>>,
}

impl Selectors {
    /// Those of the list, which gives them their places.
    pub fn new(list: Vec<Selector>) -> Self {
        let mut selectors = Selectors::default();
        for (place, selector) in list.into_iter().enumerate() {
            match selector {
                Selector::Value(part, value) => {
                    let value = canonical_value(&part, value.as_bytes()).into();
                    selectors.of(part).values.entry(value).or_insert(place);
                }
                Selector::Prefix(part, prefix) => {
                    let prefix = canonical_prefix(&part, prefix.as_bytes()).into();
                    let prefix: Box<[u8]> = prefix;
                    add(
                        &mut selectors.of(part).prefixes,
                        prefix.len(),
                        prefix,
                        place,
                    );
                }
                Selector::Network(network) => {
                    let length = network.prefix_len().into();
                    add(&mut selectors.networks, length, network.trunc(), place);
                }
            }
        }
        selectors
    }

    /// The same, where parts that are missing have this value.
    #[must_use]
    pub fn with_stand_in(mut self, value: Option<&str>) -> Self {
        self.stand_in = value.map(Box::from);
        self
    }

    fn of(&mut self, part: KeyPart) -> &mut PartSelectors {
        let known = self.parts.iter().position(|of| of.part == part);
        let place = known.unwrap_or_else(|| {
            self.parts.push(PartSelectors {
                part,
                values: HashMap::new(),
                prefixes: Vec::new(),
            });
            self.parts.len() - 1
        });
        &mut self.parts[place]
    }

    fn is_empty(&self) -> bool {
        self.parts.is_empty() && self.networks.is_empty()
    }

    /// The place of the closest.
    fn find(&self, head: &Head<'_>) -> Option<usize> {
        let by = |find: fn(&PartSelectors, &[u8]) -> Option<usize>| {
            let stand_in = self.stand_in.as_deref();
            self.parts
                .iter()
                .find_map(|of| of.find(head, stand_in, find))
        };
        by(PartSelectors::value)
            .or_else(|| by(PartSelectors::prefix))
            .or_else(|| {
                let of = |of: &LengthGroup<IpNet>| {
                    let network = IpNet::new(head.client_ip, of.length as u8).ok()?;
                    of.places.get(&network.trunc()).copied()
                };
                self.networks.iter().find_map(of)
            })
    }
}

impl PartSelectors {
    fn find(
        &self,
        head: &Head<'_>,
        stand_in: Option<&str>,
        find: fn(&PartSelectors, &[u8]) -> Option<usize>,
    ) -> Option<usize> {
        let find = |value: &[u8]| find(self, &canonical_value(&self.part, value));
        match self.part.with_value(head, find) {
            Lookup::One(place) => place,
            Lookup::Missing => find(stand_in?.as_bytes()),
            Lookup::Several => None,
        }
    }

    fn value(&self, value: &[u8]) -> Option<usize> {
        self.values.get(value).copied()
    }

    fn prefix(&self, value: &[u8]) -> Option<usize> {
        let of = |of: &LengthGroup<Box<[u8]>>| of.places.get(value.get(..of.length)?).copied();
        self.prefixes.iter().find_map(of)
    }
}

/// Adds a selector to those of its length, which stay the longest first. Of equal ones the first holds.
fn add<K: Eq + Hash>(lengths: &mut Vec<LengthGroup<K>>, length: usize, key: K, place: usize) {
    let at = lengths.binary_search_by_key(&Reverse(length), |of| Reverse(of.length));
    let at = at.unwrap_or_else(|at| {
        let places = HashMap::new();
        lengths.insert(at, LengthGroup { length, places });
        at
    });
    lengths[at].places.entry(key).or_insert(place);
}

/// A whole value, in the spelling that stands for all.
pub(super) fn canonical_value<'a>(part: &KeyPart, value: &'a [u8]) -> Cow<'a, [u8]> {
    match part {
        KeyPart::Path(form) => folded(value, |text| form.canonical(text)),
        _ => canonical_prefix(part, value),
    }
}

/// The beginning of a value, in the same spelling.
fn canonical_prefix<'a>(part: &KeyPart, value: &'a [u8]) -> Cow<'a, [u8]> {
    match part {
        KeyPart::Path(form) | KeyPart::Segment { form, .. } => {
            folded(value, |text| form.fold(text))
        }
        KeyPart::Host => Cow::Owned(value.to_ascii_lowercase()),
        KeyPart::Header(name) if *name == AUTHORIZATION => canonical_credentials(value),
        _ => Cow::Borrowed(value),
    }
}

fn folded(value: &[u8], fold: impl FnOnce(&str) -> Cow<'_, str>) -> Cow<'_, [u8]> {
    match std::str::from_utf8(value) {
        Ok(text) => Cow::Owned(fold(text).into_owned().into_bytes()),
        Err(_) => Cow::Borrowed(value),
    }
}

/// Schemes have no case, and any number of spaces stands behind them (RFC 9110 section 11.4).
fn canonical_credentials(value: &[u8]) -> Cow<'_, [u8]> {
    let Some(space) = value.iter().position(|&byte| byte == b' ') else {
        return Cow::Owned(value.to_ascii_lowercase());
    };
    let (scheme, credentials) = value.split_at(space);
    let mut spelled = scheme.to_ascii_lowercase();
    spelled.push(b' ');
    spelled.extend_from_slice(credentials.trim_ascii());
    Cow::Owned(spelled)
}

#[cfg(test)]
mod tests;
