//! The paths of a log, by their first segments, in bounded memory. Segments that look like the id of
//! something are not kept, and neither are the names of static files.

use std::collections::HashMap;

use http::Method;

/// How many segments are told apart.
const MAX_DEPTH: usize = 3;
/// The most children of a node, and nodes in all. What comes later counts for its parent.
const MAX_CHILDREN: usize = 64;
const MAX_NODES: usize = 4_096;
/// The longest segment that is kept, in bytes.
const MAX_SEGMENT: usize = 48;
/// A segment of this many letters and digits with both among them is an id.
const MIN_TOKEN: usize = 16;

/// The endings of files that are served as they are, in the order of the expression that a
/// configuration has for them.
pub(super) const STATIC: [&str; 22] = [
    "avif",
    "bmp",
    "css",
    "eot",
    "gif",
    "ico",
    "jpeg",
    "jpg",
    "js",
    "map",
    "mjs",
    "mp4",
    "otf",
    "png",
    "svg",
    "ttf",
    "wasm",
    "webm",
    "webmanifest",
    "webp",
    "woff",
    "woff2",
];

/// The methods of requests that change something.
pub(super) const WRITES: [&str; 4] = ["POST", "PUT", "PATCH", "DELETE"];

/// A node of the tree; the first is the root.
pub(super) type NodeIndex = usize;

/// What is told apart below a node: the method, and if a static file is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Class {
    pub is_write: bool,
    pub is_static: bool,
}

/// All combinations, by their place.
pub(super) const CLASSES: [Class; 4] = [
    Class {
        is_write: false,
        is_static: false,
    },
    Class {
        is_write: true,
        is_static: false,
    },
    Class {
        is_write: false,
        is_static: true,
    },
    Class {
        is_write: true,
        is_static: true,
    },
];

#[derive(Debug)]
pub(super) struct PathTree {
    pub nodes: Vec<Node>,
}

#[derive(Debug)]
pub(super) struct Node {
    pub parent: NodeIndex,
    pub segment: Box<str>,
    children: HashMap<Box<str>, NodeIndex, foldhash::fast::FixedState>,
}

impl PathTree {
    pub(super) fn new() -> Self {
        Self {
            nodes: vec![Node::new(0, "")],
        }
    }

    /// The place of requests with this method and path: that of a node and a class.
    pub(super) fn place(&mut self, method: &Method, path: &str) -> usize {
        let is_static = is_static(path);
        let class = Class {
            is_write: WRITES.contains(&method.as_str()),
            is_static,
        };
        let mut node = 0;
        let mut segments = crate::rules::segments(path).take(MAX_DEPTH).peekable();
        while let Some(segment) = segments.next() {
            let is_file = is_static && segments.peek().is_none();
            if is_file || !is_name(segment) {
                break;
            }
            match self.child(node, segment) {
                Some(child) => node = child,
                None => break,
            }
        }
        node * CLASSES.len() + class.place()
    }

    fn child(&mut self, parent: NodeIndex, segment: &str) -> Option<NodeIndex> {
        let known = &self.nodes[parent].children;
        if let Some(&child) = known.get(segment) {
            return Some(child);
        }
        if known.len() >= MAX_CHILDREN || self.nodes.len() >= MAX_NODES {
            return None;
        }
        let child = self.nodes.len();
        self.nodes.push(Node::new(parent, segment));
        self.nodes[parent].children.insert(segment.into(), child);
        Some(child)
    }

    /// The path of a node: `/a/b`, and nothing for the root.
    pub(super) fn path(&self, node: NodeIndex) -> String {
        let Node {
            parent, segment, ..
        } = &self.nodes[node];
        match node {
            0 => String::new(),
            _ => format!("{}/{segment}", self.path(*parent)),
        }
    }

    /// The node and those above it, to the root.
    pub(super) fn ancestors(&self, node: NodeIndex) -> impl Iterator<Item = NodeIndex> {
        std::iter::successors(Some(node), |node| {
            (*node > 0).then(|| self.nodes[*node].parent)
        })
    }

    /// The children of a node, in the order in which the log has them.
    pub(super) fn children(&self, node: NodeIndex) -> Vec<NodeIndex> {
        let mut children: Vec<_> = self.nodes[node].children.values().copied().collect();
        children.sort_unstable();
        children
    }
}

impl Class {
    pub(super) fn place(self) -> usize {
        usize::from(self.is_write) + 2 * usize::from(self.is_static)
    }
}

impl Node {
    fn new(parent: NodeIndex, segment: &str) -> Self {
        Self {
            parent,
            segment: segment.into(),
            children: HashMap::default(),
        }
    }
}

/// True if the path ends in that of a static file.
fn is_static(path: &str) -> bool {
    let ending = path.rsplit_once('.').map(|(_, ending)| ending);
    ending.is_some_and(|ending| STATIC.contains(&ending))
}

/// True for a segment that names a part of an interface, and can stand in a pattern as it is.
fn is_name(segment: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    !segment.is_empty()
        && segment.len() <= MAX_SEGMENT
        && segment.bytes().all(is_plain)
        && segment.bytes().any(|byte| byte.is_ascii_alphabetic())
        && !is_id(segment)
}

/// True for numbers, UUIDs, hashes and tokens.
fn is_id(segment: &str) -> bool {
    let digits = segment.bytes().filter(u8::is_ascii_digit).count();
    let hex = segment.bytes().filter(u8::is_ascii_hexdigit).count();
    let dashes = segment.bytes().filter(|byte| b"-_".contains(byte)).count();
    let is_hex = digits > 0 && hex + dashes == segment.len() && hex >= 8;
    let is_token = digits > 1 && segment.len() >= MIN_TOKEN;
    is_hex || is_token || digits * 2 > segment.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path_of(path: &str) -> String {
        let mut tree = PathTree::new();
        let place = tree.place(&Method::GET, path);
        tree.path(place / CLASSES.len())
    }

    #[test]
    fn a_path_is_kept_up_to_the_first_id_or_file() {
        for (path, kept) in [
            ("/", ""),
            ("*", ""),
            ("/a/b/c/d", "/a/b/c"),
            ("/api/v1/", "/api/v1"),
            ("/users/17/orders", "/users"),
            ("/users/123e4567-e89b-12d3-a456-426614174000", "/users"),
            ("/commits/3f2a9c4d", "/commits"),
            ("/o/AbC12dEf34GhI56jK", "/o"),
            ("/o/cus_9s6XKzkNRiz8i3", "/o"),
            ("/decade/facade", "/decade/facade"),
            ("/oauth2/v2.0/token", "/oauth2/v2.0/token"),
            ("/assets/app.1a2b.js", "/assets"),
            ("/favicon.ico", ""),
            ("/a%20b/c", ""),
            ("/{id}", ""),
        ] {
            assert_eq!(path_of(path), kept, "{path}");
        }
    }

    #[test]
    fn a_flood_of_paths_has_bounded_memory_and_counts_for_the_parent() {
        let letters = |mut number: usize| {
            let mut text = String::new();
            for _ in 0..4 {
                text.push(char::from(b'g' + (number % 20) as u8));
                number /= 20;
            }
            text
        };
        let mut tree = PathTree::new();
        for one in 0..200 {
            for other in 0..200 {
                tree.place(
                    &Method::GET,
                    &format!("/{}/{}", letters(one), letters(other)),
                );
            }
        }
        assert_eq!(tree.nodes.len(), MAX_NODES);
        assert!(
            tree.nodes
                .iter()
                .all(|node| node.children.len() <= MAX_CHILDREN)
        );
        assert_eq!(tree.place(&Method::POST, "/new/path"), 1, "of the root");
    }
}
