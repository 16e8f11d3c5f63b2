//! The operation of a GraphQL request: its kind and name, as in `mutation Login`.

use std::sync::LazyLock;

use regex::Regex;

use super::{Ambiguous, Values, json};
use crate::http::json_pointer::JsonPointer;
use crate::rules::query::parameters;

/// Strings, in which braces and words mean nothing, and comments.
static SKIPPED: LazyLock<Regex> = LazyLock::new(|| {
    let skipped = r#"""""(\\"""|[^"]|"[^"]|""[^"])*"""|"(\\[^\r\n]|[^"\\\r\n])*"|#[^\r\n]*"#;
    Regex::new(skipped).expect("an expression")
});

/// The operation in a JSON body with `query`, and `operationName` if it has several operations.
///
/// # Errors
/// It has several, or the name of none; it is a list of requests; or the URL has one, too.
pub(super) fn operation(query: Option<&str>, body: &[u8]) -> Values {
    let pointers = ["/query", "/operationName"];
    let pointers = pointers.map(|text| JsonPointer::parse(text).expect("a pointer"));
    let found = json::find(body, &pointers.each_ref());
    let [document, name] = <[Values; 2]>::try_from(found).expect("one for each pointer");
    let is_batch = body.trim_ascii_start().first() == Some(&b'[');
    let mut in_url = ["query", "operationName"].into_iter();
    if is_batch || in_url.any(|name| parameters(query, name).next().is_some()) {
        return Err(Ambiguous);
    }
    let (document, name) = (document?, name?);
    let Some(document) = document.first() else {
        return Ok(Vec::new());
    };
    let name = name.first().filter(|name| !name.is_empty());
    let mut all = operations(&String::from_utf8_lossy(document))?;
    all.retain(|(_, own)| name.is_none_or(|name| **name == *own.as_bytes()));
    match all.as_slice() {
        [(kind, name)] => Ok(vec![format!("{kind} {name}").trim_end().as_bytes().into()]),
        _ => Err(Ambiguous),
    }
}

/// The kinds and names of all operations of a document; anonymous ones have an empty name.
fn operations(document: &str) -> Result<Vec<(String, String)>, Ambiguous> {
    let (mut all, mut head, mut open) = (Vec::new(), String::new(), 0_usize);
    for letter in SKIPPED.replace_all(document, " ").chars() {
        match letter {
            '{' | '(' | '[' => {
                if open == 0 && letter == '{' {
                    all.extend(definition(&std::mem::take(&mut head))?);
                }
                open += 1;
            }
            '}' | ')' | ']' => open = open.checked_sub(1).ok_or(Ambiguous)?,
            '"' => return Err(Ambiguous),
            _ if open == 0 => head.push(letter),
            _ => {}
        }
    }
    let is_whole = open == 0 && words(&head).next().is_none();
    is_whole.then_some(all).ok_or(Ambiguous)
}

/// The operation that begins so, without what is in brackets; `None` for a fragment.
fn definition(head: &str) -> Result<Option<(String, String)>, Ambiguous> {
    let mut words = words(head);
    let (kind, name) = (words.next().unwrap_or("query"), words.next());
    let name = name
        .and_then(|name| name.split('@').next())
        .unwrap_or_default();
    match kind.split('@').next() {
        Some(kind @ ("query" | "mutation" | "subscription")) => {
            Ok(Some((kind.into(), name.into())))
        }
        Some("fragment") => Ok(None),
        _ => Err(Ambiguous),
    }
}

fn words(head: &str) -> impl Iterator<Item = &str> {
    let is_space = |letter: char| letter.is_whitespace() || matches!(letter, ',' | '\u{feff}');
    head.split(is_space).filter(|word| !word.is_empty())
}
