//! The content type of a body, as far as readers agree on it.

use http::header::{CONTENT_ENCODING, CONTENT_TYPE};

use super::{Ambiguous, Values, form, multipart};
use crate::http::headers::Headers;
use crate::rules::Lookup;

/// A form, or something else.
pub(super) enum ContentType<'a> {
    /// `application/x-www-form-urlencoded`.
    Urlencoded,
    /// `multipart/form-data` with this boundary.
    Multipart(&'a str),
    /// Anything else, which no reader takes for a form.
    Other,
}

impl<'a> ContentType<'a> {
    /// # Errors
    /// Readers may disagree: several types, another charset than UTF-8, an odd boundary, a body that is
    /// compressed.
    pub(super) fn of(headers: &'a Headers) -> Result<Self, Ambiguous> {
        let mut encodings = headers.get_all(CONTENT_ENCODING);
        if !encodings.all(|encoding| encoding.eq_ignore_ascii_case(b"identity")) {
            return Err(Ambiguous);
        }
        let text = match Lookup::among(headers.get_all(CONTENT_TYPE)) {
            Lookup::Missing => return Ok(Self::Other),
            Lookup::Several => return Err(Ambiguous),
            Lookup::One(text) => std::str::from_utf8(text).map_err(|_| Ambiguous)?,
        };
        let (essence, parameters) = text.split_once(';').unwrap_or((text, ""));
        if text.contains(',') {
            return Err(Ambiguous);
        }
        charset(parameters)?;
        let essence = essence.trim_ascii();
        let is = |name: &str| essence.eq_ignore_ascii_case(name);
        if is("application/x-www-form-urlencoded") {
            return Ok(Self::Urlencoded);
        }
        if is("multipart/form-data") {
            let boundary = parameter(parameters, "boundary")?.ok_or(Ambiguous)?;
            return Ok(Self::Multipart(boundary));
        }
        let text = text.to_ascii_lowercase();
        let may_be_form = text.contains("form-urlencoded") || text.contains("multipart/");
        if may_be_form {
            Err(Ambiguous)
        } else {
            Ok(Self::Other)
        }
    }

    /// The values of a field of the form.
    pub(super) fn form(&self, body: &[u8], name: &str) -> Values {
        match self {
            Self::Urlencoded => form::values(body, name),
            Self::Multipart(boundary) => multipart::values(body, boundary, name),
            Self::Other => Ok(Vec::new()),
        }
    }
}

/// Checks that the charset is UTF-8, or a part of it.
pub(super) fn charset(parameters: &str) -> Result<(), Ambiguous> {
    let is_utf8 = |charset: &str| {
        let known = ["utf-8", "utf8", "us-ascii"];
        known
            .iter()
            .any(|known| charset.eq_ignore_ascii_case(known))
    };
    match parameter(parameters, "charset")? {
        Some(charset) if !is_utf8(charset) => Err(Ambiguous),
        _ => Ok(()),
    }
}

/// The value of a parameter, if it is a token, or one in quotes.
fn parameter<'a>(parameters: &'a str, name: &str) -> Result<Option<&'a str>, Ambiguous> {
    // As no reader writes it: `charset*`, or a value in quotes with a semicolon.
    let is_mentioned = parameters.to_ascii_lowercase().matches(name).count();
    let mut found = parameters.split(';').filter_map(|parameter| {
        let (own, value) = parameter.split_once('=')?;
        own.trim_ascii()
            .eq_ignore_ascii_case(name)
            .then_some(value.trim_ascii())
    });
    let Some(value) = found.next() else {
        return if is_mentioned == 0 {
            Ok(None)
        } else {
            Err(Ambiguous)
        };
    };
    let quoted = value
        .strip_prefix('"')
        .and_then(|value| value.strip_suffix('"'));
    let value = quoted.unwrap_or(value);
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"'()+_-./:=?".contains(&byte);
    let is_whole =
        is_mentioned == 1 && (1..=70).contains(&value.len()) && value.bytes().all(is_plain);
    if is_whole {
        Ok(Some(value))
    } else {
        Err(Ambiguous)
    }
}
