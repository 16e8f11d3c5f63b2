//! The routes that a log without a configuration gets: the parts of its paths that have enough
//! requests, reads and writes apart, and one for everything else.

use std::cmp::Reverse;
use std::collections::HashSet;

use super::path_tree::{CLASSES, Class, NodeIndex, PathTree, STATIC, WRITES};

/// The most parts of the tree that become routes, besides the root.
const MAX_PARTS: usize = 10;
/// The longest name of a route, in letters: there has to be room for endings.
const MAX_NAME: usize = 48;
/// The share of all requests, and their number, from which a part of the tree is a route.
const MIN_SHARE: f64 = 0.01;
const MIN_REQUESTS: u64 = 50;
/// A part with more than this share of all requests is split.
const SPLIT_SHARE: f64 = 0.6;
/// A route whose requests are for static files to this share has no limit.
const STATIC_SHARE: f64 = 0.8;
/// The first segments that name no part of an interface, besides versions.
const PREFIXES: [&str; 5] = ["api", "apis", "rest", "public", "rpc"];
/// Segments of paths that guess passwords, codes or names: they get a route of their own.
const SIGN_IN: [&str; 12] = [
    "login", "signin", "sign-in", "sign_in", "signup", "sign-up", "register", "password", "token",
    "oauth", "session", "otp",
];
/// Last segments of health checks.
const HEALTH: [&str; 14] = [
    "health",
    "healthz",
    "healthcheck",
    "health-check",
    "_health",
    "livez",
    "readyz",
    "liveness",
    "readiness",
    "alive",
    "ready",
    "ping",
    "heartbeat",
    "nginx_status",
];

/// A route, and which requests it takes.
#[derive(Clone, Debug)]
pub(super) struct FoundRoute {
    pub name: String,
    /// The paths: `/a/**`; `None` for all.
    pub path: Option<String>,
    pub kind: RouteKind,
    /// Only requests of methods that change something.
    pub is_write: bool,
}

/// What its requests are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RouteKind {
    Calls,
    /// Probes of load balancers and the like.
    Health,
    /// Static files below a path.
    Static,
    /// Static files that no other route takes: by the ending of their path.
    Files,
}

/// The routes, and that of each place of the tree.
pub(super) struct FoundRoutes {
    pub routes: Vec<FoundRoute>,
    pub of_place: Vec<usize>,
}

struct Finder<'a> {
    tree: &'a PathTree,
    /// Requests below each node, with those of its children.
    totals: Vec<u64>,
    /// The number from which a node is a route.
    least: u64,
    found: Vec<NodeIndex>,
}

/// Finds the routes of a tree with these requests at its places.
pub(super) fn find(tree: &PathTree, requests: &[u64]) -> FoundRoutes {
    let mut totals: Vec<u64> = (0..tree.nodes.len())
        .map(|node| of_node(requests, node).iter().sum())
        .collect();
    // Children come after their parents.
    for node in (1..tree.nodes.len()).rev() {
        totals[tree.nodes[node].parent] += totals[node];
    }
    let least = (totals[0] as f64 * MIN_SHARE).ceil() as u64;
    let mut finder = Finder {
        tree,
        totals,
        least: least.max(MIN_REQUESTS),
        found: Vec::new(),
    };
    finder.visit(0);
    let mut parts = finder.found;
    parts.sort_by_key(|&node| {
        let is_special = is_sign_in(tree, node) || is_health(tree, node);
        (Reverse(is_special), Reverse(finder.totals[node]), node)
    });
    parts.truncate(MAX_PARTS);
    // Deeper ones first: how people read routes.
    parts.sort_by_key(|&node| {
        (
            Reverse(tree.ancestors(node).count()),
            Reverse(finder.totals[node]),
        )
    });
    parts.push(0);
    routes(tree, &parts, requests)
}

fn of_node(requests: &[u64], node: NodeIndex) -> [u64; 4] {
    std::array::from_fn(|class| {
        requests
            .get(node * CLASSES.len() + class)
            .copied()
            .unwrap_or(0)
    })
}

impl Finder<'_> {
    /// Finds parts below a node. Returns the requests that they take.
    fn visit(&mut self, node: NodeIndex) -> u64 {
        let mut taken = 0;
        for child in self.tree.children(node) {
            let total = self.totals[child];
            let special = is_health(self.tree, child) || is_sign_in(self.tree, child);
            let below = if special || !self.splits(child) {
                0
            } else {
                self.visit(child)
            };
            let least = if special {
                MIN_REQUESTS.min(self.least)
            } else {
                self.least
            };
            if total - below >= least {
                self.found.push(child);
                taken += total;
            } else {
                taken += below;
            }
        }
        taken
    }

    /// True for a part that is better seen by its children.
    fn splits(&self, node: NodeIndex) -> bool {
        let segment = &*self.tree.nodes[node].segment;
        let is_prefix = PREFIXES.contains(&segment) || is_version(segment);
        let is_most = self.totals[node] as f64 > self.totals[0] as f64 * SPLIT_SHARE;
        let mut children = self.tree.children(node).into_iter();
        let sign_in = self
            .tree
            .children(node)
            .into_iter()
            .any(|child| is_sign_in(self.tree, child));
        (is_prefix || is_most || sign_in)
            && children.any(|child| {
                self.totals[child] >= self.least
                    || is_sign_in(self.tree, child)
                    || self.splits(child)
            })
    }
}

fn is_version(segment: &str) -> bool {
    let digits = segment.strip_prefix('v').unwrap_or_default();
    !digits.is_empty()
        && digits
            .bytes()
            .all(|byte| byte.is_ascii_digit() || byte == b'.')
}

fn is_sign_in(tree: &PathTree, node: NodeIndex) -> bool {
    let segment = tree.nodes[node].segment.to_ascii_lowercase();
    SIGN_IN.contains(&&*segment)
}

fn is_health(tree: &PathTree, node: NodeIndex) -> bool {
    let segment = tree.nodes[node].segment.to_ascii_lowercase();
    HEALTH.contains(&&*segment) && node > 0
}

/// The routes of these parts, the root last. A route for writes, or for files, comes with one for the
/// rest.
fn routes(tree: &PathTree, parts: &[NodeIndex], requests: &[u64]) -> FoundRoutes {
    let mut own = vec![[0_u64; 4]; parts.len()];
    let part_of = |node| {
        let mut above = tree.ancestors(node);
        let found = above.find_map(|node| parts.iter().position(|part| *part == node));
        found.unwrap_or(parts.len() - 1)
    };
    let parts_of: Vec<_> = (0..tree.nodes.len()).map(part_of).collect();
    for (node, &part) in parts_of.iter().enumerate() {
        for (sum, count) in own[part].iter_mut().zip(of_node(requests, node)) {
            *sum += count;
        }
    }
    let mut names = HashSet::new();
    let mut routes = Vec::new();
    let mut of_part = Vec::new();
    for (&node, counts) in parts.iter().zip(own) {
        of_part.push(add_routes(tree, node, counts, &mut names, &mut routes));
    }
    let places = parts_of.iter().flat_map(|&part| of_part[part]);
    FoundRoutes {
        of_place: places.collect(),
        routes,
    }
}

/// Adds the routes of one part; which of them takes each class.
fn add_routes(
    tree: &PathTree,
    node: NodeIndex,
    counts: [u64; 4],
    names: &mut HashSet<String>,
    routes: &mut Vec<FoundRoute>,
) -> [usize; 4] {
    let sum = |holds: fn(Class) -> bool| -> u64 {
        let counted = CLASSES
            .iter()
            .zip(counts)
            .filter(|(class, _)| holds(**class));
        counted.map(|(_, count)| count).sum()
    };
    let all: u64 = counts.iter().sum();
    let (writes, files) = (sum(|class| class.is_write), sum(|class| class.is_static));
    let is_files = all > 0 && files as f64 >= all as f64 * STATIC_SHARE;
    let kind = match node {
        0 => RouteKind::Calls,
        node if is_health(tree, node) => RouteKind::Health,
        _ if is_files => RouteKind::Static,
        _ => RouteKind::Calls,
    };
    let path = (node > 0).then(|| format!("{}/**", tree.path(node)));
    let name = if node == 0 {
        "other".to_owned()
    } else {
        name(&tree.path(node))
    };
    let mut add = |name: &str, path: &Option<String>, kind, is_write| {
        let place = routes.len();
        let name = unique(name, names);
        routes.push(FoundRoute {
            name,
            path: path.clone(),
            kind,
            is_write,
        });
        place
    };
    let has_files = node == 0 && files >= MIN_REQUESTS;
    let files = has_files.then(|| add("static-files", &path, RouteKind::Files, false));
    let writes_apart =
        kind == RouteKind::Calls && writes >= MIN_REQUESTS && all - writes >= MIN_REQUESTS;
    let write = writes_apart.then(|| add(&format!("{name}-writes"), &path, kind, true));
    let rest = add(&name, &path, kind, false);
    CLASSES.map(|class| match (files, write) {
        (Some(files), _) if class.is_static => files,
        (_, Some(write)) if class.is_write => write,
        _ => rest,
    })
}

/// The name of a route for a path: `/api/v1/orders` is `api-v1-orders`.
fn name(path: &str) -> String {
    let plain = |letter: char| match letter {
        'A'..='Z' | 'a'..='z' | '0'..='9' | '.' | '_' => letter,
        _ => '-',
    };
    let name: String = path.trim_start_matches('/').chars().map(plain).collect();
    name.chars().take(MAX_NAME).collect()
}

fn unique(name: &str, names: &mut HashSet<String>) -> String {
    let numbered = (2..).map(|number| format!("{name}-{number}"));
    let mut names_of_it = std::iter::once(name.to_owned()).chain(numbered);
    let free = names_of_it.find(|name| names.insert(name.clone()));
    free.unwrap_or_default()
}

impl FoundRoute {
    /// The `match` of the configuration; `None` for a route that takes all that is left.
    pub(super) fn matches(&self) -> Option<String> {
        let endings = || STATIC.join("|");
        let path = match (&self.path, self.kind) {
            (_, RouteKind::Files) => Some(format!("path: {{ regex: '\\.({})$' }}", endings())),
            (Some(path), _) => Some(format!("path: \"{path}\"")),
            (None, _) => None,
        };
        let methods = self
            .is_write
            .then(|| format!("methods: [{}]", WRITES.join(", ")));
        let conditions: Vec<_> = path.into_iter().chain(methods).collect();
        (!conditions.is_empty()).then(|| format!("{{ {} }}", conditions.join(", ")))
    }

    /// The requests that it takes, for people.
    pub(super) fn describe(&self) -> String {
        let path = match (&self.path, self.kind) {
            (_, RouteKind::Files) => "*.css, *.js, *.png, ...",
            (Some(path), _) => path,
            (None, _) => "everything else",
        };
        if self.is_write {
            format!("{} {path}", WRITES.join(", "))
        } else {
            path.to_owned()
        }
    }
}

#[cfg(test)]
mod tests;
