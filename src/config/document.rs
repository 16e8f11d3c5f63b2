//! The configuration as a tree of located values. Only this module uses the YAML parser; `decode`
//! gives the values their meaning.

mod build;
mod json;
mod syntax;
mod yaml;

use std::borrow::Cow;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use super::diagnostic::{Content, MASK, Place, SourceText, Stretch, disjoint};

pub(super) use build::{Builder, Environment};
pub(super) use syntax::missing_space;

/// The name of the newtype that requests a value together with its node.
pub(super) const LOCATED: &str = "$located";
/// The name of the newtype of values that are never shown.
pub(super) const SECRET: &str = "$secret";
/// The name of the newtype in which such values are shown.
pub(super) const SHOWN: &str = "$shown";
/// The prefix of top-level keys that are ignored: a place for YAML anchors.
pub(super) const EXTENSION: &str = "x-";
/// The top-level keys of included files. What they hold joins that of the main file.
pub(super) const JOINED: [&str; 3] = ["policies", "routes", "upstreams"];

/// Identifies a value of the document. [`NodeId::ABSENT`] stands for values that the user did not
/// write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub(super) u32);

impl NodeId {
    /// The root of the document.
    pub const ROOT: Self = Self(0);
    /// No place: a default value, or one that the program made.
    pub const ABSENT: Self = Self(u32::MAX);

    /// This node, or `other` if it is absent.
    pub(super) fn or(self, other: Self) -> Self {
        match self {
            Self::ABSENT => other,
            node => node,
        }
    }

    /// This node, unless it is absent.
    pub(super) fn given(self) -> Option<Self> {
        (self != Self::ABSENT).then_some(self)
    }
}

/// A parsed configuration whose values know their places. `Debug` omits the values, which may be
/// passwords.
#[derive(derive_more::Debug)]
#[debug("Document({source:?})")]
pub struct Document {
    source: Arc<SourceText>,
    nodes: Vec<Node>,
    /// The roots of included files.
    pub(super) included: Vec<NodeId>,
    /// The parts of each node that may be shown.
    visibility: Vec<Visibility>,
}

/// The visibility of a node, by the schema: if its key may be shown, and what its value is. Nodes
/// that the schema doesn't know are hidden.
#[derive(Clone, Copy, Debug)]
pub(super) struct Visibility {
    pub(super) is_known_key: bool,
    pub(super) value: Content,
}

impl Visibility {
    pub(super) const HIDDEN: Self = Self {
        is_known_key: false,
        value: Content::Unknown,
    };

    const fn key_content(self) -> Content {
        if self.is_known_key {
            Content::Key
        } else {
            Content::Unknown
        }
    }
}

/// The part of a node that a finding points at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Part {
    /// The value, or the key where the value is a mapping or a list.
    Whole,
    /// The key of the value.
    Key,
}

struct Node {
    parent: NodeId,
    step: Step,
    span: Range<u32>,
    value: NodeValue,
}

/// The step from a parent to a value.
enum Step {
    Root,
    Key { name: Box<str>, span: Range<u32> },
    Index(u32),
}

/// A value with its variables replaced.
pub(super) enum NodeValue {
    /// A text, a number or a boolean; the key gives it its meaning.
    Scalar {
        text: Box<str>,
        origin: TextOrigin,
    },
    /// No value, as after `key:`.
    Null,
    Sequence(Vec<NodeId>),
    /// The keys are with the values: see [`Document::key`].
    Mapping(Vec<NodeId>),
}

/// TextOrigin of a scalar's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TextOrigin {
    File,
    /// Partly from the environment; reports never show it.
    Environment,
}

impl Document {
    /// Records what may be shown of each node. Before, nothing is.
    pub(super) fn reveal(&mut self, visibility: Vec<Visibility>) {
        let narrow = |span: &Range<u32>, content| {
            Stretch::new(span.start as usize..span.end as usize, content)
        };
        let mut stretches = Vec::new();
        // What an anchor of an extension holds is known by the places of its aliases.
        let mut is_extension = vec![false; self.nodes.len()];
        for (place, (node, visible)) in self.nodes.iter().zip(&visibility).enumerate() {
            let is_within = is_extension.get(node.parent.0 as usize) == Some(&true);
            is_extension[place] = is_within;
            if let (Step::Key { name, span }, false) = (&node.step, is_within) {
                stretches.push(narrow(span, visible.key_content()));
                is_extension[place] = self.is_root(node.parent) && name.starts_with(EXTENSION);
            }
            if let (NodeValue::Scalar { .. }, false) = (&node.value, is_extension[place]) {
                stretches.push(narrow(&node.span, visible.value));
            }
        }
        let stretches = disjoint(stretches);
        if let Some(source) = Arc::get_mut(&mut self.source) {
            source.stretches = stretches;
        }
        self.visibility = visibility;
    }

    /// True for the root of the main file or of an included one.
    pub(super) fn is_root(&self, node: NodeId) -> bool {
        let node = self.nodes.get(node.0 as usize);
        node.is_some_and(|node| matches!(node.step, Step::Root))
    }

    /// The number of its values.
    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// The text of a scalar as the file has it, with quotes and variables.
    pub(super) fn written(&self, node: NodeId) -> &str {
        let Node { span, .. } = self.node(node);
        &self.source.text[span.start as usize..span.end as usize]
    }

    /// The key of a value as the file has it, with quotes; empty for items of lists and for the root.
    pub(super) fn written_key(&self, node: NodeId) -> &str {
        match &self.node(node).step {
            Step::Key { span, .. } => &self.source.text[span.start as usize..span.end as usize],
            Step::Root | Step::Index(_) => "",
        }
    }

    pub(super) fn source(&self) -> &Arc<SourceText> {
        &self.source
    }

    /// The name of the file.
    pub fn name(&self) -> &str {
        &self.source.name
    }

    /// The names of all files, the main one first.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        let paths = self.source.files().map(|(_, path)| path);
        paths.map(|path| path.unwrap_or(self.name()))
    }

    pub(super) fn value(&self, node: NodeId) -> &NodeValue {
        &self.node(node).value
    }

    /// The key of a value; `None` for items of lists and for the root.
    pub(super) fn key(&self, node: NodeId) -> Option<&str> {
        match &self.node(node).step {
            Step::Key { name, .. } => Some(name),
            Step::Root | Step::Index(_) => None,
        }
    }

    /// The value of a key of a mapping.
    pub(super) fn child(&self, mapping: NodeId, key: &str) -> Option<NodeId> {
        let mut entries = self.entries(mapping).iter().copied();
        entries.find(|entry| self.key(*entry) == Some(key))
    }

    /// The values of a mapping; none of another value, nor of an absent one.
    pub(super) fn entries(&self, mapping: NodeId) -> &[NodeId] {
        match self.nodes.get(mapping.0 as usize).map(|node| &node.value) {
            Some(NodeValue::Mapping(entries)) => entries,
            _ => &[],
        }
    }

    /// The texts at a top-level key: one, or those of a list.
    pub(super) fn texts(&self, key: &str) -> Vec<(NodeId, &str)> {
        let node = self.child(NodeId::ROOT, key);
        let nodes = match node.map(|node| self.value(node)) {
            Some(NodeValue::Sequence(items)) => items.clone(),
            _ => Vec::from_iter(node),
        };
        let text = |node| match self.value(node) {
            NodeValue::Scalar { text, .. } => Some((node, &**text)),
            _ => None,
        };
        nodes.into_iter().filter_map(text).collect()
    }

    /// The path from the root, as in `routes[2].limits[0].quota`. Unknown keys are hidden.
    pub fn path(&self, mut node: NodeId) -> String {
        let mut steps = Vec::new();
        while node != NodeId::ROOT && node != NodeId::ABSENT {
            let Node { parent, step, .. } = self.node(node);
            let visible = self.visibility.get(node.0 as usize);
            steps.push((step, visible.is_none_or(|visible| visible.is_known_key)));
            node = *parent;
        }
        let mut path = String::new();
        for (step, is_known) in steps.into_iter().rev() {
            match step {
                Step::Root => {}
                Step::Index(index) => path.push_str(&format!("[{index}]")),
                Step::Key { name, .. } => {
                    path.push_str(if path.is_empty() { "" } else { "." });
                    path.push_str(if is_known { quoted(name) } else { MASK.into() }.as_ref());
                }
            }
        }
        path
    }

    /// The place of a part of a node; `None` for an absent one.
    pub(super) fn place(&self, node: NodeId, part: Part) -> Option<Place> {
        let span = self.span(node, part)?;
        Some(self.source.place(span))
    }

    /// A text on a value without what the value's variables stand for, as a whole or in a path to it.
    pub(super) fn without_variables(&self, text: String, node: NodeId) -> String {
        let found = self.nodes.get(node.0 as usize).map(|node| &node.value);
        let Some(NodeValue::Scalar {
            text: value,
            origin: TextOrigin::Environment,
        }) = found
        else {
            return text;
        };
        let path = value.strip_prefix("unix:").unwrap_or(value);
        let path = path.trim_start_matches("./");
        let parts = Path::new(path.trim_end_matches('/')).ancestors();
        // The parts of a URL are words that messages have.
        let most = if path.contains("://") { 1 } else { usize::MAX };
        let parts = parts.take(most).map(Path::to_string_lossy);
        let parts = parts.filter(|part| part.len() > 1);
        parts.fold(text, |text, part| text.replace(&*part, MASK))
    }

    /// The bytes to underline: the key of a mapping or list, or its first line if it has no key.
    fn span(&self, node: NodeId, part: Part) -> Option<Range<usize>> {
        if node == NodeId::ABSENT {
            return None;
        }
        let Node {
            step, span, value, ..
        } = self.node(node);
        let wanted = match (step, value, part) {
            (Step::Key { span: key, .. }, _, Part::Key) => key,
            (Step::Key { span: key, .. }, NodeValue::Sequence(_) | NodeValue::Mapping(_), _) => key,
            (_, NodeValue::Mapping(entries), _) => match entries.first() {
                Some(&first) => return self.span(first, Part::Key),
                None => span,
            },
            (_, NodeValue::Sequence(items), _) => match items.first() {
                Some(&first) => return self.span(first, Part::Whole),
                None => span,
            },
            (_, NodeValue::Scalar { .. } | NodeValue::Null, _) => span,
        };
        let wanted = wanted.start as usize..wanted.end as usize;
        Some(self.first_line(wanted))
    }

    /// Shortens a span to its first line; block scalars are long.
    fn first_line(&self, span: Range<usize>) -> Range<usize> {
        let text = &self.source.text[span.clone()];
        let length = text.find(['\r', '\n']).unwrap_or(text.len());
        span.start..span.start + length
    }

    fn node(&self, node: NodeId) -> &Node {
        &self.nodes[node.0 as usize]
    }
}

/// A key as part of a path, in quotes if it would be ambiguous.
fn quoted(key: &str) -> Cow<'_, str> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-');
    if !key.is_empty() && key.bytes().all(plain) {
        key.into()
    } else {
        format!("{key:?}").into()
    }
}
