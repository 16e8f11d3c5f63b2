//! The operation of a GraphQL request: its kind and name, as in `mutation Login`.

use super::{Ambiguous, Values, json};
use crate::http::json_pointer::JsonPointer;
use crate::rules::query::parameters;

/// The operation in a JSON body with `query`, and `operationName` if it has several operations.
///
/// # Errors
/// It has several, or the name of none; it is a list of requests; or the URL has one, too.
pub(super) fn operation(query: Option<&str>, body: &[u8]) -> Values {
    let pointers =
        ["/query", "/operationName"].map(|text| JsonPointer::parse(text).expect("a pointer"));
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
    let name = name
        .first()
        .map(|name| &**name)
        .filter(|name| !name.is_empty());
    let all = operations(document)?;
    let mut named = all
        .iter()
        .filter(|(_, own)| name.is_none_or(|name| name == *own));
    match (named.next(), named.next()) {
        (Some((kind, name)), None) => {
            let joined = [kind, *name].join(&b" "[..]);
            Ok(vec![joined.trim_ascii().into()])
        }
        _ => Err(Ambiguous),
    }
}

/// The kinds and names of all operations of a document; anonymous ones have an empty name.
fn operations(document: &[u8]) -> Result<Vec<(&[u8], &[u8])>, Ambiguous> {
    let mut found: Vec<(&[u8], &[u8])> = Vec::new();
    let mut rest = document;
    while let Some((word, behind)) = token(rest)? {
        let (name, behind) = match word {
            b"{" => {
                found.push((b"query", b""));
                rest = skip_block(rest)?;
                continue;
            }
            b"query" | b"mutation" | b"subscription" | b"fragment" => match token(behind)? {
                Some((name, behind)) if is_name(name) => (name, behind),
                _ => (&b""[..], behind),
            },
            _ => return Err(Ambiguous),
        };
        if word != b"fragment" {
            found.push((word, name));
        }
        rest = skip_block(behind)?;
    }
    Ok(found)
}

/// Skips up to the end of the next block in braces.
fn skip_block(mut rest: &[u8]) -> Result<&[u8], Ambiguous> {
    let mut open: Vec<&[u8]> = Vec::new();
    while let Some((token, behind)) = token(rest)? {
        rest = behind;
        match token {
            b"{" | b"(" | b"[" => open.push(token),
            b"}" | b")" | b"]" => {
                open.pop().ok_or(Ambiguous)?;
                if open.is_empty() && token == b"}" {
                    return Ok(rest);
                }
            }
            _ => {}
        }
    }
    Err(Ambiguous)
}

fn is_name(token: &[u8]) -> bool {
    token[0].is_ascii_alphabetic() || token[0] == b'_'
}

/// The next token, and what is behind it: a name or number, a string, or another character.
fn token(mut rest: &[u8]) -> Result<Option<(&[u8], &[u8])>, Ambiguous> {
    loop {
        rest = rest.strip_prefix(b"\xef\xbb\xbf").unwrap_or(rest);
        match rest.first() {
            None => return Ok(None),
            Some(b' ' | b'\t' | b'\r' | b'\n' | b',') => rest = &rest[1..],
            Some(b'#') => {
                let end = memchr::memchr2(b'\r', b'\n', rest).unwrap_or(rest.len());
                rest = &rest[end..];
            }
            Some(b'"') => return Ok(Some(rest.split_at(string(rest)?))),
            Some(_) => {
                let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
                let length = rest.iter().position(|byte| !is_part(byte));
                return Ok(Some(rest.split_at(length.unwrap_or(rest.len()).max(1))));
            }
        }
    }
}

/// The length of the string at the beginning.
fn string(rest: &[u8]) -> Result<usize, Ambiguous> {
    let (quote, escape): (&[u8], &[u8]) = if rest.starts_with(b"\"\"\"") {
        (b"\"\"\"", b"\\\"\"\"")
    } else {
        (b"\"", b"\\")
    };
    let mut at = quote.len();
    while at < rest.len() {
        if rest[at..].starts_with(escape) {
            // A block knows one escape; elsewhere any character may be one.
            at += escape.len().max(2);
        } else if rest[at..].starts_with(quote) {
            return Ok(at + quote.len());
        } else {
            at += 1;
        }
    }
    Err(Ambiguous)
}
