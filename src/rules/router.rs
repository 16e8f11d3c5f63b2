//! Finds the route of a request: a table of hosts, and a tree of path segments for each host.
//!
//! Routes are ranked once ([`Rank`]). A search collects the few routes whose host and path match,
//! and returns the first in rank whose conditions are met. Its cost grows only with the number of
//! routes that differ in nothing but their conditions.

mod unreachable;

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

use smallvec::SmallVec;

use super::Head;
use super::matcher::{HostPattern, Mismatch, PathEquivalence, PathPattern, RouteMatch, Segment};

/// The routes of a configuration.
#[derive(Debug, Default)]
pub struct Router {
    routes: Vec<RouteMatch>,
    /// The routes in the order of their rank.
    order: Vec<u32>,
    exact: HashMap<String, Paths>,
    below: HashMap<String, Paths>,
    any: Paths,
}

/// The precedence of routes that match the same request: the least is tried first.
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
    /// For paths as they are.
    exact: Tree,
    /// For paths that are folded so.
    folded: Vec<(PathEquivalence, Tree)>,
}

/// A tree of segments whose nodes hold the ranks of routes.
#[derive(Debug, Default)]
struct Tree {
    nodes: Vec<Node>,
}

#[derive(Debug, Default)]
struct Node {
    literals: HashMap<Box<str>, u32>,
    capture: Option<u32>,
    /// Routes whose path ends at this node.
    exact: Vec<u32>,
    /// Routes that match this node and all paths below.
    prefix: Vec<u32>,
}

/// Ranks of routes whose host and path match.
type Candidates = SmallVec<[u32; 8]>;

impl Router {
    /// The conditions of all routes, in the order in which they were given.
    pub fn routes(&self) -> &[RouteMatch] {
        &self.routes
    }

    /// Makes a router for `routes`, which it names by index. Those that take `GET` leave `HEAD` to a
    /// route that names it for the same hosts and path.
    pub fn new(mut routes: Vec<RouteMatch>) -> Self {
        let place = |route: &RouteMatch| (route.hosts.clone(), route.path.clone(), route.form);
        let of_head = routes.iter().filter(|route| route.takes_head());
        let of_head: HashSet<_> = of_head.map(place).collect();
        let left = routes
            .iter_mut()
            .filter(|route| of_head.contains(&place(route)));
        left.for_each(RouteMatch::leave_head);
        let mut order: Vec<u32> = (0..).take(routes.len()).collect();
        order.sort_by_cached_key(|&place| Rank::of(&routes[place as usize], place as usize));
        let mut router = Router::default();
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
                HostPattern::Subdomains(domain) => self.below.entry(domain.clone()),
            };
            paths.or_default().insert(route, rank);
        }
    }

    /// Returns the index of the route that matches `head`. An exact host precedes a wildcard, a
    /// longer wildcard a shorter one, and any of them a route without host. Then an exact path
    /// precedes a captured one, and that a prefix. Then follow: more segments, fewer captures, more
    /// conditions, and the order of the file.
    pub fn find(&self, head: &Head<'_>) -> Option<usize> {
        self.hosts(head.host)
            .find_map(|paths| self.find_in(paths, head))
    }

    /// Returns the paths of each host pattern that matches `host`, the most specific first.
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
        let candidates = candidates.into_iter();
        let mut places = candidates.map(|rank| self.order[rank as usize] as usize);
        places.find(|&place| self.routes[place].unmet_condition(head).is_none())
    }

    /// Returns the mismatches of the routes that precede the matching one, in order of precedence;
    /// of all routes if none matches. Looks at every route: not for use on the request path.
    pub fn mismatches(&self, head: &Head<'_>) -> Vec<(usize, Mismatch<'_>)> {
        let mut mismatches = Vec::new();
        let mut is_named = vec![false; self.routes.len()];
        for (place, host) in self.entries() {
            match self.routes[place].mismatch(head) {
                None if host.is_none_or(|host| host.matches(head.host)) => break,
                // Another host of the route matches, with less precedence.
                None => {}
                Some(_) if is_named[place] => {}
                Some(mismatch) => {
                    is_named[place] = true;
                    mismatches.push((place, mismatch));
                }
            }
        }
        mismatches
    }

    /// Returns every route with each of its hosts, in order of precedence.
    fn entries(&self) -> Vec<(usize, Option<&HostPattern>)> {
        let order = self.order.iter().map(|&place| place as usize);
        let entries = order.flat_map(|place| {
            let hosts = &self.routes[place].hosts;
            let any = hosts.is_empty().then_some(None);
            hosts
                .iter()
                .map(Some)
                .chain(any)
                .map(move |host| (place, host))
        });
        let mut entries: Vec<_> = entries.collect();
        // Stable: routes of one host stay in the order of their rank.
        entries.sort_by_key(|(_, host)| match host {
            Some(HostPattern::Exact(_)) => (0, Reverse(0)),
            // Longer names come first: below the same host they have more labels.
            Some(HostPattern::Subdomains(domain)) => (1, Reverse(domain.len())),
            None => (2, Reverse(0)),
        });
        entries
    }
}

impl Rank {
    fn of(route: &RouteMatch, place: usize) -> Self {
        let PathPattern {
            segments,
            is_prefix: rest,
        } = &route.path;
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
            conditions: Reverse(route.conditions.len()),
            place,
        }
    }
}

impl Paths {
    fn insert(&mut self, route: &RouteMatch, rank: u32) {
        let tree = self.tree(route.form.folding());
        for pattern in route.path.spellings(route.form) {
            tree.insert(&pattern, rank);
        }
    }

    fn candidates(&self, path: &str) -> Candidates {
        let mut candidates = Candidates::new();
        self.exact.collect(path, &mut candidates);
        for (folding, tree) in &self.folded {
            tree.collect(&folding.fold(path), &mut candidates);
        }
        candidates
    }

    /// The tree for paths that are folded so.
    fn tree(&mut self, folding: PathEquivalence) -> &mut Tree {
        if folding == PathEquivalence::default() {
            return &mut self.exact;
        }
        let known = self.folded.iter().position(|(known, _)| *known == folding);
        let place = known.unwrap_or_else(|| {
            self.folded.push((folding, Tree::default()));
            self.folded.len() - 1
        });
        &mut self.folded[place].1
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
        if pattern.is_prefix {
            node.prefix.push(rank)
        } else {
            node.exact.push(rank)
        }
    }

    /// Adds every route whose pattern matches `path`. Visits each node at most once.
    fn collect(&self, path: &str, candidates: &mut Candidates) {
        let Some(root) = self.nodes.first() else {
            return;
        };
        let Some(path) = path.strip_prefix('/') else {
            // `*`, which is below no slash.
            candidates.extend(root.prefix.iter().copied());
            return;
        };
        let mut open = SmallVec::<[(u32, Option<&str>); 8]>::new();
        open.push((0, Some(path)));
        while let Some((at, rest)) = open.pop() {
            let node = &self.nodes[at as usize];
            candidates.extend(node.prefix.iter().copied());
            let Some(rest) = rest else {
                candidates.extend(node.exact.iter().copied());
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

#[cfg(test)]
mod tests;
