//! Characters that look like spaces, like quotes, or like nothing. YAML takes them for letters, and its
//! errors then explain nothing.

use super::diagnostic::{Code, Problem, SourceText};

/// The characters that look like spaces, and their names.
const KNOWN: [(char, &str); 7] = [
    ('\u{a0}', "a no-break space (U+00A0)"),
    ('\u{2007}', "a figure space (U+2007)"),
    ('\u{2009}', "a thin space (U+2009)"),
    ('\u{200b}', "a zero-width space (U+200B)"),
    ('\u{202f}', "a narrow no-break space (U+202F)"),
    ('\u{3000}', "an ideographic space (U+3000)"),
    ('\u{feff}', "a byte order mark (U+FEFF)"),
];
/// Quotes of typography.
const QUOTES: [char; 6] = [
    '\u{ab}', '\u{2018}', '\u{2019}', '\u{201c}', '\u{201d}', '\u{201e}',
];

/// Finds the first such character of each line: a space before its text, or after `-`, `:` or `,`, and
/// any if one of these problems is in the line. Reports show these beside other errors.
pub(super) fn find(source: &SourceText, others: &[Problem]) -> Vec<Problem> {
    let places = others.iter().filter_map(|other| other.place.as_ref());
    let mut starts: Vec<_> = places.map(|place| place.start).collect();
    starts.sort_unstable();
    let mut at = 0;
    let mut problems = Vec::new();
    for line in source.text.split_inclusive('\n') {
        let next = starts.partition_point(|start| *start < at);
        let end = at + line.len();
        let is_wrong = starts.get(next).is_some_and(|start| *start < end);
        problems.extend(problem(source, line, at, is_wrong));
        at = end;
    }
    problems
}

fn problem(source: &SourceText, line: &str, start: usize, mut is_wrong: bool) -> Option<Problem> {
    let mut before = ':';
    for (at, letter) in line.char_indices() {
        if before == '#' {
            return None;
        }
        let known = KNOWN.iter().find(|(known, _)| *known == letter);
        let is_first = matches!(before, '-' | ':' | ',' | '{' | '[');
        let help = match known {
            Some(_) if is_first => "replace it by a space, which is the only one that YAML knows",
            Some(_) if is_wrong => "remove it, or replace it by a space",
            None if is_wrong && QUOTES.contains(&letter) => "replace it by `\"` or `'`",
            _ => "",
        };
        if !help.is_empty() {
            let at = start + at;
            let name = known.map_or("a typographic quote", |(_, name)| name);
            let message = format!("expected plain text, found {name}");
            return Some(Problem {
                place: Some(source.place(at..at + letter.len_utf8())),
                help: Some(help.to_owned()),
                ..Problem::error(Code::Syntax, message)
            });
        }
        if letter != ' ' {
            before = letter;
        }
        // A text in quotes may well have such signs.
        is_wrong &= !matches!(letter, '"' | '\'');
    }
    None
}
