//! Rewrites the target of a request for its upstream, and the paths in the response back.

use http::Uri;
use http::header::{CONTENT_LOCATION, HOST, HeaderName, HeaderValue, LOCATION, SET_COOKIE};
use http::uri::PathAndQuery;

use super::answers::error::{Error, bad_request};
use super::ruleset::ForwardedPath;
use crate::http::forwarded::X_FORWARDED_HOST;
use crate::http::headers::{Headers, ascii};
use crate::http::message::Request;
use crate::rules::PathRewrite;

/// The target in origin form: the path for the upstream and the query. `path` is the matched path if
/// it differs from the client's. `None` if the result is the client's target.
pub(super) fn origin_form(
    uri: &Uri,
    path: Option<String>,
    forwarded: &ForwardedPath,
) -> Result<Option<Uri>, Error> {
    let path = match forwarded {
        ForwardedPath::Normalised => path,
        ForwardedPath::AsReceived => None,
        ForwardedPath::Rewritten(rewrite) => match path.as_deref().unwrap_or(uri.path()) {
            // The whole server, which no rule is about.
            "*" => path,
            matched => Some(rewrite.forwarded(matched).map_err(bad_request)?),
        },
    };
    let same = uri.path_and_query().filter(|target| {
        // `http://host?query` has no explicit path.
        path.is_none() && !target.as_str().starts_with('?')
    });
    if let Some(same) = same {
        return Ok(uri.authority().map(|_| Uri::from(same.clone())));
    }
    let path = path.as_deref().unwrap_or(uri.path());
    let target = match uri.query() {
        Some(query) => format!("{path}?{query}"),
        None => path.to_owned(),
    };
    let target =
        PathAndQuery::try_from(target).map_err(|_| bad_request("The path cannot be forwarded."))?;
    Ok(Some(Uri::from(target)))
}

/// Rewrites the paths in the fields of a response to `request`, as the upstream was sent it, back to
/// those that the client knows.
pub(super) fn restore<B>(rewrite: &PathRewrite, request: &Request<B>, response: &mut Headers) {
    let headers = request.headers();
    let hosts = KnownHosts {
        sent: headers.get(HOST).and_then(ascii),
        clients: headers.get(X_FORWARDED_HOST).and_then(ascii),
    };
    for name in [LOCATION, CONTENT_LOCATION] {
        let restored = |value: &str| restored_reference(value, hosts, rewrite);
        restore_values(response, name, restored);
    }
    restore_values(response, SET_COOKIE, |value| {
        restored_cookie(value, rewrite)
    });
}

/// Replaces the values of a field for which there is another one.
fn restore_values(
    headers: &mut Headers,
    name: HeaderName,
    restored: impl Fn(&str) -> Option<String>,
) {
    let values = headers.get_all(&name).map(|value| {
        let other = ascii(value).and_then(&restored);
        let other = other.and_then(|other| HeaderValue::try_from(other).ok());
        (
            other.is_some(),
            other.or_else(|| HeaderValue::from_bytes(value).ok()),
        )
    });
    let values: Vec<_> = values.collect();
    if values.iter().any(|(is_restored, _)| *is_restored) {
        headers.remove(&name);
        for value in values.into_iter().filter_map(|(_, value)| value) {
            headers.append(name.clone(), value);
        }
    }
}

/// The hosts by which an upstream may refer to itself.
#[derive(Clone, Copy, Debug)]
struct KnownHosts<'a> {
    /// The host that it was sent.
    sent: Option<&'a str>,
    /// The host that the client has asked for.
    clients: Option<&'a str>,
}

/// A reference to the upstream's path gets the proxy's, also in a URL. A host that the client doesn't
/// know goes; the client's own stays, with the scheme, which may be another one.
fn restored_reference(value: &str, hosts: KnownHosts<'_>, rewrite: &PathRewrite) -> Option<String> {
    let scheme = ["http://", "https://"].into_iter().find(|scheme| {
        let start = value.get(..scheme.len());
        start.is_some_and(|start| start.eq_ignore_ascii_case(scheme))
    });
    let Some(scheme) = scheme else {
        let is_path = value.starts_with('/') && !value.starts_with("//");
        return rewrite.restored(value).filter(|_| is_path);
    };
    let rest = &value[scheme.len()..];
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let path = if path.starts_with('/') {
        path.to_owned()
    } else {
        format!("/{path}")
    };
    let is = |host: Option<&str>| host.is_some_and(|host| host.eq_ignore_ascii_case(authority));
    let restored = rewrite.restored(&path)?;
    if is(hosts.clients) {
        Some(format!(
            "{}{restored}",
            &value[..scheme.len() + authority.len()]
        ))
    } else {
        is(hosts.sent).then_some(restored)
    }
}

/// The cookie with its `Path` restored. Of several, the last one counts (RFC 6265 section 5.3).
fn restored_cookie(value: &str, rewrite: &PathRewrite) -> Option<String> {
    let mut parts: Vec<_> = value.split(';').map(str::to_owned).collect();
    let attributes = parts.iter_mut().skip(1).rev();
    let mut paths = attributes.filter_map(|part| {
        let (name, path) = part.split_once('=')?;
        let path = rewrite.restored_cookie_path(path.trim());
        let is_path = name.trim().eq_ignore_ascii_case("path");
        is_path.then_some((part, path))
    });
    let (part, path) = paths.next()?;
    *part = format!(" Path={}", path?);
    drop(paths);
    Some(parts.join(";"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(uri: &str, path: Option<&str>, forwarded: &ForwardedPath) -> String {
        let uri = uri.parse().expect("a target");
        let target = origin_form(&uri, path.map(str::to_owned), forwarded);
        target.expect("a target").unwrap_or(uri).to_string()
    }

    fn rewrite() -> PathRewrite {
        PathRewrite {
            strip: "/v1".to_owned(),
            add: "/app".to_owned(),
            responses: true,
            ..PathRewrite::default()
        }
    }

    #[test]
    fn the_upstream_is_sent_a_path_and_a_query() {
        let normalised = ForwardedPath::Normalised;
        assert_eq!(target("/a?b", None, &normalised), "/a?b");
        assert_eq!(target("http://host/a?b", None, &normalised), "/a?b");
        assert_eq!(target("http://host", None, &normalised), "/");
        assert_eq!(target("http://host?b", None, &normalised), "/?b");
        assert_eq!(target("*", None, &normalised), "*");
        assert_eq!(target("//a?b", Some("/a"), &normalised), "/a?b");
    }

    #[test]
    fn a_path_is_forwarded_as_received_or_rewritten() {
        let as_received = ForwardedPath::AsReceived;
        assert_eq!(target("//a?b", Some("/a"), &as_received), "//a?b");
        assert_eq!(target("http://host//a", Some("/a"), &as_received), "//a");
        let rewritten = ForwardedPath::Rewritten(Box::new(rewrite()));
        assert_eq!(target("/v1/a?b", None, &rewritten), "/app/a?b");
        assert_eq!(target("//v1/a?b", Some("/v1/a"), &rewritten), "/app/a?b");
        assert_eq!(target("*", None, &rewritten), "*");
    }

    #[test]
    fn references_to_the_upstream_become_paths_of_the_proxy() {
        let hosts = KnownHosts {
            sent: Some("host:80"),
            clients: Some("shop.example"),
        };
        let restored = |value| restored_reference(value, hosts, &rewrite());
        for (value, expected) in [
            ("/app/a?b", Some("/v1/a?b")),
            ("HTTP://HOST:80/app/a#b", Some("/v1/a#b")),
            ("https://host:80/app", Some("/v1")),
            ("https://host:80/app/", Some("/v1/")),
            ("/app?a", Some("/v1?a")),
            (
                "https://shop.example/app/a",
                Some("https://shop.example/v1/a"),
            ),
            ("https://shop.example/else", None),
            ("http://other/app/a", None),
            ("//host:80/app/a", None),
            ("/else", None),
            ("app/a", None),
            ("", None),
        ] {
            assert_eq!(restored(value).as_deref(), expected, "{value}");
        }
    }

    #[test]
    fn the_last_path_of_a_cookie_counts() {
        let restored = |value| restored_cookie(value, &rewrite());
        for (value, expected) in [
            ("a=b; Path=/app; Secure", Some("a=b; Path=/v1; Secure")),
            ("a=b;PATH = /app/x", Some("a=b; Path=/v1/x")),
            ("a=b; Path=/app; path=/else", None),
            ("path=/app", None),
            ("a=b", None),
        ] {
            assert_eq!(restored(value).as_deref(), expected, "{value}");
        }
    }
}
