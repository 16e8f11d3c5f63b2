//! Fields of a form in parts (`multipart/form-data`, RFC 7578).
//!
//! Parsers are lenient each in their own way, so this one takes what browsers, curl and HTTP
//! libraries write, and nothing else.

use memchr::memmem;

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

struct Disposition<'a> {
    name: &'a str,
    is_file: bool,
}

/// Reads the fields of a part.
fn disposition(head: &str) -> Result<Disposition<'_>, Ambiguous> {
    let mut disposition = None;
    for line in head.split("\r\n") {
        let (field, value) = line.split_once(':').ok_or(Ambiguous)?;
        let is = |name: &str| field.eq_ignore_ascii_case(name);
        let is_token = field
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        if field.is_empty() || !is_token || line.contains(['\r', '\n', '\0']) {
            return Err(Ambiguous);
        }
        if is("content-disposition") {
            if disposition.replace(read_disposition(value)?).is_some() {
                return Err(Ambiguous);
            }
        } else if is("content-type") {
            charset(value)?;
        } else if is("content-transfer-encoding") && value.trim_ascii() != "binary" {
            return Err(Ambiguous);
        }
    }
    disposition.ok_or(Ambiguous)
}

/// Reads `form-data; name="a"; filename="b"`. Names have no quotes, no escapes, and one encoding.
fn read_disposition(value: &str) -> Result<Disposition<'_>, Ambiguous> {
    let value = value.trim_ascii();
    let mut rest = value.strip_prefix("form-data").ok_or(Ambiguous)?;
    let (mut name, mut file) = (None, None);
    while !rest.is_empty() {
        let parameter = rest.strip_prefix(';').ok_or(Ambiguous)?.trim_ascii_start();
        let (key, value) = parameter.split_once("=\"").ok_or(Ambiguous)?;
        let (value, behind) = value.split_once('"').ok_or(Ambiguous)?;
        let known = match key {
            "name" => &mut name,
            "filename" => &mut file,
            _ => return Err(Ambiguous),
        };
        if value.contains('\\') || known.replace(value).is_some() {
            return Err(Ambiguous);
        }
        rest = behind;
    }
    Ok(Disposition {
        name: name.ok_or(Ambiguous)?,
        is_file: file.is_some(),
    })
}
