//! The head of a request from what a log has of it, by the rules by which the proxy's HTTP would
//! have read it.

use http::header::{HOST, HeaderName, HeaderValue};
use http::{Method, Uri, Version};

use crate::http::headers::Headers;
use crate::http::hop_by_hop;
use crate::http::message::Request;

/// Why HTTP would not have had it: such a request is answered 400 before the proxy sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::replay) struct MalformedRequest(pub &'static str);

/// A request line, taken apart.
#[derive(Clone, Copy, Debug)]
pub(super) struct LoggedRequestLine<'a> {
    pub method: &'a [u8],
    pub target: &'a [u8],
    pub version: &'a [u8],
}

/// The host of a request whose fields name none.
#[derive(Clone, Copy, Debug)]
pub(super) enum RequestHost<'a> {
    /// The line says: this one; none where it is empty.
    Named(&'a str),
    /// The line does not say: the host of its target, else this one.
    Assumed(&'a HeaderValue),
}

/// The head that consists of these.
pub(super) fn head(
    line: LoggedRequestLine<'_>,
    host: RequestHost<'_>,
    mut fields: Headers,
) -> Result<Request<()>, MalformedRequest> {
    let uri =
        Uri::try_from(line.target).map_err(|_| MalformedRequest("The target isn't a URI."))?;
    if !fields.contains(HOST) {
        fields.extend(host.field(&uri)?.map(|host| (HOST, host)));
    }
    let mut request = Request::new(());
    *request.method_mut() = Method::from_bytes(line.method)
        .map_err(|_| MalformedRequest("The request line has no method of HTTP."))?;
    *request.version_mut() = version(line.version).ok_or(MalformedRequest(
        "The request line has no version of HTTP that is served.",
    ))?;
    *request.uri_mut() = uri;
    *request.headers_mut() = fields;
    hop_by_hop::remove_named(request.headers_mut());
    Ok(request)
}

/// True if the target of a request names its host.
pub(super) fn target_names_host(head: &Result<Request<()>, MalformedRequest>) -> bool {
    head.as_ref()
        .is_ok_and(|request| request.uri().authority().is_some())
}

impl RequestHost<'_> {
    fn field(self, uri: &Uri) -> Result<Option<HeaderValue>, MalformedRequest> {
        let host = match (self, uri.authority()) {
            (Self::Named(""), _) => return Ok(None),
            (Self::Named(host), _) => host,
            (Self::Assumed(_), Some(authority)) => authority.as_str(),
            (Self::Assumed(host), None) => return Ok(Some(host.clone())),
        };
        value(host.as_bytes()).map(Some)
    }
}

/// Adds a field, beside others of its name.
pub(super) fn add(fields: &mut Headers, name: &[u8], text: &[u8]) -> Result<(), MalformedRequest> {
    let name =
        HeaderName::from_bytes(name).map_err(|_| MalformedRequest("A field has no valid name."))?;
    fields.append(name, value(text)?);
    Ok(())
}

pub(super) fn value(text: &[u8]) -> Result<HeaderValue, MalformedRequest> {
    HeaderValue::from_bytes(text).map_err(|_| MalformedRequest("A field has a control character."))
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
