//! Reads Rust source as tokens, so that comments and strings may say anything. It knows no macros.

use std::fs;
use std::path::{Path, PathBuf};

/// Adds the Rust files below `dir`.
pub(crate) fn rust_files(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).expect("a source directory is readable") {
        let path = entry.expect("a source directory is readable").path();
        if path.is_dir() {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// A path in the source with its groups taken apart: `a::{b, c::d}` is `a::b` and `a::c::d`.
pub(crate) struct SourcePath {
    pub(crate) segments: Vec<String>,
    pub(crate) line: usize,
}

/// All paths in the source.
pub(crate) fn paths(tokens: &[Token]) -> Vec<SourcePath> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        if tokens[at].is_name() || tokens[at].text == "::" {
            let line = tokens[at].line;
            let mut ends = Vec::new();
            at = expand(tokens, at, &[], &mut ends);
            found.extend(
                ends.into_iter()
                    .map(|segments| SourcePath { segments, line }),
            );
        } else {
            at += 1;
        }
    }
    found
}

/// Reads one path at `at`, below `prefix`, and another name that it gets (`as`). Returns the index after
/// it.
pub(crate) fn expand(
    tokens: &[Token],
    mut at: usize,
    prefix: &[String],
    ends: &mut Vec<Vec<String>>,
) -> usize {
    let text = |at: usize| tokens.get(at).map_or("", |token| token.text.as_str());
    let mut path = prefix.to_vec();
    if text(at) == "::" {
        at += 1;
    }
    while tokens.get(at).is_some_and(Token::is_name) {
        path.push(tokens[at].text.clone());
        at += 1;
        if text(at) != "::" {
            ends.push(path);
            return if text(at) == "as" { at + 2 } else { at };
        }
        at += 1;
    }
    if text(at) != "{" {
        // A glob, or generic arguments: what was named so far counts.
        ends.push(path);
        return at + 1;
    }
    at += 1;
    while !["}", ""].contains(&text(at)) {
        at = if text(at) == "," {
            at + 1
        } else {
            expand(tokens, at, &path, ends)
        };
    }
    at + 1
}

/// A token, and the line where it begins.
pub(crate) struct Token {
    pub(crate) text: String,
    pub(crate) line: usize,
}

impl Token {
    fn is_name(&self) -> bool {
        self.text
            .starts_with(|c: char| c.is_alphabetic() || c == '_')
    }
}

/// Names, `::` and single characters; comments, strings, characters and white space are left out.
pub(crate) fn tokens(source: &str) -> Vec<Token> {
    let mut found = Vec::new();
    let mut rest = source;
    let mut line = 1;
    while let Some(first) = rest.chars().next() {
        let length = skipped(rest).unwrap_or_else(|| {
            let length = match first {
                ':' if rest.starts_with("::") => 2,
                _ if first.is_alphabetic() || first == '_' => name_length(rest),
                _ => first.len_utf8(),
            };
            found.push(Token {
                text: rest[..length].to_owned(),
                line,
            });
            length
        });
        line += rest[..length].matches('\n').count();
        rest = &rest[length..];
    }
    found
}

fn name_length(text: &str) -> usize {
    text.find(|c: char| !(c.is_alphanumeric() || c == '_'))
        .unwrap_or(text.len())
}

/// The length of what is no code at the start of `text`, if that is what stands there.
fn skipped(text: &str) -> Option<usize> {
    let end = |pattern: &str| {
        text.find(pattern)
            .map_or(text.len(), |at| at + pattern.len())
    };
    if text.starts_with(char::is_whitespace) {
        return Some(text.len() - text.trim_start().len());
    }
    if text.starts_with("//") {
        return Some(end("\n"));
    }
    if text.starts_with("/*") {
        return Some(end("*/"));
    }
    let after_prefix = text.strip_prefix('b').unwrap_or(text);
    let hashes = after_prefix
        .strip_prefix('r')
        .map(|raw| raw.len() - raw.trim_start_matches('#').len());
    if let Some(hashes) = hashes.filter(|hashes| after_prefix[1 + hashes..].starts_with('"')) {
        let opening = text.len() - after_prefix.len() + 2 + hashes;
        let closing = format!("\"{}", "#".repeat(hashes));
        let length = text[opening..]
            .find(&closing)
            .map_or(text.len(), |at| opening + at + closing.len());
        return Some(length);
    }
    if after_prefix.starts_with('"') {
        return Some(quoted_length(text, '"'));
    }
    // A lifetime is `'` and a name that no `'` follows.
    let inner = after_prefix.strip_prefix('\'')?;
    let is_lifetime = !inner.starts_with('\\') && inner.chars().nth(1) != Some('\'');
    (!is_lifetime).then(|| quoted_length(text, '\''))
}

/// The length of a literal up to the second, unescaped quote.
fn quoted_length(text: &str, quote: char) -> usize {
    let opening = text.find(quote).map_or(0, |at| at + 1);
    let mut escaped = false;
    for (at, c) in text[opening..].char_indices() {
        if c == quote && !escaped {
            return opening + at + 1;
        }
        escaped = c == '\\' && !escaped;
    }
    text.len()
}
