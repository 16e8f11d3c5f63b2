//! Syntax errors in words for users: the parser's message without its position, and advice for
//! known causes.

use std::ops::Range;

use serde_yaml::budget::BudgetBreach;
use serde_yaml::{Error, Location};

use crate::config::diagnostic::{Code, Problem, SourceText};
use crate::config::schema::KEYS;
use crate::text_table;

/// Parts of the parser's messages, with advice.
const ADVICE: &str = include_str!("../tables/syntax_errors.txt");

/// A syntax error as a problem. Its message has nothing of the file but single signs.
pub(super) fn problem(error: &Error, source: &SourceText, file: Range<usize>) -> Problem {
    let (message, help) = explain(error);
    let text = &source.text[file.clone()];
    let number = error.location().map(|location| location.line() as usize);
    let line = |back: usize| text.lines().nth(number?.checked_sub(back)?);
    let bare = line(1).and_then(|line| bare_address(line).or_else(|| bare_variable(line)));
    let mut lines = [1, 2].into_iter().filter_map(line);
    let close = || lines.find_map(missing_space);
    let help = bare.or_else(close).unwrap_or(help);
    Problem {
        place: error.location().map(|location| {
            let Range { start, end } = bytes(&location, text);
            source.place(file.start + start..file.start + end)
        }),
        help: (!help.is_empty()).then_some(help),
        ..Problem::error(Code::Syntax, message)
    }
}

/// The message, and advice, which may be empty.
fn explain(error: &Error) -> (String, String) {
    let text = error.to_string();
    let (message, help) = match innermost(error) {
        Error::MultipleDocuments { .. } => two_documents(),
        Error::Budget { breach, .. } => match breach {
            BudgetBreach::Documents { .. } => two_documents(),
            BudgetBreach::Depth { .. } => (
                "lists and mappings are nested too deep",
                "no key needs more than eight levels",
            ),
            _ => (
                "it is too large: at most a million keys and values",
                "write less, or use fewer aliases",
            ),
        },
        Error::AliasReplayLimitExceeded { .. } | Error::AliasExpansionLimitExceeded { .. } => (
            "aliases stand for too much",
            "a file may have 20,000 values by aliases, and 8 more for each of its bytes, up to 500,000 in all files",
        ),
        Error::RecursiveReferencesRequireWeakTypes { .. } => {
            ("an alias within what it stands for", "remove the alias")
        }
        Error::UnsupportedTag { .. } => (
            "a tag",
            "remove it, or put a text that starts with `!` in quotes",
        ),
        Error::MergeValueNotMapOrSeqOfMaps { .. } => {
            ("`<<` takes a mapping or a list of mappings", "")
        }
        _ => {
            let known = text_table::rows(ADVICE).find(|[fragment, _]| text.contains(fragment));
            let message = text.split(" at line ").next().unwrap_or(&text);
            (message, known.map_or("", |[_, help]| help))
        }
    };
    (message.to_owned(), help.to_owned())
}

/// The most brackets of a line that are looked at.
const MOST_HOSTS: usize = 100;

/// Advice for an unquoted IPv6 address with a port: YAML reads its bracket as the start of a list.
fn bare_address(line: &str) -> Option<String> {
    let is_host = |text: &str| {
        let letters = |c: char| c.is_ascii_hexdigit() || c == ':' || c == '.';
        text.matches(':').count() >= 2 && text.chars().all(letters)
    };
    let hosts = line.match_indices("]:").filter_map(|(end, _)| {
        let start = line[..end].rfind('[')?;
        Some((start, end))
    });
    let address = hosts.take(MOST_HOSTS).find_map(|(start, end)| {
        let (host, rest) = (&line[start + 1..end], &line[end + 2..]);
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let is_quoted = line[..start].ends_with(['"', '\'']) || !is_host(host);
        (!is_quoted && digits > 0).then(|| format!("[{host}]:{}", &rest[..digits]))
    })?;
    Some(format!("put the address in quotes: `\"{address}\"`"))
}

/// Advice for an unquoted `${NAME}` between brackets: YAML reads its brace as the start of a mapping.
/// The text behind the brace may be a secret, and isn't shown.
fn bare_variable(line: &str) -> Option<String> {
    let is_bare = |(at, _): (usize, &str)| {
        let quotes = |quote| line[..at].matches(quote).count();
        line[..at].contains(['{', '[']) && quotes('"') % 2 == 0 && quotes('\'') % 2 == 0
    };
    let advice = "within `{ }` and `[ ]`, put a text with a variable in quotes: `\"${NAME}\"`";
    let mut variables = line.match_indices("${").take(MOST_HOSTS);
    variables.any(is_bare).then(|| advice.to_owned())
}

/// Advice for a key without a space behind its colon, which YAML takes for a text.
pub(crate) fn missing_space(line: &str) -> Option<String> {
    let (key, rest) = line.trim_start_matches([' ', '-']).split_once(':')?;
    let is_missing = !rest.is_empty() && !rest.starts_with([' ', '\t', '\r']);
    let is_key = is_missing && KEYS.iter().any(|known| known == key);
    is_key.then(|| format!("put a space behind the colon: `{key}: ..`"))
}

fn two_documents() -> (&'static str, &'static str) {
    let help = "a file holds one: remove what starts with `---`";
    ("a second document", help)
}

fn innermost(error: &Error) -> &Error {
    match error {
        Error::AliasError { error, .. } => innermost(error),
        error => error.without_snippet(),
    }
}

/// The byte range of a location, from its line and column if the parser gives no bytes.
fn bytes(location: &Location, text: &str) -> Range<usize> {
    let span = location.span();
    if let (Some(start), Some(length)) = (span.byte_offset(), span.byte_len())
        && (start > 0 || location.line() == 1)
    {
        return start as usize..(start + length) as usize;
    }
    let before = (location.line() as usize).saturating_sub(1);
    let start: usize = text.split_inclusive('\n').take(before).map(str::len).sum();
    let column = (location.column() as usize).saturating_sub(1);
    let line = text[start..].lines().next().unwrap_or_default();
    let within: usize = line.chars().take(column).map(char::len_utf8).sum();
    start + within..start + within
}
