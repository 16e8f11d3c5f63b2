//! Fields of a form in parts (`multipart/form-data`, RFC 7578).
//!
//! Parsers are lenient each in their own way, so this one takes what browsers, curl and HTTP
//! libraries write, and nothing else.

use std::sync::LazyLock;

use memchr::memmem;
use regex::Regex;

use super::content_type::charset;
use super::form::may_be;
use super::{Ambiguous, Values};

/// The values of all fields `name`, in order. A file of that name is ambiguous.
///
/// # Errors
/// Readers may find other parts, or another name.
pub(super) fn values(body: &[u8], boundary: &str, name: &str) -> Values {
    let delimiter = format!("--{boundary}");
    let starts: Vec<_> = memmem::find_iter(body, delimiter.as_bytes()).collect();
    let (last, others) = starts.split_last().ok_or(Ambiguous)?;
    let end = &body[last + delimiter.len()..];
    if starts[0] != 0 || !matches!(end, b"--" | b"--\r\n") {
        return Err(Ambiguous);
    }
    let mut values: Vec<Box<[u8]>> = Vec::new();
    for (start, next) in others.iter().zip(&starts[1..]) {
        let part = &body[start + delimiter.len()..*next];
        let part = part
            .strip_prefix(b"\r\n")
            .and_then(|part| part.strip_suffix(b"\r\n"));
        let part = part.ok_or(Ambiguous)?;
        let head_end = memmem::find(part, b"\r\n\r\n").ok_or(Ambiguous)?;
        let head = std::str::from_utf8(&part[..head_end]).map_err(|_| Ambiguous)?;
        let disposition = disposition(head)?;
        if !may_be(disposition.name, name) {
            continue;
        }
        if disposition.name != name || disposition.is_file {
            return Err(Ambiguous);
        }
        values.push(part[head_end + 4..].into());
    }
    Ok(values)
}

/// Names have no quotes, no escapes, and one encoding.
static DISPOSITION: LazyLock<Regex> = LazyLock::new(|| {
    let text = r#"^ ?form-data; ?name="([^"\\\r\n\x00]*)"(; ?filename="[^"\\\r\n\x00]*")?$"#;
    Regex::new(text).expect("an expression")
});

struct Disposition<'a> {
    name: &'a str,
    is_file: bool,
}

/// Reads the fields of a part.
fn disposition(head: &str) -> Result<Disposition<'_>, Ambiguous> {
    let mut disposition = None;
    for line in head.split("\r\n") {
        let (field, value) = line.split_once(':').ok_or(Ambiguous)?;
        let is_token = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        if field.is_empty() || !field.bytes().all(is_token) {
            return Err(Ambiguous);
        }
        match &*field.to_ascii_lowercase() {
            "content-disposition" => {
                let read = DISPOSITION.captures(value).ok_or(Ambiguous)?;
                let name = read.get(1).map_or("", |name| name.as_str());
                let is_file = read.get(2).is_some();
                if disposition.replace(Disposition { name, is_file }).is_some() {
                    return Err(Ambiguous);
                }
            }
            "content-type" => charset(value)?,
            "content-transfer-encoding" if value.trim_ascii() != "binary" => return Err(Ambiguous),
            _ => {}
        }
    }
    disposition.ok_or(Ambiguous)
}
