//! Problems as machines read them: in `check --json`, in SARIF, and in answers of the admin API.

use std::ops::Range;

use serde::Serialize;

use super::{Problem, Report, Severity, shortened};

/// At most this many problems of a report are told; the rest are counted.
const MAX_REPORTED: usize = 1_000;

/// A problem with its place. Lines and columns count from 1, and columns in characters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ReportedProblem {
    /// Severity.
    pub severity: Severity,
    /// The stable code of the kind of problem.
    pub code: &'static str,
    /// One sentence, without a full stop.
    pub message: String,
    /// The place; absent for the file as a whole.
    #[serde(flatten)]
    pub place: Option<ReportedPlace>,
    /// The path of the key, as in `routes[2].limits[0].quota`; empty for the file as a whole.
    pub path: String,
    /// Advice.
    pub help: Option<String>,
    /// Related places.
    pub related: Vec<RelatedPlace>,
}

/// A range of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ReportedPlace {
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RelatedPlace {
    /// The place.
    #[serde(flatten)]
    pub place: ReportedPlace,
    /// The problem at this place.
    pub message: String,
}

impl Report {
    /// The first 1000 problems, in the order of the file.
    pub fn reported(&self) -> Vec<ReportedProblem> {
        let lines = Lines::of(&self.source.text);
        let problems = self.problems.iter().take(MAX_REPORTED);
        problems.map(|problem| problem.reported(&lines)).collect()
    }

    /// The number of problems of this severity.
    pub fn count(&self, severity: Severity) -> usize {
        let problems = self.problems.iter();
        problems
            .filter(|problem| problem.severity == severity)
            .count()
    }
}

impl Problem {
    fn reported(&self, lines: &Lines<'_>) -> ReportedProblem {
        let help = self.help.as_deref();
        let related = self.related.iter().map(|(span, label)| RelatedPlace {
            place: lines.place(span),
            message: label.clone(),
        });
        ReportedProblem {
            severity: self.severity,
            code: self.code.as_str(),
            message: shortened(&self.message).into_owned(),
            place: self.span.as_ref().map(|span| lines.place(span)),
            path: self.path.clone(),
            help: help.map(|help| shortened(help).into_owned()),
            related: related.collect(),
        }
    }
}

/// A text with the offsets of its lines, so that each place is found without reading all of it.
struct Lines<'a> {
    text: &'a str,
    starts: Vec<usize>,
}

impl<'a> Lines<'a> {
    fn of(text: &'a str) -> Self {
        let newlines = memchr::memchr_iter(b'\n', text.as_bytes());
        Self {
            text,
            starts: std::iter::once(0)
                .chain(newlines.map(|at| at + 1))
                .collect(),
        }
    }

    fn place(&self, span: &Range<usize>) -> ReportedPlace {
        let (line, column) = self.position(span.start);
        let (end_line, end_column) = self.position(span.end);
        ReportedPlace {
            line,
            column,
            end_line,
            end_column,
        }
    }

    fn position(&self, offset: usize) -> (usize, usize) {
        let offset = self.text.floor_char_boundary(offset);
        let line = self.starts.partition_point(|start| *start <= offset);
        let column = self.text[self.starts[line - 1]..offset].chars().count();
        (line, column + 1)
    }
}
