//! Path patterns of routes, and prefixes to strip.

use derive_more::{Deref, Display};

use super::{ParseFailure, TextValue, failure, text_value};
use crate::http::path::{self, EncodedSlashes};
use crate::rules::{PathPattern, Segment};

text_value!(PathPattern);

impl TextValue for PathPattern {
    const EXPECTED: &'static str = "a path, as in `/v1/login`, `/v1/users/{id}` or `/v1/**`";
    const PATTERN: &'static str = "/[^?#\\s]*";

    fn parse(text: &str) -> Result<Self, ParseFailure> {
        if is_regular_expression(text) {
            let message = format!("`{text}` looks like a regular expression, which paths are not");
            return Err(failure(
                message,
                "write segments: `/users/{id}` takes any one segment, `/api/**` everything below",
            ));
        }
        let path = text.strip_prefix('/').ok_or_else(|| {
            failure(
                format!("`{text}` does not start with a slash"),
                format!("did you mean `/{text}`?"),
            )
        })?;
        let (path, rest) = match path.strip_suffix("**") {
            Some("") => {
                return Ok(Self {
                    segments: Vec::new(),
                    is_prefix: true,
                });
            }
            Some(before) if before.ends_with('/') => (&before[..before.len() - 1], true),
            _ => (path, false),
        };
        let count = path.split('/').count();
        let mut segments = Vec::with_capacity(count);
        for (index, segment) in path.split('/').enumerate() {
            let is_last = index + 1 == count;
            match segment {
                "" if !is_last || rest => return Err(normalised(text, "an empty segment")),
                segment => push(&mut segments, text, segment)?,
            }
        }
        let is_prefix = rest;
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

fn push(segments: &mut Vec<Segment>, text: &str, segment: &str) -> Result<(), ParseFailure> {
    let segment = parse_segment(text, segment)?;
    if let Segment::Capture(name) = &segment
        && segments.contains(&segment)
    {
        let message = format!("`{text}` captures `{name}` twice");
        return Err(failure(
            message,
            "give each captured segment a name of its own",
        ));
    }
    segments.push(segment);
    Ok(())
}

fn parse_segment(text: &str, segment: &str) -> Result<Segment, ParseFailure> {
    if let Some(name) = segment
        .strip_prefix('{')
        .and_then(|rest| rest.strip_suffix('}'))
    {
        let letter = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-');
        return if !name.is_empty() && name.bytes().all(letter) {
            Ok(Segment::Capture(name.to_owned()))
        } else {
            Err(failure(
                format!("`{text}` captures a segment without a valid name"),
                "use letters, digits, `_` and `-`: `{id}`",
            ))
        };
    }
    if segment.contains(['{', '}', '*']) {
        let help = match text.strip_suffix("/*") {
            Some(before) => {
                format!("write `{before}/{{name}}` for one segment, or `{before}/**` for all below")
            }
            None => "a capture is a whole segment, `/users/{id}`; `/**` stands at the end only"
                .to_owned(),
        };
        let message = format!("`{text}` has a wildcard within a segment");
        return Err(failure(message, help));
    }
    parse_literal(text, segment).map(|literal| Segment::Literal(literal.to_owned()))
}

/// Rejects literals that normalised paths never contain, since they could not match.
fn parse_literal<'a>(text: &str, segment: &'a str) -> Result<&'a str, ParseFailure> {
    if matches!(segment, "." | "..") {
        return Err(normalised(text, "a dot segment"));
    }
    if let Some(c) = segment
        .chars()
        .find(|&c| matches!(c, '?' | '#' | '\\' | '<' | '>') || c.is_ascii_control() || c == ' ')
    {
        let help = match c {
            '?' => "query parameters are matched by `query`",
            '#' => "fragments are not sent to servers",
            '<' | '>' => "for any one segment, write a name in braces: `/users/{id}`",
            _ => "percent-encode it",
        };
        return Err(failure(
            format!(
                "`{text}` has a character that no path has: `{}`",
                c.escape_debug()
            ),
            help,
        ));
    }
    if !segment.is_ascii() {
        let message = format!("`{text}` is not ASCII");
        return Err(failure(
            message,
            "write the percent-encoded form that clients send, as in `%C3%A9`",
        ));
    }
    check_encodings(text, segment).map(|()| segment)
}

fn check_encodings(text: &str, segment: &str) -> Result<(), ParseFailure> {
    for encoded in segment.split('%').skip(1) {
        let digits = encoded
            .get(..2)
            .filter(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()));
        let Some(byte) = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) else {
            let message = format!("`{text}` has a `%` without two hexadecimal digits");
            return Err(failure(message, "write `%25` for a percent sign"));
        };
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            let c = char::from(byte);
            return Err(normalised(text, &format!("an encoded `{c}`")));
        }
        if encoded[..2].bytes().any(|b| b.is_ascii_lowercase()) {
            return Err(normalised(text, "an encoding in lower case"));
        }
    }
    let path = format!("/{segment}");
    // Routes say what becomes of encoded slashes.
    match path::normalise(&path, EncodedSlashes::Keep) {
        Ok(normal) if normal == path => Ok(()),
        Ok(normal) => Err(failure(
            format!("`{text}` has a character that paths have in encoded form only"),
            format!("write `{normal}`"),
        )),
        Err(error) => Err(failure(
            format!("`{text}` would never match: {error}"),
            "such requests are refused",
        )),
    }
}

fn normalised(text: &str, what: &str) -> ParseFailure {
    failure(
        format!("`{text}` has {what}"),
        "paths are normalised before they are matched, so that it would never match",
    )
}

/// A prefix of paths, in whole segments: `/v1`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Display, Deref)]
pub struct PathPrefix(String);

text_value!(PathPrefix);

impl TextValue for PathPrefix {
    const EXPECTED: &'static str = "a prefix of paths, as in `/v1`";
    const PATTERN: &'static str = "(/[^/?#{}*\\s]+)+";

    fn parse(text: &str) -> Result<Self, ParseFailure> {
        let pattern = PathPattern::parse(text)?;
        let literal = pattern
            .segments
            .iter()
            .all(|segment| matches!(segment, Segment::Literal(text) if !text.is_empty()));
        if literal && !pattern.is_prefix {
            Ok(Self(text.to_owned()))
        } else {
            Err(failure(
                format!("`{text}` isn't a prefix of paths"),
                "name whole segments, without wildcards and without a slash at the end: `/v1`",
            ))
        }
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
            (
                "/a%5Cb",
                "`/a%5Cb` would never match: the path has an encoded slash, or a backslash",
            ),
            ("/a?b", "`/a?b` has a character that no path has: `?`"),
            ("/é", "`/é` is not ASCII"),
            ("/a*", "`/a*` has a wildcard within a segment"),
            ("/a/**/b", "`/a/**/b` has a wildcard within a segment"),
            ("/{}", "`/{}` captures a segment without a valid name"),
            ("/{a}/{a}", "`/{a}/{a}` captures `a` twice"),
        ] {
            assert_eq!(
                PathPattern::parse(text).map_err(|(message, _)| message),
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
