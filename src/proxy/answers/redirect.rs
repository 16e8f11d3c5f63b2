//! Targets of redirects, with placeholders such as `{host}` for parts of the request.
//!
//! No value leaves its component of the URL (RFC 3986 section 3): a client can neither choose
//! another host nor add a header field.

use std::borrow::Cow;

use http::HeaderValue;
use http::uri::Authority;
use percent_encoding::{
    AsciiSet, CONTROLS, NON_ALPHANUMERIC, percent_decode_str, percent_encode, utf8_percent_encode,
};

use super::template::{Signs, Template, TemplateError};
use crate::http::path;
use crate::rules::{CaseSensitivity, PathEquivalence, PathMatch, PathPattern, segments};

const SIGNS: Signs = Signs {
    open: "{",
    close: "}",
    unclosed: "write a placeholder as in `{path}`",
};
/// The longest target as configured, in bytes.
const MAX_LENGTH: usize = 4096;

/// All but what a query may have (RFC 3986 section 3.4), and `%`.
const QUERY: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'<')
    .add(b'>')
    .add(b'[')
    .add(b'\\')
    .add(b']')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');
/// All but unreserved characters (RFC 3986 section 2.3).
const VALUE: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// Target of a redirect: an `http` or `https` URL, or a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedirectTarget {
    template: Template<(RequestPart, Component)>,
    is_path: bool,
    /// The comparison of paths by the route.
    form: PathEquivalence,
}

/// Part of a request that a placeholder stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::EnumString)]
#[strum(serialize_all = "snake_case")]
enum RequestPart {
    Host,
    Path,
    Query,
    PathAndQuery,
    /// The segment at this place of the path.
    #[strum(disabled)]
    Segment(usize),
}

/// Component of a URL that a placeholder stands in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Component {
    Authority,
    Path,
    /// The query, or the fragment.
    Query,
}

/// Parts of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RedirectedRequest<'a> {
    /// The host without its port; empty if an HTTP/1.0 client names none.
    pub host: &'a str,
    /// The normal form of the path, or `*`.
    pub path: &'a str,
    pub query: Option<&'a str>,
}

impl RedirectTarget {
    /// The names of all placeholders, except those of captured segments.
    const NAMES: [&'static str; 4] = ["host", "path", "query", "path_and_query"];

    /// Parses a target for requests whose paths have this pattern on a route that compares them so.
    ///
    /// # Errors
    /// A malformed URL, an unknown placeholder, or one by which clients could choose the host.
    pub fn parse(
        text: &str,
        path: &PathPattern,
        form: PathEquivalence,
    ) -> Result<Self, TemplateError> {
        if text.len() > MAX_LENGTH {
            let message = format!("a target has {MAX_LENGTH} bytes at most");
            return Err(TemplateError::new(message, "shorten it"));
        }
        for start in ["//", "/\\"] {
            if text.starts_with(start) {
                let message = format!("browsers take the text after `{start}` for a host");
                let help = "begin with one slash, or with `https://` and a host";
                return Err(TemplateError::new(message, help));
            }
        }
        let is_path = text.starts_with('/');
        let authority = match text.split_once("://") {
            _ if is_path => None,
            Some(("http" | "https", rest)) => Some(rest),
            _ => {
                let message = "this is neither an `http` or `https` URL nor a path";
                let help = "as in `https://{host}{path_and_query}`, or `/new{path}`";
                return Err(TemplateError::new(message, help));
            }
        };
        let known: Vec<_> = Self::NAMES.into_iter().chain(path.captures()).collect();
        let template = Template::parse_with(text, &SIGNS, &known, |name, before| {
            let part = RequestPart::of(name, path)?;
            let component = Component::after(before, is_path);
            let begins_path = matches!(part, RequestPart::Path | RequestPart::PathAndQuery);
            Some(match component {
                Component::Authority if begins_path => (part, Component::Path),
                component => (part, component),
            })
        })?;
        let outside = template.write(|_, _| {});
        let is_valid = |c: &char| c.is_ascii_graphic() && !"\"<>\\^`{|}".contains(*c);
        if let Some(other) = outside.chars().find(|c| !is_valid(c)) {
            let message = format!("a URL can't contain `{}`", other.escape_debug());
            return Err(TemplateError::new(
                message,
                match other {
                    '{' | '}' => "a placeholder has one brace on each side, as in `{path}`",
                    _ => "percent-encode it, as in `%20` for a space",
                },
            ));
        }
        authority.map_or(Ok(()), check_authority)?;
        Ok(Self {
            template,
            is_path,
            // A redirect keeps the case of captured segments.
            form: PathEquivalence {
                case: CaseSensitivity::Sensitive,
                ..form
            },
        })
    }

    /// Returns true if the client's `Host` is part of the target.
    pub fn has_host(&self) -> bool {
        let mut values = self.template.values();
        values.any(|(part, _)| *part == RequestPart::Host)
    }

    fn needs_host(&self) -> bool {
        let wanted = (RequestPart::Host, Component::Authority);
        self.template.values().any(|value| *value == wanted)
    }

    /// The value of `Location` for a request; `None` if that names no host which the target needs.
    pub(crate) fn location(&self, request: RedirectedRequest<'_>) -> Option<HeaderValue> {
        if request.host.is_empty() && self.needs_host() {
            return None;
        }
        let url = self.template.write(|(part, component), url| {
            component.write(part.text(&request, self.form), *part, url)
        });
        let mut url = url.as_str();
        // A value that is empty, or begins with a slash, must not make this a URL with a host.
        while self.is_path && url.starts_with("//") {
            url = &url[1..];
        }
        HeaderValue::from_str(url).ok()
    }
}

/// Checks the host and the port at the start of `rest`, where only a host may vary.
fn check_authority(rest: &str) -> Result<(), TemplateError> {
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let path = ["{path}", "{path_and_query}"].map(|name| authority.find(name));
    let end = path.into_iter().flatten().min();
    let authority = &authority[..end.unwrap_or(authority.len())];
    let authority = authority.replace("{host}", "host");
    if let Some((_, name)) = authority.split_once('{') {
        let name = name.split('}').next().unwrap_or_default();
        let message = format!("`{{{name}}}` would let clients choose the host");
        let help = "write the host, or `{host}`; begin the path with `/`";
        return Err(TemplateError::new(message, help));
    }
    let parsed = authority.parse::<Authority>().ok().filter(|parsed| {
        let port = &authority[parsed.host().len().min(authority.len())..];
        !authority.contains('@') && (port.is_empty() || parsed.port_u16().is_some())
    });
    let wrong = || {
        let help = "as in `https://www.example.com:8443/`";
        TemplateError::new("this URL has no valid host", help)
    };
    parsed.map(|_| ()).ok_or_else(wrong)
}

impl RequestPart {
    fn of(name: &str, path: &PathPattern) -> Option<Self> {
        let known = name.parse().ok();
        known.or_else(|| path.capture(name).map(Self::Segment))
    }

    fn text<'a>(self, request: &RedirectedRequest<'a>, form: PathEquivalence) -> Cow<'a, str> {
        let path = match request.path {
            // The whole server (RFC 9112 section 3.2.4).
            "*" => "/",
            path => path,
        };
        Cow::Borrowed(match (self, request.query) {
            (Self::Host, _) => request.host,
            (Self::Query, query) => query.unwrap_or_default(),
            (Self::PathAndQuery, Some(query)) => {
                let query = utf8_percent_encode(query, QUERY);
                return Cow::Owned(format!("{path}?{query}"));
            }
            (Self::Path | Self::PathAndQuery, _) => path,
            (Self::Segment(place), _) if form.path_match == PathMatch::Loose => {
                let path = path::comparable(path);
                let segment = form.segment(&path, place).unwrap_or_default();
                return Cow::Owned(segment.into_owned());
            }
            (Self::Segment(place), _) => segments(path).nth(place).unwrap_or_default(),
        })
    }
}

impl Component {
    /// The component that begins after this text.
    fn after(text: &str, is_path: bool) -> Self {
        let authority = text.split_once("://").filter(|_| !is_path);
        let text = authority.map_or(text, |(_, rest)| rest);
        if text.contains(['?', '#']) {
            Self::Query
        } else if is_path || text.contains("{path") || text.contains('/') {
            Self::Path
        } else {
            Self::Authority
        }
    }

    /// Writes a part of a request. Hosts and normal paths have no character that ends a component.
    fn write(self, text: Cow<'_, str>, part: RequestPart, url: &mut String) {
        let encoded = match (self, part) {
            (Self::Authority, _) => return url.push_str(&text),
            (Self::Query, RequestPart::Query) => utf8_percent_encode(&text, QUERY),
            (Self::Query, RequestPart::Segment(_)) => {
                // Its value: in a query it is encoded once.
                let value: Vec<u8> = percent_decode_str(&text).collect();
                return url.extend(percent_encode(&value, VALUE));
            }
            (Self::Query, _) | (Self::Path, RequestPart::Query | RequestPart::Host) => {
                utf8_percent_encode(&text, VALUE)
            }
            (Self::Path, _) => return url.push_str(&text),
        };
        url.extend(encoded);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::rules::Segment;

    fn pattern() -> PathPattern {
        PathPattern {
            segments: vec![
                Segment::Literal("users".to_owned()),
                Segment::Capture("id".to_owned()),
            ],
            is_prefix: true,
        }
    }

    fn parse(to: &str) -> Result<RedirectTarget, TemplateError> {
        RedirectTarget::parse(to, &pattern(), PathEquivalence::default())
    }

    fn location(to: &str, path: &str, query: Option<&str>) -> String {
        let target = parse(to).unwrap_or_else(|error| panic!("{to}: {error}"));
        let host = "a.example";
        let location = target.location(RedirectedRequest { host, path, query });
        let location = location.expect("there is a host");
        location.to_str().expect("visible ASCII").to_owned()
    }

    #[test]
    fn placeholders_stand_for_parts_of_the_request() {
        for (to, expected) in [
            (
                "https://{host}{path_and_query}",
                "https://a.example/users/7%40x/a?b=c&d=%22%22",
            ),
            (
                "https://www.{host}:8443{path}",
                "https://www.a.example:8443/users/7%40x/a",
            ),
            ("/people/{id}", "/people/7%40x"),
            ("/people?id={id}&all", "/people?id=7%40x&all"),
            (
                "/login?to={path_and_query}",
                "/login?to=%2Fusers%2F7%2540x%2Fa%3Fb%3Dc%26d%3D%2522%2522",
            ),
            ("/x?{query}", "/x?b=c&d=%22%22"),
            ("/x/{query}", "/x/b%3Dc%26d%3D%22%22"),
            ("/{path}", "/users/7%40x/a"),
            ("https://b.example/#{host}", "https://b.example/#a.example"),
            (
                "/login?to=https://b.example{path}",
                "/login?to=https://b.example%2Fusers%2F7%2540x%2Fa",
            ),
            ("/to?u=https://b/?{query}", "/to?u=https://b/?b=c&d=%22%22"),
        ] {
            let query = Some("b=c&d=\"\"");
            assert_eq!(location(to, "/users/7%40x/a", query), expected, "{to}");
        }
        assert_eq!(
            location("https://{host}{path_and_query}", "*", None),
            "https://a.example/"
        );
    }

    #[test]
    fn segments_are_those_that_a_loose_route_sees() {
        let form = PathEquivalence {
            path_match: PathMatch::Loose,
            ..PathEquivalence::default()
        };
        let target = RedirectTarget::parse("/people/{id}", &pattern(), form).expect("a target");
        for path in [
            "/users/A7",
            "/users;x/A7;y",
            "/;x/users/A7.",
            "/%3Bx/users/A7",
        ] {
            let location = target.location(RedirectedRequest {
                host: "a.example",
                path,
                query: None,
            });
            assert_eq!(
                location,
                Some(HeaderValue::from_static("/people/A7")),
                "{path}"
            );
        }
    }

    #[test]
    fn a_path_stays_a_path() {
        assert_eq!(
            location("/{query}{path}", "/evil.example", None),
            "/evil.example"
        );
        assert_eq!(
            location("/{query}", "/", Some("/evil.example")),
            "/%2Fevil.example"
        );
    }

    #[test]
    fn a_request_without_a_host_has_no_location_there() {
        let request = RedirectedRequest {
            host: "",
            path: "/",
            query: None,
        };
        let location = |to| parse(to).expect("a target").location(request);
        assert_eq!(location("https://{host}/"), None);
        assert_eq!(location("/{host}"), Some(HeaderValue::from_static("/")));
    }

    #[test]
    fn errors_say_what_is_wrong() {
        for (to, message) in [
            ("", "this is neither an `http` or `https` URL nor a path"),
            (
                "ftp://a/",
                "this is neither an `http` or `https` URL nor a path",
            ),
            (
                "{path}",
                "this is neither an `http` or `https` URL nor a path",
            ),
            (
                "//evil.example",
                "browsers take the text after `//` for a host",
            ),
            (
                "/\\evil.example",
                "browsers take the text after `/\\` for a host",
            ),
            (
                "https://{id}.example.com/",
                "`{id}` would let clients choose the host",
            ),
            (
                "https://example.com{query}",
                "`{query}` would let clients choose the host",
            ),
            ("https://", "this URL has no valid host"),
            ("https://{path}", "this URL has no valid host"),
            ("https://a@b/", "this URL has no valid host"),
            ("https://a:b/", "this URL has no valid host"),
            ("/{no}", "there is no placeholder `{no}`"),
            ("/{id", "`{` without `}`"),
            ("/{{id}}", "a URL can't contain `{`"),
            ("/a b", "a URL can't contain ` `"),
            ("/a\r\nb: c", "a URL can't contain `\\r`"),
            ("/é", "a URL can't contain `é`"),
        ] {
            let error = parse(to).expect_err(to);
            assert_eq!(error.to_string(), message, "{to}");
        }
    }

    proptest! {
        #[test]
        fn no_value_leaves_its_component(
            segment in "[!$&-,;=:@a-z0-9.~_-]{1,12}|(%[0-9A-F]{2}){1,4}",
            query in "\\PC{0,24}|[/?#&%\"\\\\\r\n]{0,12}",
        ) {
            let path = format!("/users/{segment}");
            let of = |to| location(to, &path, Some(&query));
            for to in ["/{query}", "/a/{id}", "/a?b={id}&c={query}", "/{path_and_query}"] {
                let location = of(to);
                prop_assert!(location.starts_with('/') && !location.starts_with("//"));
                prop_assert!(location.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\' && byte != b'#'));
            }
            let value = of("/?b={path_and_query}");
            prop_assert!(!value[4..].contains(['&', '=', '/', '?', '+']));
            let url = of("https://{host}{path_and_query}");
            prop_assert!(url.starts_with("https://a.example/users/"));
        }
    }
}
