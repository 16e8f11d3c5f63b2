//! Problems of a configuration and their rendering: severity, code, place, path of the key, the
//! line, and advice. Other modules find the problems. Lines appear as far as they may be shown
//! (`shown`).

mod code;
mod shown;
mod source_text;

use std::sync::Arc;

use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};
use derive_more::Display;
use schemars::JsonSchema;
use serde::Serialize;

pub use code::Code;
pub use shown::{Audience, MASK};
pub(super) use shown::{Content, Stretch, disjoint};
use shown::{ShownText, stretches_of_lines};
pub use source_text::SourceText;

use crate::files::VersionedFile;

/// At most this many problems are printed; the rest are counted.
const MAX_PRINTED: usize = 50;
/// At most this many problems are reported to machines; the rest are counted.
const MAX_REPORTED: usize = 1_000;
/// Bytes that are printed of each end of a long message.
const ENDS: usize = 250;

/// Severity of a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// The configuration cannot be used.
    Error,
    /// The configuration can be used, but probably does not do what was meant.
    Warning,
}

/// One problem, also as machines read it: in `check --json`, in SARIF, and in answers of the admin
/// API.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "Finding")]
pub struct Problem {
    /// Severity.
    pub severity: Severity,
    /// The stable code of the kind of problem.
    #[schemars(with = "String")]
    pub code: Code,
    /// One sentence, without a full stop.
    pub message: String,
    /// The place; `None` for the file as a whole.
    #[serde(flatten)]
    pub place: Option<Place>,
    /// The path of the key, as in `routes[2].limits[0].quota`; empty for the file as a whole.
    pub path: String,
    /// Advice.
    pub help: Option<String>,
    /// Related places.
    pub related: Vec<RelatedPlace>,
}

/// A range of a file. Lines and columns count from 1, and columns in characters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Place {
    #[serde(skip)]
    pub(in crate::config) start: usize,
    #[serde(skip)]
    end: usize,
    /// The path of an included file; absent for the main file.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub file: Option<Arc<str>>,
    /// The first line.
    pub line: usize,
    /// The column of the first character.
    pub column: usize,
    /// The last line.
    pub end_line: usize,
    /// The column behind the last character.
    pub end_column: usize,
}

/// A place that helps to understand a problem.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RelatedPlace {
    /// The place.
    #[serde(flatten)]
    pub place: Place,
    /// The problem at this place.
    pub message: String,
}

impl Problem {
    /// An error about the file as a whole.
    pub(super) fn error(code: Code, message: impl Into<String>) -> Self {
        Self {
            severity: Severity::Error,
            code,
            message: message.into(),
            place: None,
            path: String::new(),
            help: None,
            related: Vec::new(),
        }
    }
}

/// Everything found in one configuration: errors, then warnings, in the order of the file. Logs and
/// the admin API show keys alone of the file's lines.
#[derive(Clone, Debug, Display)]
#[display("{}", self.render(Colour::Plain, Audience::Others))]
pub struct Report {
    source: Arc<SourceText>,
    /// The problems: errors, then warnings, by place.
    pub problems: Vec<Problem>,
    /// The files beside the main one that were read, or sought: a change may end the problems.
    pub(crate) files: Vec<VersionedFile>,
}

/// Colours of a printed report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colour {
    /// Plain text, for files, logs and tests.
    Plain,
    /// ANSI colours, for terminals.
    Ansi,
}

impl Report {
    /// Sorts the problems, errors first and then by place, and shortens long texts.
    pub fn new(source: Arc<SourceText>, mut problems: Vec<Problem>) -> Self {
        // Whoever reads the first ones must not miss an error behind warnings.
        let start = |problem: &Problem| problem.place.as_ref().map_or(0, |place| place.start);
        problems.sort_by_key(|problem| (problem.severity, start(problem)));
        for problem in &mut problems {
            shorten(&mut problem.message);
            problem.help.iter_mut().for_each(shorten);
        }
        Self {
            source,
            problems,
            files: Vec::new(),
        }
    }

    /// Adds problems that may be the cause of these.
    #[must_use]
    pub(super) fn with(self, others: Vec<Problem>) -> Self {
        let problems = others.into_iter().chain(self.problems);
        Self::new(self.source, problems.collect()).of_files(self.files)
    }

    /// Notes the files beside the main one.
    #[must_use]
    pub(super) fn of_files(self, files: Vec<VersionedFile>) -> Self {
        Self { files, ..self }
    }

    /// A report of one problem that is about the file as a whole.
    pub fn of_file(name: &str, message: String, help: Option<String>) -> Self {
        let source = SourceText::new(name, String::new());
        let problem = Problem::error(Code::Unreadable, message);
        Self::new(Arc::new(source), vec![Problem { help, ..problem }])
    }

    /// The first 1000 problems: errors, then warnings, in the order of the file.
    pub fn reported(&self) -> &[Problem] {
        &self.problems[..self.problems.len().min(MAX_REPORTED)]
    }

    /// The number of problems of this severity.
    pub fn count(&self, severity: Severity) -> usize {
        let problems = self.problems.iter();
        let found = problems.filter(|problem| problem.severity == severity);
        found.count()
    }

    /// A report of the errors that keep a text from being read at all. Of its lines, only keys that
    /// the schema has may be shown.
    pub(super) fn of_syntax(
        mut source: Arc<SourceText>,
        problems: Vec<Problem>,
        keys: &[String],
    ) -> Self {
        if let Some(source) = Arc::get_mut(&mut source) {
            source.stretches = stretches_of_lines(&source.text, keys);
        }
        Self::new(source, problems)
    }

    /// The first problems, each a sentence after its key.
    pub fn sentences(&self) -> Vec<String> {
        let problems = self.problems.iter().take(MAX_PRINTED);
        let sentences = problems.map(|problem| format!("{}: {}", problem.path, problem.message));
        sentences.collect()
    }

    /// The name of the file.
    pub fn source_name(&self) -> &str {
        &self.source.name
    }

    /// The text without secrets, unknown values and comments. Lines keep their numbers.
    pub fn masked_text(&self) -> String {
        self.source.masked_text()
    }

    /// Renders the report: a block for each problem, then a line with their number.
    pub fn render(&self, colour: Colour, audience: Audience) -> String {
        let renderer = match colour {
            Colour::Plain => Renderer::plain(),
            Colour::Ansi => Renderer::styled(),
        };
        let mut text = String::new();
        for problem in self.problems.iter().take(MAX_PRINTED) {
            let excerpts = self.excerpts(problem, audience);
            let block = renderer.render(&[self.group(problem, &excerpts)]);
            text.push_str(&self.placed(block, &excerpts));
            text.push_str("\n\n");
        }
        if self.problems.len() > MAX_PRINTED {
            let more = self.problems.len() - MAX_PRINTED;
            text.push_str(&format!("... and {more} more\n\n"));
        }
        text.push_str(&self.summary());
        text
    }

    fn summary(&self) -> String {
        let (errors, warnings) = (self.count(Severity::Error), self.count(Severity::Warning));
        let count = |n: usize, what: &str| match n {
            1 => format!("1 {what}"),
            n => format!("{n} {what}s"),
        };
        let counts = match (count(errors, "error"), count(warnings, "warning")) {
            _ if self.problems.is_empty() => "no problems".to_owned(),
            (errors, _) if warnings == 0 => errors,
            (_, warnings) if errors == 0 => warnings,
            (errors, warnings) => format!("{errors}, {warnings}"),
        };
        format!("{}: {counts}", self.source.name)
    }

    /// A rendered block with the problem's own column, where the renderer has that in the shown line.
    fn placed(&self, block: String, excerpts: &[Excerpt<'_>]) -> String {
        let Some(Excerpt { shown, marks, .. }) = excerpts.first() else {
            return block;
        };
        let (place, _) = marks[0];
        let before = &shown.text[..shown.place(place.start)];
        let before = before.rsplit('\n').next().unwrap_or_default();
        let path = self.path(place);
        let at = |column: usize| format!("{path}:{}:{column}", place.line);
        block.replacen(&at(before.chars().count() + 1), &at(place.column), 1)
    }

    fn path<'a>(&'a self, place: &'a Place) -> &'a str {
        place.file.as_deref().unwrap_or(&self.source.name)
    }

    /// The lines of a problem, and those of its related places, by file.
    fn excerpts<'a>(&self, problem: &'a Problem, audience: Audience) -> Vec<Excerpt<'a>> {
        let Some(place) = &problem.place else {
            return Vec::new();
        };
        let related = problem.related.iter();
        let related = related.map(|other| (&other.place, Some(other.message.as_str())));
        let mut files: Vec<Vec<Mark<'_>>> = vec![vec![(place, None)]];
        for mark in related {
            let mut known = files.iter_mut();
            match known.find(|marks| marks[0].0.file == mark.0.file) {
                Some(marks) => marks.push(mark),
                None => files.push(vec![mark]),
            }
        }
        let files = files.into_iter();
        files.map(|marks| self.excerpt(marks, audience)).collect()
    }

    /// The annotated lines only: the renderer reads the whole text it gets, and files are long.
    fn excerpt<'a>(&self, marks: Vec<Mark<'a>>, audience: Audience) -> Excerpt<'a> {
        let text = &self.source.text;
        let places = || marks.iter().map(|(place, _)| place);
        let first = places().map(|place| place.start).min().unwrap_or(0);
        let last = places().map(|place| place.end).max().unwrap_or(0);
        let start = text[..first].rfind('\n').map_or(0, |newline| newline + 1);
        let newline = text[last..].find('\n');
        let end = newline.map_or(text.len(), |newline| last + newline);
        Excerpt {
            start,
            shown: self.source.shown(start..end, audience),
            marks,
        }
    }

    fn group<'a>(&'a self, problem: &'a Problem, excerpts: &'a [Excerpt<'_>]) -> Group<'a> {
        let level = match problem.severity {
            Severity::Error => Level::ERROR,
            Severity::Warning => Level::WARNING,
        };
        let title = level.primary_title(problem.message.as_str());
        let mut group = Group::with_title(title.id(problem.code.as_str()));
        if excerpts.is_empty() {
            group = group.element(annotate_snippets::Origin::path(&self.source.name));
        }
        group = group.elements(excerpts.iter().map(|excerpt| self.snippet(excerpt)));
        if !problem.path.is_empty() {
            group = group.element(Level::NOTE.with_name("key").message(&problem.path));
        }
        if let Some(help) = &problem.help {
            group = group.element(Level::HELP.message(help.as_str()));
        }
        group
    }

    fn snippet<'a>(
        &'a self,
        excerpt: &'a Excerpt<'_>,
    ) -> Snippet<'a, annotate_snippets::Annotation<'a>> {
        let shown = &excerpt.shown;
        let text = shown.text.trim_end_matches('\r');
        let at = |offset| shown.place(offset).min(text.len());
        let annotations = excerpt.marks.iter().map(|(place, label)| {
            let within = at(place.start)..at(place.end);
            match *label {
                None => AnnotationKind::Primary.span(within),
                Some(label) => AnnotationKind::Context.span(within).label(label),
            }
        });
        Snippet::source(text)
            .line_start(self.source.position(excerpt.start).0)
            .path(self.path(excerpt.marks[0].0))
            .annotations(annotations)
    }
}

/// A place to annotate, with a label if it is a related one.
type Mark<'a> = (&'a Place, Option<&'a str>);

/// The lines of one file with places of a problem.
struct Excerpt<'a> {
    /// The offset of the first line.
    start: usize,
    shown: ShownText,
    /// At least one.
    marks: Vec<Mark<'a>>,
}

/// Cuts the middle out of a long text. A message may repeat a value, and a value may be a whole
/// file.
fn shorten(text: &mut String) {
    if text.len() > 4 * ENDS {
        let start = text.floor_char_boundary(ENDS);
        let end = text.ceil_char_boundary(text.len() - ENDS);
        text.replace_range(start..end, "[...]");
    }
}

impl std::error::Error for Report {}
