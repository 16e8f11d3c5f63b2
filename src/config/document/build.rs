//! Builds a [`Document`] from the parser's tree: keeps keys and places, replaces variables.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use serde_yaml::Spanned;

use super::yaml::{self, Raw};
use super::{Document, Node, NodeId, NodeValue, Step, TextOrigin};
use crate::config::diagnostic::{Code, SourceText};
use crate::config::finding::Finding;
use crate::config::variables;

/// Looks up a variable; `None` means unset.
pub(in crate::config) type Environment<'a> = dyn Fn(&str) -> Option<String> + 'a;

/// Builds the document, and collects the findings on single values. Those values stay as written,
/// so that later stages find their other problems.
pub(super) fn document(
    source: SourceText,
    tree: Spanned<Raw>,
    environment: &Environment<'_>,
) -> (Document, Vec<Finding>) {
    let document = Document {
        source: Arc::new(source),
        nodes: Vec::new(),
        visibility: Vec::new(),
    };
    let mut builder = Builder {
        document,
        environment,
        findings: Vec::new(),
    };
    builder.add(tree, NodeId::ABSENT, Step::Root);
    (builder.document, builder.findings)
}

struct Builder<'a> {
    document: Document,
    environment: &'a Environment<'a>,
    findings: Vec<Finding>,
}

impl Builder<'_> {
    /// Adds a value and its descendants. The parser's budget bounds the depth.
    fn add(&mut self, tree: Spanned<Raw>, parent: NodeId, step: Step) -> NodeId {
        let span = narrow(yaml::bytes(&tree.defined));
        let id = NodeId(
            u32::try_from(self.document.nodes.len()).expect("the parser's budget bounds the nodes"),
        );
        let placeholder = NodeValue::Sequence(Vec::new());
        self.document.nodes.push(Node {
            parent,
            step,
            span,
            value: placeholder,
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
        let mut seen = HashMap::with_capacity(entries.len());
        for (key, value) in entries {
            let name = yaml::scalar_text(&key, &self.document.source);
            let span = narrow(yaml::bytes(&key.defined));
            let step = Step::Key {
                name: name.as_str().into(),
                span,
            };
            let id = self.add(value, parent, step);
            if let Some(first) = seen.insert(name, id) {
                let message = "this key stands twice in one mapping";
                let finding = Finding::error(id, Code::DuplicateKey, message).at_key();
                let finding = finding.related(first, "it stands here first");
                self.findings
                    .push(finding.help("remove one of them, or join what they hold"));
            }
            if matches!(key.value, Raw::Sequence(_) | Raw::Mapping(_)) {
                let message = "a key has to be a text, not a list or a mapping";
                let finding = Finding::error(id, Code::WrongType, message);
                self.findings.push(finding.at_key());
            }
            ids.push(id);
        }
        NodeValue::Mapping(ids)
    }

    fn scalar(&mut self, tree: &Spanned<Raw>, id: NodeId) -> NodeValue {
        let text = yaml::scalar_text(tree, &self.document.source);
        match variables::replace(&text, self.environment) {
            Ok(None) => NodeValue::Scalar {
                text: text.into(),
                origin: TextOrigin::File,
            },
            Ok(Some(replaced)) => NodeValue::Scalar {
                text: replaced.into(),
                origin: TextOrigin::Environment,
            },
            Err(error) => {
                self.findings
                    .push(Finding::error(id, Code::Variable, error.message).help(error.help));
                NodeValue::Scalar {
                    text: text.into(),
                    origin: TextOrigin::File,
                }
            }
        }
    }
}

/// Files are far below 4 GiB.
fn narrow(range: Range<usize>) -> Range<u32> {
    let narrow = |offset| u32::try_from(offset).unwrap_or(u32::MAX);
    narrow(range.start)..narrow(range.end)
}
