//! Path patterns of routes, and prefixes to strip.

use derive_more::{Deref, Display};

use super::{Failure, TextValue, failure, text_value};
use crate::http::path::{self, EncodedSlashes};
use crate::rules::{PathPattern, Segment};

text_value!(PathPattern);

impl TextValue for PathPattern {
    const EXPECTED: &'static str = "a path, as in `/v1/login`, `/v1/users/{id}` or `/v1/**`";
    const PATTERN: &'static str = "/[^?#\\s]*";

    fn read(text: &str) -> Result<Self, Failure> {
        if is_regular_expression(text) {
            let problem = "looks like a regular expression, which paths are not";
            let help =
                "write segments: `/users/{id}` takes any one segment, `/api/**` everything below";
            return Err(failure(problem, help));
        }
        let Some(path) = text.strip_prefix('/') else {
            let help = format!("did you mean `/{text}`?");
            return Err(failure("does not start with a slash", help));
        };
        if path == "**" {
            return Ok(Self::default());
        }
        let above = path.strip_suffix("/**");
        let (path, is_prefix) = (above.unwrap_or(path), above.is_some());
        let mut segments = Vec::new();
        let mut rest = path.split('/').peekable();
        while let Some(segment) = rest.next() {
            if segment.is_empty() && (is_prefix || rest.peek().is_some()) {
                return Err(normalised("an empty segment"));
            }
            let segment = read_segment(text, segment)?;
            if let Segment::Capture(name) = &segment
                && segments.contains(&segment)
            {
                let help = "give each captured segment a name of its own";
                return Err(failure(format!("captures `{name}` twice"), help));
            }
            segments.push(segment);
        }
        Ok(Self {
            segments,
            is_prefix,
        })
    }
}

/// True if the text has the signs of a regular expression.
fn is_regular_expression(text: &str) -> bool {
    const PARTS: [&str; 8] = [".*", ".+", "[^", "[0-9", "[a-z", "[A-Z", "(?", ")?"];
    text.starts_with(['^', '~'])
        || text.ends_with('$')
        || text.contains("\\")
        || PARTS.iter().any(|part| text.contains(part))
}

fn read_segment(text: &str, segment: &str) -> Result<Segment, Failure> {
    let braced = segment.strip_prefix('{');
    if let Some(name) = braced.and_then(|rest| rest.strip_suffix('}')) {
        let letter = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-');
        if !name.is_empty() && name.bytes().all(letter) {
            return Ok(Segment::Capture(name.to_owned()));
        }
        let problem = "captures a segment without a valid name";
        return Err(failure(problem, "use letters, digits, `_` and `-`: `{id}`"));
    }
    if segment.contains(['{', '}', '*']) {
        let help = match text.strip_suffix("/*") {
            Some(before) => {
                format!("write `{before}/{{name}}` for one segment, or `{before}/**` for all below")
            }
            None => "a capture is a whole segment, `/users/{id}`; `/**` stands at the end only"
                .to_owned(),
        };
        return Err(failure("has a wildcard within a segment", help));
    }
    check_literal(segment).map(|()| Segment::Literal(segment.to_owned()))
}

/// Rejects literals that normalised paths never contain, since they could not match.
fn check_literal(segment: &str) -> Result<(), Failure> {
    if matches!(segment, "." | "..") {
        return Err(normalised("a dot segment"));
    }
    let is_wrong = |c: &char| "?#\\<> ".contains(*c) || c.is_ascii_control();
    if let Some(c) = segment.chars().find(is_wrong) {
        let help = match c {
            '?' => "query parameters are matched by `query`",
            '#' => "fragments are not sent to servers",
            '<' | '>' => "for any one segment, write a name in braces: `/users/{id}`",
            _ => "percent-encode it",
        };
        let problem = format!("has a character that no path has: `{}`", c.escape_debug());
        return Err(failure(problem, help));
    }
    if !segment.is_ascii() {
        let help = "write the percent-encoded form that clients send, as in `%C3%A9`";
        return Err(failure("is not ASCII", help));
    }
    check_encodings(segment)
}

fn check_encodings(segment: &str) -> Result<(), Failure> {
    for encoded in segment.split('%').skip(1) {
        let is_hex = |digits: &&str| digits.bytes().all(|b| b.is_ascii_hexdigit());
        let digits = encoded.get(..2).filter(is_hex);
        let Some(byte) = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) else {
            let problem = "has a `%` without two hexadecimal digits";
            return Err(failure(problem, "write `%25` for a percent sign"));
        };
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            let c = char::from(byte);
            return Err(normalised(&format!("an encoded `{c}`")));
        }
        if encoded[..2].bytes().any(|b| b.is_ascii_lowercase()) {
            return Err(normalised("an encoding in lower case"));
        }
    }
    let path = format!("/{segment}");
    // Routes say what becomes of encoded slashes.
    match path::normalise(&path, EncodedSlashes::Keep) {
        Ok(normal) if normal == path => Ok(()),
        Ok(normal) => {
            let problem = "has a character that paths have in encoded form only";
            Err(failure(problem, format!("write `{normal}`")))
        }
        Err(error) => {
            let answer: &str = error.into();
            let help = format!("such requests are refused: \"{answer}\"");
            Err(failure("would never match", help))
        }
    }
}

fn normalised(what: &str) -> Failure {
    let help = "paths are normalised before they are matched, so that it would never match";
    failure(format!("has {what}"), help)
}

/// A prefix of paths, in whole segments: `/v1`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Display, Deref)]
pub struct PathPrefix(String);

text_value!(PathPrefix);

impl TextValue for PathPrefix {
    const EXPECTED: &'static str = "a prefix of paths, as in `/v1`";
    const PATTERN: &'static str = "(/[^/?#{}*\\s]+)+";

    fn read(text: &str) -> Result<Self, Failure> {
        let pattern = PathPattern::read(text)?;
        let mut segments = pattern.segments.iter();
        let is_literal = |one: &Segment| matches!(one, Segment::Literal(text) if !text.is_empty());
        if segments.all(is_literal) && !pattern.is_prefix {
            return Ok(Self(text.to_owned()));
        }
        Err("name whole segments, without wildcards and without a slash at the end: `/v1`".into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips_through_text() {
        for text in [
            "/",
            "/a/b",
            "/a/",
            "/users/{id}/posts",
            "/a/**",
            "/**",
            "/caf%C3%A9",
            "/vhosts/%2F",
        ] {
            assert_eq!(
                PathPattern::parse(text).map(|pattern| pattern.to_string()),
                Ok(text.to_owned())
            );
        }
    }

    #[test]
    fn refuses_patterns_that_could_never_match() {
        for (text, message) in [
            ("v1", "`v1` does not start with a slash"),
            ("/a//b", "`/a//b` has an empty segment"),
            ("//**", "`//**` has an empty segment"),
            ("/a/../b", "`/a/../b` has a dot segment"),
            ("/%61", "`/%61` has an encoded `a`"),
            ("/%c3", "`/%c3` has an encoding in lower case"),
            ("/%zz", "`/%zz` has a `%` without two hexadecimal digits"),
            (
                "/a|b",
                "`/a|b` has a character that paths have in encoded form only",
            ),
            ("/a%5Cb", "`/a%5Cb` would never match"),
            ("/a?b", "`/a?b` has a character that no path has: `?`"),
            ("/é", "`/é` is not ASCII"),
            ("/a*", "`/a*` has a wildcard within a segment"),
            ("/a/**/b", "`/a/**/b` has a wildcard within a segment"),
            ("/{}", "`/{}` captures a segment without a valid name"),
            ("/{a}/{a}", "`/{a}/{a}` captures `a` twice"),
        ] {
            assert_eq!(
                PathPattern::parse(text).map_err(|error| error.message),
                Err(message.to_owned())
            );
        }
    }

    #[test]
    fn strips_whole_segments_only() {
        assert!(PathPrefix::parse("/v1/api").is_ok());
        for text in ["/", "/v1/", "/{a}", "/**"] {
            assert!(PathPrefix::parse(text).is_err(), "{text}");
        }
    }
}
