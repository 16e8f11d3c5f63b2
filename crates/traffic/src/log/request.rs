//! The head of a request from what a log has of it, by the rules by which the proxy's HTTP would
//! have read it.

use http::header::{HOST, HeaderName, HeaderValue};
use http::{Method, Uri, Version};
use http1::headers::Headers;
use http1::hop_by_hop;
use http1::message::Request;

use super::LoggedHead;

/// A request, taken apart.
#[derive(Debug)]
pub(super) struct RequestParts<'a> {
    pub method: &'a [u8],
    pub target: &'a [u8],
    pub version: &'a [u8],
    /// The host beside the fields; empty for a request without one, `None` where the line doesn't say.
    pub host: Option<&'a str>,
    pub fields: Headers,
}

impl RequestParts<'_> {
    /// The head, for `default` if neither the line nor the target names a host.
    pub(super) fn head(self, default: &HeaderValue) -> Result<LoggedHead, &'static str> {
        let uri = Uri::try_from(self.target).map_err(|_| "The target isn't a URI.")?;
        let mut fields = self.fields;
        let of_target = || uri.authority().map(|authority| authority.as_str());
        let host = self.host.or_else(of_target);
        let has_field = fields.contains(HOST);
        match host {
            _ if has_field => {}
            Some("") => {}
            Some(host) => fields.append(HOST, value(host.as_bytes())?),
            None => fields.append(HOST, default.clone()),
        }
        let names_host = has_field || host.is_some();
        let mut request = Request::new(());
        *request.method_mut() = Method::from_bytes(self.method)
            .map_err(|_| "The request line has no method of HTTP.")?;
        *request.version_mut() = version(self.version)
            .ok_or("The request line has no version of HTTP that is served.")?;
        *request.uri_mut() = uri;
        *request.headers_mut() = fields;
        hop_by_hop::remove_named(request.headers_mut());
        Ok(LoggedHead {
            request,
            names_host,
        })
    }
}

/// Adds a field, beside others of its name.
pub(super) fn add(fields: &mut Headers, name: &[u8], text: &[u8]) -> Result<(), &'static str> {
    let name = HeaderName::from_bytes(name).map_err(|_| "A field has no valid name.")?;
    fields.append(name, value(text)?);
    Ok(())
}

fn value(text: &[u8]) -> Result<HeaderValue, &'static str> {
    HeaderValue::from_bytes(text).map_err(|_| "A field has a control character.")
}

fn version(text: &[u8]) -> Option<Version> {
    Some(match text {
        b"HTTP/1.0" => Version::HTTP_10,
        b"HTTP/1.1" => Version::HTTP_11,
        b"HTTP/2.0" | b"HTTP/2" => Version::HTTP_2,
        b"HTTP/3.0" | b"HTTP/3" => Version::HTTP_3,
        _ => return None,
    })
}
