//! Builds a [`Document`] from the parser's tree: keeps keys and places, replaces variables.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use serde_yaml::{Location, Spanned};

use super::yaml::{self, Raw};
use super::{Document, JOINED, Node, NodeId, NodeValue, Step, TextOrigin};
use crate::config::diagnostic::{Code, Problem, SourceText};
use crate::config::finding::Finding;
use crate::config::variables;

/// Looks up a variable; `None` means unset.
pub(crate) type Environment<'a> = dyn Fn(&str) -> Option<String> + 'a;

/// Builds a document from the main file and those that it includes, and collects the findings on
/// single values. Those values stay as written, so that later stages find their other problems.
pub(crate) struct Builder<'a> {
    pub(crate) document: Document,
    environment: &'a Environment<'a>,
    /// The findings on variables and keys.
    pub(crate) findings: Vec<Finding>,
    /// The syntax errors of files.
    problems: Vec<Problem>,
    /// The file that is being added, in the text of all.
    file: Range<usize>,
    /// Counts the parser's events for what aliases stand for.
    replayed: usize,
    /// The furthest start of a value in the file that is being added.
    furthest: u32,
}

impl<'a> Builder<'a> {
    /// Parses the main file.
    pub(crate) fn new(source: SourceText, environment: &'a Environment<'a>) -> Self {
        let all = 0..source.text.len();
        let document = Document {
            source: Arc::new(source),
            nodes: Vec::new(),
            included: Vec::new(),
            visibility: Vec::new(),
        };
        let mut builder = Self {
            document,
            environment,
            findings: Vec::new(),
            problems: Vec::new(),
            file: 0..0,
            replayed: 0,
            furthest: 0,
        };
        builder.parse(all);
        builder
    }

    /// Parses included files, each a path and its text.
    pub(crate) fn include(&mut self, files: Vec<(String, String)>) {
        if let Some(source) = Arc::get_mut(&mut self.document.source) {
            source.include(files);
        }
        let files = self.document.source.files().skip(1);
        let ranges: Vec<_> = files.map(|(range, _)| range).collect();
        for range in ranges {
            let root = self.parse(range);
            self.document.included.extend(root);
        }
        JOINED.into_iter().for_each(|key| self.join(key));
    }

    /// The document.
    ///
    /// # Errors
    /// Returns the syntax errors, with the text.
    pub(crate) fn build(self) -> Result<Document, (Arc<SourceText>, Vec<Problem>)> {
        if self.problems.is_empty() {
            Ok(self.document)
        } else {
            Err((self.document.source, self.problems))
        }
    }

    fn parse(&mut self, file: Range<usize>) -> Option<NodeId> {
        let Document { source, nodes, .. } = &self.document;
        let tree = yaml::parse(source, file.clone(), nodes.len(), self.replayed);
        (self.file, self.furthest) = (file, 0);
        let tree = tree.map_err(|problem| self.problems.push(*problem)).ok()?;
        Some(self.add(tree, NodeId::ABSENT, Step::Root))
    }

    /// Appends the items or entries that included files have at a top-level key to those of the main
    /// file.
    fn join(&mut self, key: &str) {
        let included = self.document.included.iter().copied();
        let roots = std::iter::once(NodeId::ROOT).chain(included);
        let holders: Vec<_> = roots.map(|root| self.document.child(root, key)).collect();
        let mut others = holders.iter().copied().flatten();
        let Some(first) = others.next() else {
            return;
        };
        let root = &mut self.document.nodes[0].value;
        if let (None, NodeValue::Mapping(top)) = (holders[0], root) {
            top.push(first);
        }
        let mut whole = self.take(first);
        for holder in others {
            let form = match (&mut whole, self.take(holder)) {
                (NodeValue::Sequence(whole), NodeValue::Sequence(more))
                | (NodeValue::Mapping(whole), NodeValue::Mapping(more)) => {
                    whole.extend(more);
                    continue;
                }
                (NodeValue::Sequence(_), _) => "a list",
                (NodeValue::Mapping(_), _) => "a mapping",
                (NodeValue::Scalar { .. } | NodeValue::Null, _) => continue,
            };
            let message = format!("expected {form}, as in the first file with this key");
            self.findings
                .push(Finding::error(holder, Code::WrongType, message).at_key());
        }
        match &whole {
            NodeValue::Sequence(items) => {
                for (item, index) in items.iter().zip(0..) {
                    self.document.nodes[item.0 as usize].step = Step::Index(index);
                }
            }
            NodeValue::Mapping(entries) => {
                let help = "give one of them another name";
                self.report_twice(entries, "another file has this name, too", help);
            }
            NodeValue::Scalar { .. } | NodeValue::Null => {}
        }
        self.document.nodes[first.0 as usize].value = whole;
    }

    fn report_twice(&mut self, entries: &[NodeId], message: &str, help: &str) {
        let mut seen = HashMap::with_capacity(entries.len());
        for &entry in entries {
            let name = self.document.key(entry).unwrap_or_default();
            if let Some(first) = seen.insert(name, entry) {
                let finding = Finding::error(entry, Code::DuplicateKey, message).at_key();
                let finding = finding.related(first, "it stands here first");
                self.findings.push(finding.help(help));
            }
        }
    }

    fn take(&mut self, node: NodeId) -> NodeValue {
        let node = &mut self.document.nodes[node.0 as usize];
        std::mem::replace(&mut node.value, NodeValue::Null)
    }

    /// The place of a part of the file in the text of all, which is far below 4 GiB.
    fn span(&self, location: &Location) -> Range<u32> {
        let Range { start, end } = yaml::bytes(location);
        let place = |offset| u32::try_from(self.file.start + offset).unwrap_or(u32::MAX);
        place(start)..place(end)
    }

    /// Adds a value and its descendants. The parser's budget bounds the depth.
    fn add(&mut self, tree: Spanned<Raw>, parent: NodeId, step: Step) -> NodeId {
        let span = self.span(&tree.defined);
        let id = NodeId(
            u32::try_from(self.document.nodes.len()).expect("the parser's budget bounds the nodes"),
        );
        if span.start < self.furthest {
            // It comes by an alias. Lists and mappings have an event at each end.
            let has_items = matches!(tree.value, Raw::Sequence(_) | Raw::Mapping(_));
            self.replayed += 1 + usize::from(has_items);
        }
        self.furthest = self.furthest.max(span.start);
        self.document.nodes.push(Node {
            parent,
            step,
            span,
            value: NodeValue::Null,
        });
        let value = match tree.value {
            Raw::Sequence(items) => self.sequence(items, id),
            Raw::Mapping(entries) => self.mapping(entries, id),
            Raw::Text(_) | Raw::Typed => self.scalar(&tree, id),
            Raw::Null => NodeValue::Null,
        };
        self.document.nodes[id.0 as usize].value = value;
        id
    }

    fn sequence(&mut self, items: Vec<Spanned<Raw>>, parent: NodeId) -> NodeValue {
        let add = |(item, index)| self.add(item, parent, Step::Index(index));
        NodeValue::Sequence(items.into_iter().zip(0..).map(add).collect())
    }

    fn mapping(&mut self, entries: Vec<(Spanned<Raw>, Spanned<Raw>)>, parent: NodeId) -> NodeValue {
        let mut ids = Vec::with_capacity(entries.len());
        for (key, value) in entries {
            let name = yaml::scalar_text(&key, &self.document.source.text[self.file.clone()]);
            let span = self.span(&key.defined);
            let step = Step::Key {
                name: name.into(),
                span,
            };
            let id = self.add(value, parent, step);
            if matches!(key.value, Raw::Sequence(_) | Raw::Mapping(_)) {
                let message = "a key has to be a text, not a list or a mapping";
                self.findings
                    .push(Finding::error(id, Code::WrongType, message).at_key());
            }
            ids.push(id);
        }
        let help = "remove one of them, or join what they hold";
        self.report_twice(&ids, "this key stands twice in one mapping", help);
        NodeValue::Mapping(ids)
    }

    fn scalar(&mut self, tree: &Spanned<Raw>, id: NodeId) -> NodeValue {
        let text = yaml::scalar_text(tree, &self.document.source.text[self.file.clone()]);
        let (text, origin) = match variables::replace(&text, self.environment) {
            Ok(None) => (text, TextOrigin::File),
            Ok(Some(replaced)) => (replaced, TextOrigin::Environment),
            Err(error) => {
                let finding = Finding::error(id, Code::Variable, error.message);
                self.findings.push(finding.help(error.help));
                (text, TextOrigin::File)
            }
        };
        let text = text.into();
        NodeValue::Scalar { text, origin }
    }
}
