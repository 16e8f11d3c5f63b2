//! Characters that look like spaces, or like nothing. YAML takes them for letters, and its errors
//! then explain nothing.

use super::diagnostic::{Code, Problem, SourceText};

/// The characters and their names.
const KNOWN: [(char, &str); 7] = [
    ('\u{a0}', "a no-break space (U+00A0)"),
    ('\u{2007}', "a figure space (U+2007)"),
    ('\u{2009}', "a thin space (U+2009)"),
    ('\u{200b}', "a zero-width space (U+200B)"),
    ('\u{202f}', "a narrow no-break space (U+202F)"),
    ('\u{3000}', "an ideographic space (U+3000)"),
    ('\u{feff}', "a byte order mark (U+FEFF)"),
];

/// Finds the first such character of each line before its text, or after `-`, `:` or `,`. Reports
/// show these beside other errors.
pub(super) fn find(source: &SourceText) -> Vec<Problem> {
    let mut at = 0;
    let mut problems = Vec::new();
    for line in source.text.split_inclusive('\n') {
        problems.extend(problem(source, line, at));
        at += line.len();
    }
    problems
}

fn problem(source: &SourceText, line: &str, start: usize) -> Option<Problem> {
    let mut before = ':';
    for (at, letter) in line.char_indices() {
        if before == '#' {
            return None;
        }
        let known = KNOWN.iter().find(|(known, _)| *known == letter);
        if let (Some((_, name)), '-' | ':' | ',' | '{' | '[') = (known, before) {
            let at = start + at;
            let help = "replace it by a space, which is the only one that YAML knows";
            let message = format!("{name} stands where a space is meant");
            return Some(Problem {
                place: Some(source.place(at..at + letter.len_utf8())),
                help: Some(help.to_owned()),
                ..Problem::error(Code::Syntax, message)
            });
        }
        if letter != ' ' {
            before = letter;
        }
    }
    None
}
