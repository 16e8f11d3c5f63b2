//! Problems of a configuration and their rendering: severity, code, place, path of the key, the
//! line, and advice. Other modules find the problems. Lines appear as far as they may be shown
//! (`shown`).

mod code;
mod shown;
mod source_text;

use std::ops::Range;
use std::sync::Arc;

use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};
use derive_more::Display;
use schemars::JsonSchema;
use serde::Serialize;

pub use code::Code;
use shown::ShownText;
use shown::stretches_of_lines;
pub use shown::{Audience, MASK};
pub(super) use shown::{Content, Stretch, disjoint};
pub use source_text::SourceText;

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

/// A range of the file. Lines and columns count from 1, and columns in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Place {
    #[serde(skip)]
    start: usize,
    #[serde(skip)]
    end: usize,
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

/// Everything found in one configuration, in the order of the file. Logs and the admin API show keys
/// alone of the file's lines.
#[derive(Clone, Debug, Display)]
#[display("{}", self.render(Colour::Plain, Audience::Others))]
pub struct Report {
    source: Arc<SourceText>,
    /// The problems, by place.
    pub problems: Vec<Problem>,
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
    /// Sorts the problems by place, and shortens long texts.
    pub fn new(source: Arc<SourceText>, mut problems: Vec<Problem>) -> Self {
        problems.sort_by_key(|problem| problem.place.map_or(0, |place| place.start));
        for problem in &mut problems {
            shorten(&mut problem.message);
            problem.help.iter_mut().for_each(shorten);
        }
        Self { source, problems }
    }

    /// Joins two reports on the same text.
    #[must_use]
    pub fn and(self, others: Self) -> Self {
        let problems = self.problems.into_iter().chain(others.problems);
        Self::new(self.source, problems.collect())
    }

    /// Adds problems that may be the cause of these.
    #[must_use]
    pub(super) fn with(self, others: Vec<Problem>) -> Self {
        let problems = others.into_iter().chain(self.problems);
        Self::new(self.source, problems.collect())
    }

    /// A report of one problem that is about the file as a whole.
    pub fn of_file(name: &str, message: String, help: Option<String>) -> Self {
        let source = SourceText::new(name, String::new());
        let problem = Problem::error(Code::Unreadable, message);
        Self::new(Arc::new(source), vec![Problem { help, ..problem }])
    }

    /// The first 1000 problems, in the order of the file.
    pub fn reported(&self) -> &[Problem] {
        &self.problems[..self.problems.len().min(MAX_REPORTED)]
    }

    /// The number of problems of this severity.
    pub fn count(&self, severity: Severity) -> usize {
        let problems = self.problems.iter();
        problems
            .filter(|problem| problem.severity == severity)
            .count()
    }

    /// A report of the error that keeps a text from being read at all. Of its lines, only keys that
    /// the schema has may be shown.
    pub(super) fn of_syntax(mut source: SourceText, problem: Problem, keys: &[String]) -> Self {
        source.stretches = stretches_of_lines(&source.text, keys);
        Self::new(Arc::new(source), vec![problem])
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
            let lines = problem.place.map(|place| self.lines(problem, place));
            let shown = lines.map(|lines| (lines.start, self.source.shown(lines, audience)));
            let block = renderer.render(&[self.group(problem, shown.as_ref())]);
            text.push_str(&self.placed(block, problem, shown.as_ref()));
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
    fn placed(
        &self,
        block: String,
        problem: &Problem,
        shown: Option<&(usize, ShownText)>,
    ) -> String {
        let (Some(place), Some((_, shown))) = (problem.place, shown) else {
            return block;
        };
        let before = &shown.text[..shown.place(place.start)];
        let before = before.rsplit('\n').next().unwrap_or_default();
        let at = |column: usize| format!("{}:{}:{column}", self.source.name, place.line);
        block.replacen(&at(before.chars().count() + 1), &at(place.column), 1)
    }

    /// The lines of a problem and its related places.
    fn lines(&self, problem: &Problem, place: Place) -> Range<usize> {
        let text = &self.source.text;
        let others = || problem.related.iter().map(|other| other.place);
        let first = others().fold(place.start, |first, other| first.min(other.start));
        let last = others().fold(place.end, |last, other| last.max(other.end));
        let start = text[..first].rfind('\n').map_or(0, |newline| newline + 1);
        let newline = text[last..].find('\n');
        start..newline.map_or(text.len(), |newline| last + newline)
    }

    fn group<'a>(
        &'a self,
        problem: &'a Problem,
        shown: Option<&'a (usize, ShownText)>,
    ) -> Group<'a> {
        let level = match problem.severity {
            Severity::Error => Level::ERROR,
            Severity::Warning => Level::WARNING,
        };
        let title = level.primary_title(problem.message.as_str());
        let mut group = Group::with_title(title.id(problem.code.as_str()));
        group = match (problem.place, shown) {
            (Some(place), Some((start, shown))) => {
                group.element(self.snippet(*start, shown, place, &problem.related))
            }
            _ => group.element(annotate_snippets::Origin::path(&self.source.name)),
        };
        if !problem.path.is_empty() {
            group = group.element(Level::NOTE.with_name("key").message(&problem.path));
        }
        if let Some(help) = &problem.help {
            group = group.element(Level::HELP.message(help.as_str()));
        }
        group
    }

    /// The annotated lines only, from the byte `start` on. The renderer reads the whole text it
    /// gets, and files are long.
    fn snippet<'a>(
        &'a self,
        start: usize,
        shown: &'a ShownText,
        place: Place,
        related: &'a [RelatedPlace],
    ) -> Snippet<'a, annotate_snippets::Annotation<'a>> {
        let within = |place: Place| shown.place(place.start)..shown.place(place.end);
        let others = related.iter().map(|other| {
            let span = AnnotationKind::Context.span(within(other.place));
            span.label(other.message.as_str())
        });
        Snippet::source(shown.text.trim_end_matches('\r'))
            .line_start(self.source.position(start).0)
            .path(&self.source.name)
            .annotation(AnnotationKind::Primary.span(within(place)))
            .annotations(others)
    }
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
