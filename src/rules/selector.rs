//! The clients that the exceptions of a limit select: by a value of a key part, by a prefix of the
//! value, or by network, and the requests that they select by a condition.
//!
//! Values compare in the spelling in which keys are hashed, so that no client enters or leaves an
//! exception by another spelling. No selector matches a part that is missing without a constant in
//! its place, or that has different values, and no condition that isn't certainly met.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;

use super::condition::Condition;
use super::descriptor::KeyPart;
use super::matcher::{PathEquivalence, PathMatch};
use super::{Head, KeyText, Lookup, credentials};
use crate::net::peer_address::translated_ipv4;

/// The requests of an exception.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selection {
    /// The requests of these clients.
    Clients(Selector),
    /// The requests that meet this condition, of these clients only if some are named.
    When(Condition, Option<Selector>),
}

/// The clients of an exception.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selector {
    /// Requests with this value of this part.
    Value(KeyPart, String),
    /// Requests whose value of this part has this prefix.
    Prefix(KeyPart, String),
    /// Clients in this network.
    Network(IpNet),
}

/// An exception from a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exception {
    /// The limit does not apply.
    Exempt,
    /// The override at this index applies.
    Override(u32),
}

/// The exceptions of a limit. An exemption precedes an override.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exceptions {
    /// Exemptions from all limits.
    exempt_everywhere: Arc<Selectors>,
    /// Exemptions from the policy, shared by the routes that read its key alike.
    exempt: Arc<Selectors>,
    overrides: Arc<Selectors>,
}

impl Exceptions {
    /// Makes the exceptions of a policy and those from all limits; `None` if all lists are empty.
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

    /// Returns the exception of this request.
    pub fn find(&self, head: &Head<'_>) -> Option<Exception> {
        self.find_with(|selectors| selectors.find(head))
    }

    /// Returns the exception of requests with this key. Exceptions by conditions on anything but its
    /// client, and by parts that the key lacks, are unknown, and match none.
    pub fn find_by_key(&self, key: &KeyText) -> Option<Exception> {
        self.find_with(|selectors| selectors.find_by_key(key))
    }

    /// Returns the places of the overrides that requests with this key may also have, by what the
    /// key doesn't say.
    pub fn other_overrides(&self, key: &KeyText) -> BTreeSet<u32> {
        let conditional = self.overrides.conditional.iter();
        let conditional = conditional.filter(|one| one.is_met_by_key(key).is_none());
        let conditional = conditional.map(|one| one.place);
        let networks = self.overrides.networks.iter();
        let networks = networks.filter(|_| key.address.is_none());
        conditional
            .chain(networks.flat_map(|of| of.places.values().copied()))
            .collect()
    }

    fn find_with(&self, find: impl Fn(&Selectors) -> Option<u32>) -> Option<Exception> {
        match find(&self.exempt_everywhere).or_else(|| find(&self.exempt)) {
            Some(_) => Some(Exception::Exempt),
            None => find(&self.overrides).map(Exception::Override),
        }
    }

    /// Returns the parts of requests that the exceptions read.
    pub fn inputs(&self) -> impl Iterator<Item = KeyPart> {
        let lists = [&*self.exempt_everywhere, &*self.exempt, &*self.overrides];
        lists.into_iter().flat_map(Selectors::inputs)
    }
}

/// A list of selectors that finds the most specific. Those with a condition come first, in their
/// order. A value precedes a prefix, a longer prefix a shorter one, and networks come last, small
/// before large ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selectors {
    conditional: Vec<ConditionalSelector>,
    parts: Vec<PartSelectors>,
    /// Longest prefixes first.
    networks: Vec<LengthGroup<IpNet>>,
    /// The value of parts that are missing.
    stand_in: Option<Box<str>>,
}

/// A selector with a condition, and its index.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ConditionalSelector {
    when: Condition,
    /// The clients, in a list of their own; `None` for all.
    clients: Option<Box<Selectors>>,
    place: u32,
}

/// Selectors of one length, with their indices. A search makes one look-up for each length: there
/// are few.
#[derive(Clone, Debug, PartialEq, Eq)]
struct LengthGroup<K: Eq + Hash> {
    length: usize,
    places: HashMap<K, u32>,
}

/// Selectors by one part, with their indices in the list.
#[derive(Clone, Debug, PartialEq, Eq)]
struct PartSelectors {
    part: KeyPart,
    values: HashMap<Box<[u8]>, u32>,
    /// Longest first.
    prefixes: Vec<LengthGroup<Box<[u8]>>>,
}

impl Selectors {
    /// Makes the selectors of this list, whose indices [`find`](Exceptions::find) returns.
    pub fn new(list: Vec<Selection>) -> Self {
        let mut selectors = Selectors::default();
        for (place, selection) in (0_u32..).zip(list) {
            match selection {
                Selection::Clients(selector) => selectors.add(selector, place),
                Selection::When(when, clients) => {
                    let clients = clients.map(|clients| {
                        let mut list = Selectors::default();
                        list.add(clients, place);
                        Box::new(list)
                    });
                    selectors.conditional.push(ConditionalSelector {
                        when,
                        clients,
                        place,
                    });
                }
            }
        }
        selectors
    }

    fn add(&mut self, selector: Selector, place: u32) {
        match selector {
            Selector::Value(part, value) => {
                let value = canonical_value(&part, value.as_bytes()).into();
                self.of(part).values.entry(value).or_insert(place);
            }
            Selector::Prefix(part, prefix) => {
                let prefix = canonical_prefix(&part, prefix.as_bytes()).into();
                let prefix: Box<[u8]> = prefix;
                add(&mut self.of(part).prefixes, prefix.len(), prefix, place);
            }
            Selector::Network(network) => {
                let length = network.prefix_len().into();
                add(&mut self.networks, length, network.trunc(), place);
            }
        }
    }

    /// Gives missing parts this value.
    #[must_use]
    pub fn with_stand_in(mut self, value: Option<&str>) -> Self {
        self.stand_in = value.map(Box::from);
        let clients = self.conditional.iter_mut();
        for clients in clients.filter_map(|one| one.clients.as_mut()) {
            clients.stand_in.clone_from(&self.stand_in);
        }
        self
    }

    /// The parts of requests that the selectors read.
    fn inputs(&self) -> impl Iterator<Item = KeyPart> {
        let conditional = self.conditional.iter().flat_map(|one| {
            let clients = one.clients.iter().flat_map(|list| &list.parts);
            let clients = clients.map(|of| of.part.clone());
            one.when.inputs().into_iter().chain(clients)
        });
        let parts = self.parts.iter().map(|of| of.part.clone());
        parts.chain(conditional)
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
        self.parts.is_empty() && self.networks.is_empty() && self.conditional.is_empty()
    }

    /// Returns the index of the most specific selector that matches.
    fn find(&self, head: &Head<'_>) -> Option<u32> {
        let mut conditional = self.conditional.iter();
        if let Some(met) = conditional.find(|one| one.is_met(head)) {
            return Some(met.place);
        }
        let stand_in = self.stand_in.as_deref();
        self.find_clients(|of| of.find(head, stand_in), Some(head.client_ip))
    }

    /// Like [`find`](Self::find), by what a key says of its requests.
    fn find_by_key(&self, key: &KeyText) -> Option<u32> {
        let mut conditional = self.conditional.iter();
        if let Some(met) = conditional.find(|one| one.is_met_by_key(key) == Some(true)) {
            return Some(met.place);
        }
        self.find_clients(|of| of.find_value(key.value(&of.part)?), key.address)
    }

    /// Returns the index of the most specific selector without a condition that `find` finds among those
    /// of a part, or that has this address.
    fn find_clients(
        &self,
        find: impl Fn(&PartSelectors) -> Option<Specificity>,
        address: Option<IpAddr>,
    ) -> Option<u32> {
        let found = self.parts.iter().filter_map(find).min();
        let found = found.map(|(_, place)| place);
        found.or_else(|| self.find_client(address?))
    }

    /// Finds the network of a client by its address, then by the IPv4 address behind a translator.
    fn find_client(&self, address: IpAddr) -> Option<u32> {
        self.find_network(address).or_else(|| match address {
            IpAddr::V6(address) if !self.networks.is_empty() => {
                self.find_network(translated_ipv4(address)?.into())
            }
            _ => None,
        })
    }

    fn find_network(&self, address: IpAddr) -> Option<u32> {
        let of = |of: &LengthGroup<IpNet>| {
            let network = IpNet::new(address, of.length as u8).ok()?;
            of.places.get(&network.trunc()).copied()
        };
        self.networks.iter().find_map(of)
    }
}

/// The length of a matching prefix, or the maximum for a whole value, and the index of the selector.
/// The least holds.
type Specificity = (Reverse<usize>, u32);

impl ConditionalSelector {
    fn is_met(&self, head: &Head<'_>) -> bool {
        let is_client = || {
            let clients = self.clients.as_ref();
            clients.is_none_or(|clients| clients.find(head).is_some())
        };
        self.when.is_certain(head) && is_client()
    }

    /// Returns if requests with this key are selected, as far as it says so.
    fn is_met_by_key(&self, key: &KeyText) -> Option<bool> {
        let is_client = |clients: &Selectors| clients.find_by_key(key).is_some();
        match self.when.is_met_by_key(key) {
            Some(true) if !self.clients.as_deref().is_none_or(is_client) => None,
            met => met,
        }
    }
}

impl PartSelectors {
    fn find(&self, head: &Head<'_>, stand_in: Option<&str>) -> Option<Specificity> {
        match self.part.with_value(head, |value| self.find_value(value)) {
            Lookup::One(found) => found,
            Lookup::Missing => self.find_value(stand_in?.as_bytes()),
            Lookup::Several => None,
        }
    }

    fn find_value(&self, value: &[u8]) -> Option<Specificity> {
        let value = canonical_value(&self.part, value);
        if let Some(place) = self.values.get(&*value) {
            return Some((Reverse(usize::MAX), *place));
        }
        self.prefixes.iter().find_map(|of| {
            let place = of.places.get(value.get(..of.length)?)?;
            Some((Reverse(of.length), *place))
        })
    }
}

/// Adds a selector to its length's group. Groups stay sorted, longest first. Of equal selectors the
/// first holds.
fn add<K: Eq + Hash>(lengths: &mut Vec<LengthGroup<K>>, length: usize, key: K, place: u32) {
    let at = lengths.binary_search_by_key(&Reverse(length), |of| Reverse(of.length));
    let at = at.unwrap_or_else(|at| {
        let places = HashMap::new();
        lengths.insert(at, LengthGroup { length, places });
        at
    });
    lengths[at].places.entry(key).or_insert(place);
}

/// Returns a whole value in its canonical spelling.
pub(super) fn canonical_value<'a>(part: &KeyPart, value: &'a [u8]) -> Cow<'a, [u8]> {
    match part {
        KeyPart::Path(form) => folded(value, |text| form.canonical(text)),
        KeyPart::Segment { form, .. } => folded(value, |text| form.fold(text)),
        _ => canonical_prefix(part, value),
    }
}

/// Returns a prefix of a value in its canonical spelling.
fn canonical_prefix<'a>(part: &KeyPart, value: &'a [u8]) -> Cow<'a, [u8]> {
    match part {
        // What a loose path ignores at the end of a segment may go on in a prefix.
        KeyPart::Path(form) | KeyPart::Segment { form, .. } => {
            let exact = PathEquivalence {
                path_match: PathMatch::Exact,
                ..*form
            };
            folded(value, |text| exact.fold(text))
        }
        KeyPart::Host => Cow::Owned(value.to_ascii_lowercase()),
        KeyPart::Credentials(_) => Cow::Owned(credentials::canonical_prefix(value)),
        _ => Cow::Borrowed(value),
    }
}

fn folded(value: &[u8], fold: impl FnOnce(&str) -> Cow<'_, str>) -> Cow<'_, [u8]> {
    match std::str::from_utf8(value) {
        Ok(text) => Cow::Owned(fold(text).into_owned().into_bytes()),
        Err(_) => Cow::Borrowed(value),
    }
}

#[cfg(test)]
mod tests;
