//! CORS (Fetch standard, section 3.2): the origins whose scripts may read responses.

use derive_more::Display;
use http::header::{
    self, ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_HEADERS,
    ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_MAX_AGE,
    ACCESS_CONTROL_REQUEST_HEADERS, ACCESS_CONTROL_REQUEST_METHOD, HeaderName, HeaderValue, ORIGIN,
    VARY,
};

use super::limit_headers::HeaderStyles;
use crate::http::headers::Headers;
use crate::rules::Head;

/// The origins that may read the responses of a route.
#[derive(Clone, Debug)]
pub struct Cors {
    /// Patterns for the origins.
    pub origins: Vec<OriginPattern>,
    /// Requests may have cookies and other credentials.
    pub credentials: bool,
    /// The proxy answers preflight requests of allowed origins, and browsers keep the answers for so many
    /// seconds.
    pub preflight: Option<HeaderValue>,
}

/// A pattern for origins.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Display)]
pub enum OriginPattern {
    /// All origins; the only pattern of its list.
    #[display("*")]
    Any,
    /// This origin, as browsers write it.
    Exact(String),
    /// All origins whose host is below one.
    #[display("{scheme}*{domain}")]
    Subdomains {
        /// The scheme with its separator: `https://`.
        scheme: String,
        /// The rest of the origin from a dot on: `.example.com:8443`.
        domain: String,
    },
}

/// The parts of a request that CORS needs.
#[derive(Debug)]
pub(crate) struct CorsRequest {
    /// Its origin, if that is allowed and no constant.
    origin: Option<HeaderValue>,
    /// The method and the fields of a preflight request that the proxy answers.
    pub preflight: Option<Vec<(HeaderName, HeaderValue)>>,
}

impl OriginPattern {
    fn matches(&self, origin: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Exact(exact) => origin == exact,
            Self::Subdomains { scheme, domain } => {
                let below = origin.strip_prefix(scheme.as_str());
                let below = below.and_then(|rest| rest.strip_suffix(domain.as_str()));
                let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
                below.is_some_and(|name| !name.is_empty() && name.bytes().all(is_name))
            }
        }
    }
}

impl Cors {
    fn allows_any(&self) -> bool {
        matches!(self.origins[..], [OriginPattern::Any])
    }

    fn allows(&self, origin: &HeaderValue) -> bool {
        let is_listed = |origin: &str| self.origins.iter().any(|one| one.matches(origin));
        self.allows_any() || origin.to_str().is_ok_and(is_listed)
    }

    /// Reads the origin of a request, and if it is a preflight request to answer.
    pub(crate) fn read(&self, head: &Head<'_>) -> CorsRequest {
        let mut origins = head.headers.get_all(ORIGIN);
        let is_one = origins.next().is_some() && origins.next().is_none();
        drop(origins);
        let origin = head.headers.get_owned(ORIGIN);
        let origin = origin.filter(|origin| is_one && self.allows(origin));
        let max_age = self.preflight.as_ref();
        let max_age = max_age.filter(|_| origin.is_some() && is_preflight(head));
        CorsRequest {
            preflight: max_age.map(|max_age| preflight_fields(head.headers, max_age)),
            origin: origin.filter(|_| !self.allows_any()),
        }
    }

    /// Lets the origin read a response, unless the upstream says itself who may.
    pub(crate) fn write(&self, request: CorsRequest, styles: &HeaderStyles, headers: &mut Headers) {
        if headers.contains(ACCESS_CONTROL_ALLOW_ORIGIN) {
            return;
        }
        let allowed = if self.allows_any() {
            Some(HeaderValue::from_static("*"))
        } else {
            // Also for other origins: caches must not give them this response.
            headers.append(VARY, HeaderValue::from_static("origin"));
            request.origin
        };
        let Some(origin) = allowed else {
            return;
        };
        headers.append(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        // The upstream's would count for this origin.
        headers.remove(ACCESS_CONTROL_ALLOW_CREDENTIALS);
        if self.credentials {
            let is_allowed = HeaderValue::from_static("true");
            headers.insert(ACCESS_CONTROL_ALLOW_CREDENTIALS, is_allowed);
        }
        match request.preflight {
            Some(fields) => {
                for (name, value) in fields {
                    headers.insert(name, value);
                }
            }
            None => styles.expose_to_origin(headers),
        }
    }
}

/// The fields of the answer to a preflight request, which browsers keep for `max_age`: the method and the
/// fields that the request names are allowed.
fn preflight_fields(request: &Headers, max_age: &HeaderValue) -> Vec<(HeaderName, HeaderValue)> {
    let allowed = [
        (ACCESS_CONTROL_REQUEST_METHOD, ACCESS_CONTROL_ALLOW_METHODS),
        (ACCESS_CONTROL_REQUEST_HEADERS, ACCESS_CONTROL_ALLOW_HEADERS),
    ];
    let allowed = allowed.into_iter();
    let allowed = allowed.filter_map(|(asked, name)| Some((name, request.get_owned(asked)?)));
    let max_age = (ACCESS_CONTROL_MAX_AGE, max_age.clone());
    allowed.chain([max_age]).collect()
}

/// A preflight request, which any client can forge.
pub(crate) fn is_preflight(head: &Head<'_>) -> bool {
    head.method == http::Method::OPTIONS
        && head.headers.contains(header::ORIGIN)
        && head.headers.contains(ACCESS_CONTROL_REQUEST_METHOD)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_takes_hosts_below_its_own() {
        let pattern = OriginPattern::Subdomains {
            scheme: "https://".to_owned(),
            domain: ".example.com".to_owned(),
        };
        for (origin, is_taken) in [
            ("https://a.example.com", true),
            ("https://a.b.example.com", true),
            ("https://.example.com", false),
            ("https://example.com", false),
            ("http://a.example.com", false),
            ("https://a.example.com:8443", false),
            ("https://evil.example/.example.com", false),
            ("https://evil.example:1@a.example.com", false),
            ("https://aexample.com", false),
            ("null", false),
        ] {
            assert_eq!(pattern.matches(origin), is_taken, "{origin}");
        }
    }
}
