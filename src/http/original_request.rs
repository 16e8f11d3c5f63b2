//! The request that another proxy asks about, as fields of its question describe it: those of
//! Traefik and Caddy (`X-Forwarded-Method`, `X-Forwarded-Uri`, `X-Forwarded-Host`) and those that are
//! usual with nginx (`X-Original-Method`, `X-Original-URI`, `X-Original-URL`).

use http::header::{HOST, HeaderName};
use http::uri::{Authority, PathAndQuery};
use http::{Method, Uri};

use super::forwarded::X_FORWARDED_HOST;
use super::headers::{FieldValue, Headers};
use super::message::Request;

/// Fields that have the method.
static METHODS: [HeaderName; 2] = [
    HeaderName::from_static("x-forwarded-method"),
    HeaderName::from_static("x-original-method"),
];

/// Fields that have the path with its query, or a URL.
static TARGETS: [HeaderName; 3] = [
    HeaderName::from_static("x-forwarded-uri"),
    HeaderName::from_static("x-original-uri"),
    HeaderName::from_static("x-original-url"),
];

/// Reasons why it is unknown which request is described. Each is 400. The text is a sentence for
/// the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
pub enum OriginalRequestError {
    /// The text is no method.
    #[strum(serialize = "The method that the fields describe is invalid.")]
    Method,
    /// The text is neither a path nor a URL.
    #[strum(serialize = "The URI that the fields describe is invalid.")]
    Target,
    /// The text is no host.
    #[strum(serialize = "The host that the fields describe is invalid.")]
    Host,
    /// Two fields have different values.
    #[strum(serialize = "Fields that describe the request contradict each other.")]
    Contradiction,
}

/// Turns a question into the request that its fields describe; what no field describes stays as it
/// is. The caller trusts the peer, and checks host and path.
///
/// # Errors
/// When a field is invalid, or contradicts another one.
pub fn restore<B>(request: &mut Request<B>) -> Result<(), OriginalRequestError> {
    let headers = request.headers();
    let method = agreed(values(headers, &METHODS).map(|text| {
        let method = Method::from_bytes(text);
        method.map_err(|_| OriginalRequestError::Method)
    }))?;
    let targets = values(headers, &TARGETS).map(target);
    let targets = targets.collect::<Result<Vec<_>, _>>()?;
    let path = agreed(targets.iter().map(|(path, _)| Ok(path.clone())))?;
    let of_fields = headers.get_all(X_FORWARDED_HOST).map(|text| {
        let host = Authority::try_from(text);
        host.map_err(|_| OriginalRequestError::Host)
    });
    let of_targets = targets.into_iter().filter_map(|(_, host)| host.map(Ok));
    let host = agreed(of_fields.chain(of_targets))?;

    if let Some(method) = method {
        *request.method_mut() = method;
    }
    if path.is_none() && host.is_none() {
        return Ok(());
    }
    let own = request.uri();
    let path = path.or_else(|| own.path_and_query().cloned());
    let host = host.or_else(|| own.authority().cloned());
    *request.uri_mut() = path.map(Uri::from).unwrap_or_default();
    if let Some(host) = host {
        let value = FieldValue::try_from(host.as_str().as_bytes());
        let value = value.map_err(|_| OriginalRequestError::Host)?;
        request.headers_mut().insert(HOST, value);
    }
    Ok(())
}

fn values<'h>(
    headers: &'h Headers,
    names: &'h [HeaderName],
) -> impl Iterator<Item = &'h [u8]> + use<'h> {
    names.iter().flat_map(|name| headers.get_all(name))
}

/// The path with its query, and the host if it is a URL.
fn target(text: &[u8]) -> Result<(PathAndQuery, Option<Authority>), OriginalRequestError> {
    // A parsed URI has lost its fragment, which may be part of the path for another server.
    let uri = Some(text).filter(|text| !text.contains(&b'#'));
    let uri = uri.and_then(|text| Uri::try_from(text).ok());
    let uri = uri.filter(|uri| matches!(uri.scheme_str(), None | Some("http" | "https")));
    let parts = uri.ok_or(OriginalRequestError::Target)?.into_parts();
    let path = parts.path_and_query.ok_or(OriginalRequestError::Target)?;
    Ok((path, parts.authority))
}

/// The value that all of them have; `None` if there are none.
fn agreed<T: PartialEq>(
    values: impl Iterator<Item = Result<T, OriginalRequestError>>,
) -> Result<Option<T>, OriginalRequestError> {
    let mut agreed = None;
    for value in values {
        let value = Some(value?);
        if agreed.is_some() && agreed != value {
            return Err(OriginalRequestError::Contradiction);
        }
        agreed = value;
    }
    Ok(agreed)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use proptest::prelude::*;

    use super::*;

    fn restored(
        fields: &[(&'static str, &str)],
    ) -> Result<(String, String, String), OriginalRequestError> {
        let mut request = Request::new(());
        *request.uri_mut() = Uri::from_static("/auth?q");
        for (name, value) in [("host", "gate")].iter().chain(fields) {
            let value = HeaderValue::from_str(value).expect("a value");
            let name = HeaderName::from_static(name);
            request.headers_mut().append(name, value);
        }
        restore(&mut request)?;
        let mut hosts = request.headers().get_all(HOST);
        let host = hosts.next().expect("a host").to_vec();
        assert_eq!(hosts.next(), None);
        Ok((
            request.method().to_string(),
            String::from_utf8(host).expect("a text"),
            request.uri().to_string(),
        ))
    }

    #[test]
    fn the_fields_of_each_proxy_describe_the_request() {
        let traefik: &[_] = &[
            ("x-forwarded-method", "POST"),
            ("x-forwarded-uri", "/a?b"),
            ("x-forwarded-host", "a.example:8443"),
        ];
        let nginx: &[_] = &[("x-original-method", "POST"), ("x-original-uri", "/a?b")];
        let ingress: &[_] = &[("x-original-url", "https://a.example/a?b")];
        let equal: &[_] = &[
            ("x-original-url", "http://a.example/a?b"),
            ("x-original-uri", "/a?b"),
            ("x-forwarded-host", "A.example"),
        ];
        for (fields, method, host, uri) in [
            (&[][..], "GET", "gate", "/auth?q"),
            (traefik, "POST", "a.example:8443", "/a?b"),
            (nginx, "POST", "gate", "/a?b"),
            (ingress, "GET", "a.example", "/a?b"),
            (equal, "GET", "a.example", "/a?b"),
            (&[("x-forwarded-host", "b")], "GET", "b", "/auth?q"),
        ] {
            let expected = (method.to_owned(), host.to_owned(), uri.to_owned());
            assert_eq!(restored(fields), Ok(expected), "{fields:?}");
        }
    }

    #[test]
    fn nothing_is_guessed() {
        use OriginalRequestError::{Contradiction, Host, Method, Target};
        for (fields, error) in [
            (&[("x-forwarded-method", "")][..], Method),
            (&[("x-forwarded-method", "GET POST")], Method),
            (&[("x-original-uri", "")], Target),
            (&[("x-original-uri", "a.example")], Target),
            (&[("x-original-uri", "/a#b")], Target),
            (&[("x-original-uri", "/a b")], Target),
            (&[("x-original-url", "http://")], Target),
            (&[("x-original-url", "ftp://a/b")], Target),
            (&[("x-forwarded-host", "a, b")], Host),
            (
                &[("x-forwarded-method", "GET"), ("x-original-method", "PUT")],
                Contradiction,
            ),
            (
                &[("x-forwarded-uri", "/a"), ("x-original-url", "http://a/b")],
                Contradiction,
            ),
            (
                &[("x-forwarded-host", "a"), ("x-original-url", "http://b/")],
                Contradiction,
            ),
            (
                &[("x-forwarded-uri", "/a"), ("x-forwarded-uri", "/b")],
                Contradiction,
            ),
        ] {
            assert_eq!(restored(fields), Err(error), "{fields:?}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[ -~]{0,40}") {
            for name in ["x-forwarded-method", "x-original-url", "x-forwarded-host"] {
                drop(restored(&[(name, &text)]));
            }
        }
    }
}
