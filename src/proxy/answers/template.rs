//! Bodies with placeholders: `{{retry_after}}` in a body of one's own is replaced by a value of the refused request,
//! escaped for what the body is, so that nothing that a client sent can become markup or break a document.

use std::borrow::Cow;
use std::fmt::Write;

use super::negotiate::ResponseFormat;

/// The most characters that a value puts into a body: a client chooses how long its path is.
const MAX_VALUE_CHARS: usize = 256;

const OPEN: &str = "{{";
const CLOSE: &str = "}}";

/// A body with placeholders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    pieces: Vec<Piece>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(Box<str>),
    Value(Placeholder),
}

/// What can stand between the braces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Placeholder {
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
    Route,
}

/// Why a text is no template.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// Nothing ends a placeholder.
    #[error("`{{{{` without `}}}}`")]
    Unclosed,
    /// No placeholder has this name.
    #[error("there is no placeholder `{{{{{0}}}}}`")]
    Unknown(String),
}

/// How values are written in a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Escape {
    /// As the inside of a JSON string, which is safe inside a script too.
    Json,
    /// As text or as an attribute in quotes, in HTML or XML.
    Html,
    /// As they are, without control characters.
    Plain,
}

/// A value that a placeholder stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PlaceholderValue<'a> {
    Text(Cow<'a, str>),
    /// `None` where there is no such number: `null` in JSON, nothing elsewhere.
    Number(Option<u64>),
}

impl Template {
    /// What the placeholders are called.
    pub const NAMES: [&'static str; 13] = [
        "policy",
        "policies",
        "quota",
        "retry_after",
        "status",
        "title",
        "detail",
        "docs_url",
        "client_ip",
        "method",
        "host",
        "path",
        "route",
    ];

    /// Reads a body; `{{{{` stands for `{{` itself.
    ///
    /// # Errors
    /// Names what is no placeholder.
    pub fn parse(text: &str) -> Result<Self, TemplateError> {
        let mut pieces = Vec::new();
        let mut written = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once(OPEN) {
            written.push_str(before);
            if let Some(after) = after.strip_prefix(OPEN) {
                written.push_str(OPEN);
                rest = after;
                continue;
            }
            let (name, after) = after.split_once(CLOSE).ok_or(TemplateError::Unclosed)?;
            let name = name.trim();
            let value = Placeholder::from_name(name)
                .ok_or_else(|| TemplateError::Unknown(name.to_owned()))?;
            if !written.is_empty() {
                pieces.push(Piece::Text(std::mem::take(&mut written).into()));
            }
            pieces.push(Piece::Value(value));
            rest = after;
        }
        written.push_str(rest);
        pieces.push(Piece::Text(written.into()));
        Ok(Template { pieces })
    }

    /// The body, with `value` of each placeholder.
    pub(crate) fn render<'a>(
        &self,
        escape: Escape,
        value: impl Fn(Placeholder) -> PlaceholderValue<'a>,
    ) -> String {
        let mut body = String::new();
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => body.push_str(text),
                Piece::Value(placeholder) => escape.write(&value(*placeholder), &mut body),
            }
        }
        body
    }
}

impl Placeholder {
    const ALL: [Self; Template::NAMES.len()] = [
        Self::Policy,
        Self::Policies,
        Self::Quota,
        Self::RetryAfter,
        Self::Status,
        Self::Title,
        Self::Detail,
        Self::DocsUrl,
        Self::ClientIp,
        Self::Method,
        Self::Host,
        Self::Path,
        Self::Route,
    ];

    fn from_name(name: &str) -> Option<Self> {
        let place = Template::NAMES.iter().position(|known| *known == name)?;
        Some(Self::ALL[place])
    }
}

impl Escape {
    /// How values are written in a body of this form.
    pub(crate) fn of(format: ResponseFormat) -> Self {
        match format {
            ResponseFormat::Problem | ResponseFormat::Json => Self::Json,
            ResponseFormat::Plain => Self::Plain,
            ResponseFormat::Html => Self::Html,
        }
    }

    /// How values are written in a body of this media type.
    pub(crate) fn of_media_type(media_type: &str) -> Self {
        let media_type = media_type.to_ascii_lowercase();
        let is = |names: [&str; 2]| names.iter().any(|name| media_type.contains(name));
        match () {
            () if is(["json", "javascript"]) => Self::Json,
            () if is(["html", "xml"]) => Self::Html,
            () => Self::Plain,
        }
    }

    fn write(self, value: &PlaceholderValue<'_>, body: &mut String) {
        match value {
            PlaceholderValue::Number(Some(number)) => body.push_str(&number.to_string()),
            PlaceholderValue::Number(None) if self == Self::Json => body.push_str("null"),
            PlaceholderValue::Number(None) => {}
            PlaceholderValue::Text(text) => text
                .chars()
                .take(MAX_VALUE_CHARS)
                .for_each(|c| self.push(c, body)),
        }
    }

    fn push(self, c: char, body: &mut String) {
        match (self, c) {
            (Self::Json, '"' | '\\' | '<' | '>' | '&' | '\'' | '\u{2028}' | '\u{2029}') => {
                code_point(c, body);
            }
            (Self::Json, c) if c.is_control() => code_point(c, body),
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

/// The characters that are escaped in JSON are all of the basic plane.
fn code_point(c: char, body: &mut String) {
    let _ = write!(body, "\\u{:04x}", u32::from(c));
}

/// `text` as HTML.
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
        template.render(escape, |placeholder| match placeholder {
            Placeholder::RetryAfter => PlaceholderValue::Number(Some(7)),
            Placeholder::Status => PlaceholderValue::Number(None),
            _ => PlaceholderValue::Text(path.to_owned().into()),
        })
    }

    #[test]
    fn values_stand_where_they_are_named() {
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
    fn what_is_no_template_is_named() {
        assert_eq!(Template::parse("a {{path"), Err(TemplateError::Unclosed));
        let unknown = Template::parse("{{pth}}").expect_err("no such value");
        assert_eq!(unknown.to_string(), "there is no placeholder `{{pth}}`");
    }

    #[test]
    fn the_type_of_a_body_says_how_values_are_written() {
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
        let long = "é".repeat(MAX_VALUE_CHARS + 1);
        assert_eq!(
            rendered("{{path}}", Escape::Plain, &long),
            "é".repeat(MAX_VALUE_CHARS)
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
        fn any_text_is_a_template_or_not(text in "[{}a-z ]{0,30}") {
            let _ = Template::parse(&text);
        }
    }
}
