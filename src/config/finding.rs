//! Findings: problems at nodes of the document, before they become byte ranges of a file.
//! [`Findings`] reports one mistake once.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::sync::Arc;

use super::diagnostic::{Content, Problem, RelatedPlace, Report};
use super::document::{Part, Visibility};
use super::{Code, Document, NodeId, Severity};
use crate::nearest;

/// How many unknown words are compared with the known ones. Files of 1 MiB can have a hundred
/// thousand of them, and each comparison takes milliseconds.
const MAX_COMPARED: usize = 100;

/// A problem at a node.
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

impl Finding {
    /// Creates an error: the configuration cannot be used.
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

    /// Creates a warning.
    pub fn warning(node: NodeId, code: Code, message: impl Into<String>) -> Self {
        Self {
            severity: Severity::Warning,
            ..Self::error(node, code, message)
        }
    }

    /// Adds advice.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Points at a related place, if there is one beside this node.
    #[must_use]
    pub fn related(mut self, node: impl Into<Option<NodeId>>, label: impl Into<String>) -> Self {
        let node = node.into().filter(|node| *node != self.node);
        self.related.extend(node.map(|node| (node, label.into())));
        self
    }

    /// Points at the key instead of the value.
    #[must_use]
    pub fn at_key(mut self) -> Self {
        self.part = Part::Key;
        self
    }
}

/// The error for settings that contradict each other.
pub(super) fn conflict(node: NodeId, message: impl Into<String>) -> Finding {
    Finding::error(node, Code::Conflict, message)
}

/// The error for a setting without an effect.
pub(super) fn no_effect(node: NodeId, message: impl Into<String>) -> Finding {
    Finding::error(node, Code::NoEffect, message)
}

/// The warning of a setting without an effect.
pub(super) fn warn_no_effect(node: NodeId, message: impl Into<String>) -> Finding {
    Finding::warning(node, Code::NoEffect, message)
}

/// The error for a value that is none, or beyond its bounds.
pub(super) fn invalid(node: NodeId, message: impl Into<String>) -> Finding {
    Finding::error(node, Code::InvalidValue, message)
}

/// The error for a key that has to be there.
pub(super) fn missing(node: NodeId, message: impl Into<String>) -> Finding {
    Finding::error(node, Code::MissingKey, message)
}

/// The findings in a document so far.
pub(super) struct Findings<'a> {
    pub(super) document: &'a Document,
    list: RefCell<Vec<Finding>>,
    places: RefCell<HashSet<(NodeId, Part)>>,
    /// The visibility of each node, as far as it is known.
    visibility: RefCell<Vec<Visibility>>,
    /// The number of unknown words that were compared.
    compared: Cell<usize>,
    /// Keys that are meant, in words that are unknown in these mappings.
    meant: RefCell<HashSet<(NodeId, String)>>,
}

impl<'a> Findings<'a> {
    /// Starts with earlier findings.
    pub(super) fn new(document: &'a Document, earlier: Vec<Finding>) -> Self {
        let findings = Self {
            document,
            list: RefCell::default(),
            places: RefCell::default(),
            visibility: vec![Visibility::HIDDEN; document.len()].into(),
            compared: Cell::default(),
            meant: RefCell::default(),
        };
        findings.extend(earlier);
        findings
    }

    /// Adds a finding, unless its place already has one or is absent. Unreadable values are
    /// replaced by defaults, which are absent; findings there would be consequences.
    pub(super) fn add(&self, finding: Finding) {
        let place = (finding.node, finding.part);
        if finding.node != NodeId::ABSENT && self.places.borrow_mut().insert(place) {
            self.list.borrow_mut().push(finding);
        }
    }

    /// Adds what was found.
    pub(super) fn extend(&self, found: impl IntoIterator<Item = Finding>) {
        found.into_iter().for_each(|finding| self.add(finding));
    }

    /// Notes that an unknown key of a mapping means this known one, or an empty text if that is open.
    /// Returns false if another does, too.
    pub(super) fn mean(&self, mapping: NodeId, key: &str) -> bool {
        self.meant.borrow_mut().insert((mapping, key.to_owned()))
    }

    /// Notes that the schema knows the key of a node.
    pub(super) fn know_key(&self, node: NodeId) {
        self.visibility.borrow_mut()[node.0 as usize].is_known_key = true;
    }

    /// True if the schema knows the key of a node.
    pub(super) fn knows_key(&self, node: NodeId) -> bool {
        self.visibility.borrow()[node.0 as usize].is_known_key
    }

    /// Notes what the schema says of a value.
    pub(super) fn know_value(&self, node: NodeId, content: Content) {
        self.visibility.borrow_mut()[node.0 as usize].value = content;
    }

    /// Returns the content of a value, as far as it is known.
    pub(super) fn content(&self, node: NodeId) -> Content {
        self.visibility.borrow()[node.0 as usize].value
    }

    /// The known word closest to an unknown one, as [`nearest::nearest`]; `None` after the first 100
    /// unknown words.
    pub(super) fn nearest<'k>(&self, word: &str, known: &[&'k str]) -> Option<&'k str> {
        let compared = self.compared.get();
        self.compared.set(compared + 1);
        (compared < MAX_COMPARED).then(|| nearest::nearest(word, known))?
    }

    /// Advice for an unknown word, as [`nearest::advice`]; no longer with the nearest word after the
    /// first 100 unknown ones.
    pub(super) fn advice(&self, word: &str, known: &[&str], introduction: &str) -> String {
        nearest::phrase(self.nearest(word, known), known, introduction)
    }

    /// True if a finding is at this path or below it.
    pub(super) fn has_at(&self, path: &str) -> bool {
        let below = |rest: &str| rest.is_empty() || rest.starts_with(['.', '[']);
        let list = self.list.borrow();
        let mut paths = list.iter().map(|finding| self.document.path(finding.node));
        paths.any(|found| found.strip_prefix(path).is_some_and(below))
    }

    /// The paths of routes that have findings, such as `routes[0]`.
    pub(super) fn faulty_routes(&self) -> HashSet<String> {
        let list = self.list.borrow();
        let paths = list.iter().map(|finding| self.document.path(finding.node));
        let routes = paths.filter(|path| path.starts_with("routes["));
        let route = |path: String| path.split_inclusive(']').next().map(str::to_owned);
        routes.filter_map(route).collect()
    }

    pub(super) fn has_errors(&self) -> bool {
        let list = self.list.borrow();
        list.iter()
            .any(|finding| finding.severity == Severity::Error)
    }

    /// The errors, or the warnings if there are no errors, and what may be shown of each node.
    /// Beside an error, warnings of unused items are mostly its consequences; so is everything
    /// beside a key that stands twice, and a key that is missing or a name that is unknown because
    /// another key is misspelt.
    pub(super) fn into_parts(self) -> (Vec<Finding>, Vec<Visibility>) {
        let has_errors = self.has_errors();
        let mut list = self.list.take();
        let meant = self.meant.take();
        list.retain(|finding| !follows(finding, &meant));
        let is_twice = |finding: &Finding| finding.code == Code::DuplicateKey;
        let has_twice = list.iter().any(is_twice);
        list.retain(|finding| {
            if has_twice {
                is_twice(finding)
            } else {
                finding.severity == Severity::Error || !has_errors
            }
        });
        (list, self.visibility.into_inner())
    }
}

/// True if a finding follows from an unknown key: what is missing in its mapping, or stands under the
/// key that it means.
fn follows(finding: &Finding, meant: &HashSet<(NodeId, String)>) -> bool {
    let is_of = |(section, name): (&str, &str)| {
        let is_meant = || meant.contains(&(NodeId::ROOT, section.to_owned()));
        finding.message.starts_with(name) && is_meant()
    };
    match finding.code {
        Code::MissingKey | Code::NoValue => meant.contains(&(finding.node, String::new())),
        Code::UnknownName => {
            let sections = [
                ("policies", "there is no policy"),
                ("upstreams", "there is no upstream"),
            ];
            sections.into_iter().any(is_of)
        }
        _ => false,
    }
}

impl Document {
    /// Turns findings into a report. A finding at an absent node points at the whole file.
    pub(super) fn report(&self, findings: Vec<Finding>) -> Report {
        let problems = findings.into_iter().map(|finding| self.problem(finding));
        Report::new(Arc::clone(self.source()), problems.collect())
    }

    fn problem(&self, finding: Finding) -> Problem {
        let node = finding.node;
        let shown = |text| self.without_variables(text, node);
        let related = finding.related.into_iter();
        let related = related.filter_map(|(node, message)| {
            let place = self.place(node, Part::Whole)?;
            let message = self.without_variables(message, node);
            Some(RelatedPlace { place, message })
        });
        Problem {
            severity: finding.severity,
            code: finding.code,
            message: shown(finding.message),
            place: self.place(finding.node, finding.part),
            path: self.path(finding.node),
            help: finding.help.map(shown),
            related: related.collect(),
        }
    }
}
