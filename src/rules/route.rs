//! Finds the route of a request: a table of hosts, and a tree of path segments for each of them.
//!
//! Routes are ranked once ([`Rank`]); a search collects the few whose host and path fit, and takes the
//! first in rank whose conditions are met. Its cost does not grow with the number of routes, but for
//! those that differ in their conditions only.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::HashMap;

use smallvec::SmallVec;

use super::Head;
use super::matcher::{CaseSensitivity, HostPattern, Mismatch, PathPattern, RouteMatch, Segment};

/// The routes of a configuration.
#[derive(Debug)]
pub struct Router {
    routes: Vec<RouteMatch>,
    /// The routes in the order of their rank.
    order: Vec<u32>,
    exact: HashMap<String, Paths>,
    below: HashMap<String, Paths>,
    any: Paths,
}

/// Which of two routes that both take a request is asked first: the lesser.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    class: PathClass,
    length: Reverse<usize>,
    captures: usize,
    conditions: Reverse<usize>,
    place: usize,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum PathClass {
    Exact,
    Captured,
    Prefix,
}

/// The paths of one host.
#[derive(Debug, Default)]
struct Paths {
    sensitive: Tree,
    insensitive: Tree,
}

/// A tree of segments. Routes stand in it by their rank.
#[derive(Debug, Default)]
struct Tree {
    nodes: Vec<Node>,
}

#[derive(Debug, Default)]
struct Node {
    literals: HashMap<Box<str>, u32>,
    capture: Option<u32>,
    /// Routes that end here.
    exact: Vec<u32>,
    /// Routes that take this and everything below.
    prefix: Vec<u32>,
}

/// Ranks of routes whose host and path fit.
type Candidates = SmallVec<[u32; 8]>;

impl Router {
    /// A router for `routes`, which it calls by their places.
    pub fn new(routes: Vec<RouteMatch>) -> Self {
        let mut order: Vec<u32> = (0..).take(routes.len()).collect();
        order.sort_by_cached_key(|&place| Rank::of(&routes[place as usize], place as usize));
        let mut router = Router {
            exact: HashMap::new(),
            below: HashMap::new(),
            any: Paths::default(),
            routes: Vec::new(),
            order: Vec::new(),
        };
        for (rank, &place) in (0..).zip(&order) {
            router.insert(&routes[place as usize], rank);
        }
        Router {
            routes,
            order,
            ..router
        }
    }

    fn insert(&mut self, route: &RouteMatch, rank: u32) {
        if route.hosts.is_empty() {
            self.any.insert(route, rank);
        }
        for host in &route.hosts {
            let paths = match host {
                HostPattern::Exact(host) => self.exact.entry(host.clone()),
                HostPattern::Below(domain) => self.below.entry(domain.clone()),
            };
            paths.or_default().insert(route, rank);
        }
    }

    /// The place of the route that takes `head`. An exact host goes before a wildcard, a longer
    /// wildcard before a shorter, any of them before none; then see [`Rank`].
    pub fn find(&self, head: &Head<'_>) -> Option<usize> {
        self.hosts(head.host)
            .find_map(|paths| self.find_in(paths, head))
    }

    /// The paths of the hosts that `host` belongs to, the most specific first.
    fn hosts<'a>(&'a self, host: &'a str) -> impl Iterator<Item = &'a Paths> {
        let wildcards = (!self.below.is_empty()).then(|| {
            let domains = host.match_indices('.').filter(|(dot, _)| *dot > 0);
            domains.filter_map(move |(dot, _)| self.below.get(&host[dot + 1..]))
        });
        let exact = (!self.exact.is_empty())
            .then(|| self.exact.get(host))
            .flatten();
        exact
            .into_iter()
            .chain(wildcards.into_iter().flatten())
            .chain([&self.any])
    }

    fn find_in(&self, paths: &Paths, head: &Head<'_>) -> Option<usize> {
        let mut candidates = paths.candidates(head.path);
        candidates.sort_unstable();
        let places = candidates
            .iter()
            .map(|&rank| self.order[rank as usize] as usize);
        places
            .into_iter()
            .find(|&place| self.routes[place].unmet_condition(head).is_none())
    }

    /// What the routes that are asked before the one that takes `head` lack, in file order; all of
    /// them, if none takes it.
    pub fn mismatches(&self, head: &Head<'_>) -> Vec<(usize, Mismatch)> {
        let mismatch = |(place, route): (usize, &RouteMatch)| Some((place, route.mismatch(head)?));
        self.routes
            .iter()
            .enumerate()
            .filter_map(mismatch)
            .collect()
    }

    /// Routes that take nothing, each with the one that takes its requests first: that has the same
    /// hosts, path and conditions, and stands before it.
    pub fn unreachable(&self) -> Vec<(usize, usize)> {
        let mut first: HashMap<String, usize> = HashMap::new();
        let mut hidden = Vec::new();
        for (place, route) in self.routes.iter().enumerate() {
            let takers: Option<Vec<usize>> = shapes(route)
                .into_iter()
                .map(|shape| first.get(&shape).copied())
                .collect();
            match takers.as_deref() {
                Some([taker, ..]) => hidden.push((place, *taker)),
                _ => {
                    for shape in shapes(route) {
                        first.entry(shape).or_insert(place);
                    }
                }
            }
        }
        hidden
    }
}

/// What is the same for two routes that take the same requests, for each host.
fn shapes(route: &RouteMatch) -> Vec<String> {
    let mut spellings = route.spellings();
    for segment in spellings
        .iter_mut()
        .flat_map(|pattern| &mut pattern.segments)
    {
        if let Segment::Capture(name) = segment {
            name.clear();
        }
    }
    spellings.sort_by_key(|pattern| pattern.segments.len());
    let sorted = |mut texts: Vec<String>| {
        texts.sort();
        texts
    };
    let methods = sorted(route.methods.iter().map(ToString::to_string).collect());
    let headers = sorted(
        route
            .headers
            .iter()
            .map(|header| format!("{header:?}"))
            .collect(),
    );
    let query = sorted(
        route
            .query
            .iter()
            .map(|parameter| format!("{parameter:?}"))
            .collect(),
    );
    let hosts: Vec<_> = match route.hosts.as_slice() {
        [] => vec![None],
        hosts => hosts.iter().map(Some).collect(),
    };
    let shape = |host| {
        format!(
            "{host:?} {spellings:?} {:?} {methods:?} {headers:?} {query:?}",
            route.case
        )
    };
    hosts.into_iter().map(shape).collect()
}

impl Rank {
    fn of(route: &RouteMatch, place: usize) -> Self {
        let PathPattern { segments, rest } = &route.path;
        let captures = segments
            .iter()
            .filter(|s| matches!(s, Segment::Capture(_)))
            .count();
        Rank {
            class: match (rest, captures) {
                (true, _) => PathClass::Prefix,
                (false, 0) => PathClass::Exact,
                (false, _) => PathClass::Captured,
            },
            length: Reverse(segments.len()),
            captures,
            conditions: Reverse(route.conditions()),
            place,
        }
    }
}

impl Paths {
    fn insert(&mut self, route: &RouteMatch, rank: u32) {
        let tree = match route.case {
            CaseSensitivity::Sensitive => &mut self.sensitive,
            CaseSensitivity::Insensitive => &mut self.insensitive,
        };
        for pattern in route.spellings() {
            tree.insert(&pattern, rank);
        }
    }

    fn candidates(&self, path: &str) -> Candidates {
        let mut candidates = Candidates::new();
        self.sensitive.collect(path, &mut candidates);
        if !self.insensitive.nodes.is_empty() {
            let lower = match path.bytes().any(|byte| byte.is_ascii_uppercase()) {
                true => Cow::Owned(path.to_ascii_lowercase()),
                false => Cow::Borrowed(path),
            };
            self.insensitive.collect(&lower, &mut candidates);
        }
        candidates
    }
}

impl Tree {
    fn insert(&mut self, pattern: &PathPattern, rank: u32) {
        if self.nodes.is_empty() {
            self.nodes.push(Node::default());
        }
        let mut at = 0;
        for segment in &pattern.segments {
            let fresh = self.nodes.len() as u32;
            let node = &mut self.nodes[at as usize];
            at = match segment {
                Segment::Literal(text) => {
                    *node.literals.entry(text.as_str().into()).or_insert(fresh)
                }
                Segment::Capture(_) => *node.capture.get_or_insert(fresh),
            };
            if at == fresh {
                self.nodes.push(Node::default());
            }
        }
        let node = &mut self.nodes[at as usize];
        match pattern.rest {
            true => node.prefix.push(rank),
            false => node.exact.push(rank),
        }
    }

    /// Adds every route whose pattern fits `path`. Looks at each node of the tree at most once.
    fn collect(&self, path: &str, candidates: &mut Candidates) {
        let mut open = SmallVec::<[(u32, Option<&str>); 8]>::new();
        if !self.nodes.is_empty() {
            open.push((0, path.strip_prefix('/').or(Some(path))));
        }
        while let Some((at, rest)) = open.pop() {
            let node = &self.nodes[at as usize];
            candidates.extend_from_slice(&node.prefix);
            let Some(rest) = rest else {
                candidates.extend_from_slice(&node.exact);
                continue;
            };
            let (segment, below) = match rest.split_once('/') {
                Some((segment, below)) => (segment, Some(below)),
                None => (rest, None),
            };
            if let Some(&next) = node.literals.get(segment) {
                open.push((next, below));
            }
            if let Some(next) = node.capture.filter(|_| !segment.is_empty()) {
                open.push((next, below));
            }
        }
    }
}
