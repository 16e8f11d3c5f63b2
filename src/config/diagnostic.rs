//! Problems of a configuration and their rendering: severity, code, place, path of the key, the
//! line, and advice. Other modules find the problems. Lines appear as far as they may be shown
//! (`shown`).

mod code;
mod reported;
mod shown;

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};
use serde::Serialize;

pub use code::Code;
pub use reported::{RelatedPlace, ReportedPlace, ReportedProblem};
use shown::ShownText;
pub use shown::{Audience, MASK};
pub(super) use shown::{Content, Stretch, disjoint, stretches_of_lines};

/// At most this many problems are printed; the rest are counted.
const MAX_PRINTED: usize = 50;
/// Bytes that are printed of each end of a long message.
const ENDS: usize = 250;

/// The text of a configuration and its display name.
pub struct SourceText {
    /// The path as the user gave it; reports print it before the line number.
    pub name: String,
    /// The whole text, without a byte order mark.
    pub text: String,
    /// The places of keys and values, in order. Nothing else is shown but punctuation.
    pub(super) stretches: Vec<Stretch>,
}

/// Omits the text, which may hold passwords.
impl fmt::Debug for SourceText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SourceText")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl SourceText {
    /// The text without secrets, unknown values and comments. Lines keep their numbers.
    pub(super) fn masked_text(&self) -> String {
        self.shown(0..self.text.len(), Audience::Owner).text
    }

    fn shown(&self, range: Range<usize>, audience: Audience) -> ShownText {
        ShownText::new(&self.text, &self.stretches, range, audience)
    }

    /// The line and the column, both from 1 and the column in characters, of a byte offset.
    pub fn position(&self, offset: usize) -> (usize, usize) {
        let before = &self.text[..self.text.floor_char_boundary(offset)];
        let (above, line) = before.rsplit_once('\n').unwrap_or(("", before));
        let newlines = before.len() - above.len() - line.len();
        let line_number = above.matches('\n').count() + newlines + 1;
        (line_number, line.chars().count() + 1)
    }
}

/// Severity of a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// The configuration cannot be used.
    Error,
    /// The configuration can be used, but probably does not do what was meant.
    Warning,
}

/// One problem.
#[derive(Clone, Debug)]
pub struct Problem {
    /// Severity.
    pub severity: Severity,
    /// The kind of problem.
    pub code: Code,
    /// One sentence, without a full stop.
    pub message: String,
    /// The path of the key, as in `routes[2].limits[0].quota`; empty for the file as a whole.
    pub path: String,
    /// The byte range of the problem; `None` for the file as a whole.
    pub span: Option<Range<usize>>,
    /// Related places, each with a short label.
    pub related: Vec<(Range<usize>, String)>,
    /// Advice.
    pub help: Option<String>,
}

impl Problem {
    /// An error about the file as a whole.
    pub(super) fn error(code: Code, message: impl Into<String>) -> Self {
        Self {
            severity: Severity::Error,
            code,
            message: message.into(),
            path: String::new(),
            span: None,
            related: Vec::new(),
            help: None,
        }
    }
}

/// Everything found in one configuration, in the order of the file.
#[derive(Clone, Debug)]
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
    /// Sorts the problems by place.
    pub fn new(source: Arc<SourceText>, mut problems: Vec<Problem>) -> Self {
        problems.sort_by_key(|problem| problem.span.as_ref().map_or(0, |span| span.start));
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
        let source = SourceText {
            name: name.to_owned(),
            text: String::new(),
            stretches: Vec::new(),
        };
        let problem = Problem::error(Code::Unreadable, message);
        Self {
            source: Arc::new(source),
            problems: vec![Problem { help, ..problem }],
        }
    }

    /// True if a problem forbids the use of the configuration.
    pub fn has_errors(&self) -> bool {
        let mut problems = self.problems.iter();
        problems.any(|problem| problem.severity == Severity::Error)
    }

    /// The first problems, each a sentence after its key.
    pub fn sentences(&self) -> Vec<String> {
        let problems = self.problems.iter().take(MAX_PRINTED);
        let sentence =
            |problem: &Problem| format!("{}: {}", problem.path, shortened(&problem.message));
        problems.map(sentence).collect()
    }

    /// The name of the file.
    pub fn source_name(&self) -> &str {
        &self.source.name
    }

    /// The line and column of a problem, both from 1; `None` when it is about the whole file.
    pub fn position(&self, problem: &Problem) -> Option<(usize, usize)> {
        let span = problem.span.as_ref();
        span.map(|span| self.source.position(span.start))
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
            let lines = problem.span.as_ref().map(|span| self.lines(problem, span));
            let shown = lines
                .clone()
                .map(|lines| self.source.shown(lines, audience));
            let shown = lines.zip(shown.as_ref());
            let block = renderer.render(&[self.group(problem, shown.clone())]);
            text.push_str(&self.placed(block, problem, shown));
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
        shown: Option<(Range<usize>, &ShownText)>,
    ) -> String {
        let (Some(span), Some((_, shown))) = (&problem.span, shown) else {
            return block;
        };
        let (line, column) = self.source.position(span.start);
        let before = &shown.text[..shown.place(span.start)];
        let before = before.rsplit('\n').next().unwrap_or_default();
        let place = |column: usize| format!("{}:{line}:{column}", self.source.name);
        block.replacen(&place(before.chars().count() + 1), &place(column), 1)
    }

    /// The lines of a problem and its related places.
    fn lines(&self, problem: &Problem, span: &Range<usize>) -> Range<usize> {
        let text = &self.source.text;
        let others = || problem.related.iter().map(|(other, _)| other);
        let first = others().fold(span.start, |first, other| first.min(other.start));
        let last = others().fold(span.end, |last, other| last.max(other.end));
        let start = text[..first].rfind('\n').map_or(0, |newline| newline + 1);
        let newline = text[last..].find('\n');
        start..newline.map_or(text.len(), |newline| last + newline)
    }

    fn group<'a>(
        &'a self,
        problem: &'a Problem,
        shown: Option<(Range<usize>, &'a ShownText)>,
    ) -> Group<'a> {
        let level = match problem.severity {
            Severity::Error => Level::ERROR,
            Severity::Warning => Level::WARNING,
        };
        let title = level.primary_title(shortened(&problem.message));
        let mut group = Group::with_title(title.id(problem.code.as_str()));
        group = match (&problem.span, shown) {
            (Some(span), Some((lines, shown))) => {
                group.element(self.snippet(lines.start, shown, span, &problem.related))
            }
            _ => group.element(annotate_snippets::Origin::path(&self.source.name)),
        };
        if !problem.path.is_empty() {
            group = group.element(Level::NOTE.with_name("key").message(&problem.path));
        }
        if let Some(help) = &problem.help {
            group = group.element(Level::HELP.message(shortened(help)));
        }
        group
    }

    /// The annotated lines only, from the byte `start` on. The renderer reads the whole text it
    /// gets, and files are long.
    fn snippet<'a>(
        &'a self,
        start: usize,
        shown: &'a ShownText,
        span: &Range<usize>,
        related: &'a [(Range<usize>, String)],
    ) -> Snippet<'a, annotate_snippets::Annotation<'a>> {
        let within = |range: &Range<usize>| shown.place(range.start)..shown.place(range.end);
        let others = related.iter().map(|(other, label)| {
            let other = AnnotationKind::Context.span(within(other));
            other.label(label.as_str())
        });
        Snippet::source(shown.text.trim_end_matches('\r'))
            .line_start(self.source.position(start).0)
            .path(&self.source.name)
            .annotation(AnnotationKind::Primary.span(within(span)))
            .annotations(others)
    }
}

/// Cuts the middle out of a long text. A message may repeat a value, and a value may be a whole
/// file.
fn shortened(text: &str) -> Cow<'_, str> {
    if text.len() <= 4 * ENDS {
        return Cow::Borrowed(text);
    }
    let start = text.floor_char_boundary(ENDS);
    let end = text.ceil_char_boundary(text.len() - ENDS);
    Cow::Owned(format!("{}[...]{}", &text[..start], &text[end..]))
}

/// As logs and the admin API show it: of the file's lines keys alone.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.render(Colour::Plain, Audience::Others))
    }
}

impl std::error::Error for Report {}
