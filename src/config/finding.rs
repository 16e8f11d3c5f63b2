//! A problem while it is being found: about a node of the document, not yet about bytes of a file.
//! [`Findings`] collects them, so that one mistake is reported once and hides no other.

use std::cell::RefCell;
use std::collections::HashSet;

use super::diagnostic::{Code, Severity};
use super::document::{Document, NodeId};

/// Something wrong at a node.
#[derive(Clone, Debug)]
pub struct Finding {
    pub(super) severity: Severity,
    pub(super) code: Code,
    pub(super) node: NodeId,
    pub(super) part: Part,
    pub(super) message: String,
    pub(super) related: Vec<(NodeId, String)>,
    pub(super) help: Option<String>,
}

/// What of a node is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Part {
    /// The value, or the key where the value is a mapping or a list.
    Whole,
    /// The key that the value stands under.
    Key,
}

impl Finding {
    /// A finding that forbids the use of the configuration.
    pub fn error(node: NodeId, code: Code, message: impl Into<String>) -> Self {
        Self {
            severity: Severity::Error,
            code,
            node,
            part: Part::Whole,
            message: message.into(),
            related: Vec::new(),
            help: None,
        }
    }

    /// A finding that only deserves attention.
    pub fn warning(node: NodeId, code: Code, message: impl Into<String>) -> Self {
        Self {
            severity: Severity::Warning,
            ..Self::error(node, code, message)
        }
    }

    /// Says what to do.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Points at another place that has to do with it, if it is another.
    #[must_use]
    pub fn related(mut self, node: NodeId, label: impl Into<String>) -> Self {
        if node != self.node {
            self.related.push((node, label.into()));
        }
        self
    }

    /// Points at the key instead of the value.
    #[must_use]
    pub fn at_key(mut self) -> Self {
        self.part = Part::Key;
        self
    }
}

/// All that was found in a document so far.
pub(super) struct Findings<'a> {
    pub(super) document: &'a Document,
    list: RefCell<Vec<Finding>>,
    places: RefCell<HashSet<(NodeId, Part)>>,
}

impl<'a> Findings<'a> {
    /// Starts with what was found before.
    pub(super) fn new(document: &'a Document, earlier: Vec<Finding>) -> Self {
        let findings = Self {
            document,
            list: RefCell::default(),
            places: RefCell::default(),
        };
        earlier
            .into_iter()
            .for_each(|finding| findings.add(finding));
        findings
    }

    /// Adds a finding, unless it is a consequence: its place already has one, or is nowhere, which
    /// is where the defaults stand that replace what could not be read.
    pub(super) fn add(&self, finding: Finding) {
        if finding.node != NodeId::ABSENT
            && self
                .places
                .borrow_mut()
                .insert((finding.node, finding.part))
        {
            self.list.borrow_mut().push(finding);
        }
    }

    /// Whether something was found at this path, or below it.
    pub(super) fn has_at(&self, path: &str) -> bool {
        let below = |rest: &str| rest.is_empty() || rest.starts_with(['.', '[']);
        let list = self.list.borrow();
        let mut paths = list.iter().map(|finding| self.document.path(finding.node));
        paths.any(|found| found.strip_prefix(path).is_some_and(below))
    }

    pub(super) fn has_errors(&self) -> bool {
        self.list
            .borrow()
            .iter()
            .any(|finding| finding.severity == Severity::Error)
    }

    /// The errors, or else the warnings: beside an error, much is unused only because of it.
    pub(super) fn into_list(self) -> Vec<Finding> {
        let has_errors = self.has_errors();
        let mut list = self.list.into_inner();
        list.retain(|finding| finding.severity == Severity::Error || !has_errors);
        list
    }
}
