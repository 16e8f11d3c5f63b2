//! Configurations: every problem has a place in the file, and what passes the check can be built.

use super::fixture::{self, NOW};
use crate::config::{self, Audience, Colour, Problem, Report};
use crate::proxy::ruleset::build::memory_bytes;

/// Rulesets up to this size are built.
const MOST_MEMORY: u64 = 256 << 20;

pub(super) fn run(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else {
        return;
    };
    let environment = |name: &str| (name == "SET").then(|| "value".to_owned());
    let report = match config::parse("fuzz.yaml", text.to_owned(), &environment) {
        Err(report) => report,
        Ok(loaded) => {
            check(text, &loaded.warnings);
            match config::compile(&loaded) {
                Err(report) => check(text, &report),
                Ok(compiled) if memory_bytes(&compiled.rules) <= MOST_MEMORY => {
                    fixture::ruleset(compiled.rules);
                }
                Ok(_) => {}
            }
            config::lint(loaded, NOW)
        }
    };
    check(text, &report);
}

/// Checks that a report can be shown, and its problems found.
fn check(text: &str, report: &Report) {
    let lines: Vec<&str> = text
        .strip_prefix('\u{feff}')
        .unwrap_or(text)
        .split('\n')
        .collect();
    for problem in report.reported() {
        check_place(&lines, problem);
    }
    for audience in [Audience::Owner, Audience::Others] {
        report.render(Colour::Plain, audience);
    }
    let masked = report.masked_text();
    assert_eq!(
        masked.split('\n').count(),
        lines.len(),
        "lines keep their numbers"
    );
    serde_json::to_vec(report.reported()).expect("problems are JSON");
}

fn check_place(lines: &[&str], problem: &Problem) {
    let Some(place) = &problem.place else {
        assert_eq!(problem.path, "", "a key without a place: {problem:?}");
        return;
    };
    let exists = |line: usize, column: usize| {
        let line = line.checked_sub(1).and_then(|line| lines.get(line));
        line.is_some_and(|line| (1..=line.chars().count() + 1).contains(&column))
    };
    assert!(exists(place.line, place.column), "{problem:?}");
    assert!(exists(place.end_line, place.end_column), "{problem:?}");
    let is_forward = (place.line, place.column) <= (place.end_line, place.end_column);
    assert!(is_forward, "{problem:?}");
    assert!(!problem.message.is_empty(), "{problem:?}");
}
