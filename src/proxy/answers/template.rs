//! Configured texts with placeholders, such as `{{retry_after}}` in bodies. Values are escaped for
//! the body's type, so that a client can neither add markup nor break a document.

use std::borrow::Cow;
use std::fmt::Write;

use http::{HeaderName, StatusCode};
use strum::{EnumString, IntoStaticStr, VariantNames};

use super::negotiate::ResponseFormat;
use crate::http::headers::ascii;
use crate::nearest;
use crate::rules::Head;

/// Most characters of a value: a client chooses the length of its path.
const MAX_VALUE: usize = 256;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

const BODY: Signs = Signs {
    open: "{{",
    close: "}}",
    unclosed: "write `{{{{` for two braces that are no placeholder",
};

/// Text with placeholders: those of bodies, or `P`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template<P = Placeholder> {
    pieces: Vec<Piece<P>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece<P> {
    Text(Box<str>),
    Value(P),
}

/// Names between the braces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, EnumString, IntoStaticStr, VariantNames)]
#[strum(const_into_str, serialize_all = "snake_case")]
pub enum Placeholder {
    Policy,
    Policies,
    Quota,
    RetryAfter,
    Status,
    Title,
    Detail,
    DocsUrl,
    ClientIp,
    Method,
    Host,
    Path,
    RequestId,
    Route,
}

/// Signs around names.
#[derive(Debug)]
pub(super) struct Signs {
    pub open: &'static str,
    pub close: &'static str,
    /// Advice for a name without its end.
    pub unclosed: &'static str,
}

/// Error in a text with placeholders.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct TemplateError {
    message: String,
    /// Advice.
    pub help: String,
}

/// Escaping of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Escape {
    /// For the inside of a JSON string, also within an HTML script.
    Json,
    /// For text or a quoted attribute, in HTML or XML.
    Html,
    /// Nothing but control characters, which become spaces.
    Plain,
}

impl TemplateError {
    pub(super) fn new(message: impl Into<String>, help: impl Into<String>) -> Self {
        let (message, help) = (message.into(), help.into());
        Self { message, help }
    }
}

impl Placeholder {
    /// The value, if it is one of the request; else empty.
    pub(super) fn of_request<'a>(self, head: &Head<'a>, route: &'a str) -> Cow<'a, str> {
        Cow::Borrowed(match self {
            Self::ClientIp => return head.client_ip.to_string().into(),
            Self::Method => head.method.as_str(),
            Self::Host => head.host,
            Self::Path => head.path,
            Self::RequestId => head
                .headers
                .get(REQUEST_ID)
                .and_then(ascii)
                .unwrap_or_default(),
            Self::Route => route,
            _ => "",
        })
    }
}

impl Template {
    /// The placeholders' names.
    pub const NAMES: &'static [&'static str] = Placeholder::VARIANTS;

    /// Parses a body; `{{{{` stands for `{{` itself.
    ///
    /// # Errors
    /// An unclosed placeholder, or an unknown name.
    pub fn parse(text: &str) -> Result<Self, TemplateError> {
        Self::parse_among(text, Self::NAMES)
    }

    /// Parses a text that may have these placeholders only.
    ///
    /// # Errors
    /// As [`Self::parse`].
    pub(super) fn parse_among(text: &str, known: &[&str]) -> Result<Self, TemplateError> {
        Self::parse_with(text, &BODY, known, |name, _| {
            let name = known.iter().find(|known| **known == name.trim())?;
            name.parse().ok()
        })
    }

    /// The names of its placeholders.
    pub fn placeholders(&self) -> impl Iterator<Item = &'static str> {
        self.values().map(|placeholder| placeholder.into_str())
    }

    /// Writes the body, with the numbers of the response if it has them, and the `text` of each other
    /// placeholder.
    pub(crate) fn render<'a>(
        &self,
        escape: Escape,
        status: Option<StatusCode>,
        retry_after: Option<u64>,
        text: impl Fn(Placeholder) -> Cow<'a, str>,
    ) -> String {
        let status = status.map(|status| status.as_u16().into());
        self.write(|placeholder, body| match placeholder {
            Placeholder::Status => escape.write_number(status, body),
            Placeholder::RetryAfter => escape.write_number(retry_after, body),
            other => escape.write_text(&text(*other), body),
        })
    }
}

impl<P> Template<P> {
    /// Parses a text with names between these signs, of which the first twice stands for itself.
    /// `read` gets one of the `known` names, and the text before it.
    ///
    /// # Errors
    /// An unclosed placeholder, or a name that `read` does not know.
    pub(super) fn parse_with(
        text: &str,
        signs: &Signs,
        known: &[&str],
        read: impl Fn(&str, &str) -> Option<P>,
    ) -> Result<Self, TemplateError> {
        let Signs { open, close, .. } = *signs;
        let mut pieces = Vec::new();
        let mut written = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once(open) {
            written.push_str(before);
            if let Some(after) = after.strip_prefix(open) {
                written.push_str(open);
                rest = after;
                continue;
            }
            let (name, after) = after.split_once(close).ok_or_else(|| {
                TemplateError::new(format!("`{open}` without `{close}`"), signs.unclosed)
            })?;
            let start = text.len() - (name.len() + close.len() + after.len());
            let value = read(name, &text[..start - open.len()]).ok_or_else(|| {
                let name = name.trim();
                let message = format!("there is no placeholder `{open}{name}{close}`");
                TemplateError::new(message, nearest::advice(name, known, "known placeholders"))
            });
            if !written.is_empty() {
                pieces.push(Piece::Text(std::mem::take(&mut written).into()));
            }
            pieces.push(Piece::Value(value?));
            rest = after;
        }
        written.push_str(rest);
        pieces.push(Piece::Text(written.into()));
        Ok(Template { pieces })
    }

    /// Its placeholders.
    pub(super) fn values(&self) -> impl Iterator<Item = &P> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Text(_) => None,
            Piece::Value(placeholder) => Some(placeholder),
        })
    }

    /// Writes the text, of which `value` writes the placeholders.
    pub(super) fn write(&self, value: impl Fn(&P, &mut String)) -> String {
        let mut written = String::new();
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => written.push_str(text),
                Piece::Value(placeholder) => value(placeholder, &mut written),
            }
        }
        written
    }
}

impl Escape {
    /// Escaping for a body of this format.
    pub(crate) fn of(format: ResponseFormat) -> Self {
        match format {
            ResponseFormat::Plain => Self::Plain,
            ResponseFormat::Html => Self::Html,
            _ => Self::Json,
        }
    }

    /// Escaping for a body of this media type.
    pub(crate) fn of_media_type(media_type: &str) -> Self {
        let media_type = media_type.to_ascii_lowercase();
        let is = |names: [&str; 2]| names.iter().any(|name| media_type.contains(name));
        match () {
            () if is(["json", "javascript"]) => Self::Json,
            () if is(["html", "xml"]) => Self::Html,
            () => Self::Plain,
        }
    }

    /// No number is `null` in JSON, and nothing elsewhere.
    fn write_number(self, number: Option<u64>, body: &mut String) {
        match number {
            Some(number) => body.push_str(&number.to_string()),
            None if self == Self::Json => body.push_str("null"),
            None => {}
        }
    }

    fn write_text(self, text: &str, body: &mut String) {
        let letters = text.chars().take(MAX_VALUE);
        letters.for_each(|c| self.push(c, body));
    }

    fn push(self, c: char, body: &mut String) {
        match (self, c) {
            (Self::Json, '"' | '\\' | '<' | '>' | '&' | '\'' | '\u{2028}' | '\u{2029}') => {
                push_code_point(c, body);
            }
            (Self::Json, c) if c.is_control() => push_code_point(c, body),
            (Self::Html, '&') => body.push_str("&amp;"),
            (Self::Html, '<') => body.push_str("&lt;"),
            (Self::Html, '>') => body.push_str("&gt;"),
            (Self::Html, '"') => body.push_str("&quot;"),
            (Self::Html, '\'') => body.push_str("&#39;"),
            (Self::Html | Self::Plain, c) if c.is_control() => body.push(' '),
            (_, c) => body.push(c),
        }
    }
}

/// All characters escaped in JSON are in the basic plane, so that four digits suffice.
fn push_code_point(c: char, body: &mut String) {
    let _ = write!(body, "\\u{:04x}", u32::from(c));
}

/// Escapes `text` for HTML.
pub(crate) fn escape_html(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    text.chars()
        .for_each(|c| Escape::Html.push(c, &mut escaped));
    escaped
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rendered(template: &str, escape: Escape, path: &str) -> String {
        let template = Template::parse(template).expect("a template");
        template.render(escape, None, Some(7), |_| path.into())
    }

    #[test]
    fn placeholders_are_replaced_by_values() {
        let body = rendered("{{ path }}:{{retry_after}}s {}", Escape::Plain, "/a");
        assert_eq!(body, "/a:7s {}");
        let json = "{\"a\":{\"b\":{{retry_after}}}, \"c\":{{status}}}";
        assert_eq!(
            rendered(json, Escape::Json, ""),
            "{\"a\":{\"b\":7}, \"c\":null}"
        );
        assert_eq!(rendered("{{{{path}}", Escape::Plain, "/a"), "{{path}}");
    }

    #[test]
    fn errors_name_the_placeholder() {
        let unclosed = Template::parse("a {{path").expect_err("no end");
        assert_eq!(unclosed.to_string(), "`{{` without `}}`");
        let unknown = Template::parse("{{pth}}").expect_err("no such value");
        assert_eq!(unknown.to_string(), "there is no placeholder `{{pth}}`");
    }

    #[test]
    fn the_media_type_decides_the_escaping() {
        for (media_type, escape) in [
            ("application/vnd.api+json", Escape::Json),
            ("text/JavaScript", Escape::Json),
            ("application/xhtml+xml", Escape::Html),
            ("image/svg+xml", Escape::Html),
            ("text/csv", Escape::Plain),
        ] {
            assert_eq!(Escape::of_media_type(media_type), escape, "{media_type}");
        }
    }

    #[test]
    fn a_long_value_is_cut() {
        let long = "é".repeat(MAX_VALUE + 1);
        assert_eq!(
            rendered("{{path}}", Escape::Plain, &long),
            "é".repeat(MAX_VALUE)
        );
    }

    proptest! {
        #[test]
        fn no_value_leaves_its_string_in_json(value in "\\PC{0,40}|[\"\\\\\u{0}-\u{20}<>&']{0,20}") {
            let body = rendered("{\"a\":\"{{path}}\"}", Escape::Json, &value);
            let read: serde_json::Value = serde_json::from_str(&body).expect("JSON");
            prop_assert_eq!(&read["a"], &value);
            prop_assert!(!body.contains(['<', '>', '&']));
        }

        #[test]
        fn no_value_is_markup_in_html(value in "\\PC{0,40}|[<>&\"'a ]{0,20}") {
            let body = rendered("<p title=\"{{path}}\">", Escape::Html, &value);
            let inside = &body["<p title=\"".len()..body.len() - "\">".len()];
            prop_assert!(!inside.contains(['<', '>', '"', '\'']));
        }

        #[test]
        fn no_value_starts_a_line_in_plain_text(value in "[\u{0}-\u{7f}\u{85}]{0,40}") {
            prop_assert!(!rendered("{{path}}", Escape::Plain, &value).chars().any(char::is_control));
        }

        #[test]
        fn parsing_never_panics(text in "[{}a-z ]{0,30}") {
            let _ = Template::parse(&text);
        }
    }
}
