//! The head of a client's request.

use std::mem::MaybeUninit;
use std::ops::Range;

use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{Method, StatusCode, Uri, Version};

use super::lingering_close::CloseReason;
use crate::http::body::RequestBody;
use crate::http::framing::{FramingFields, Occurrence};
use crate::http::headers::ParsedFields;
use crate::http::http1::{Decoder, InvalidMessage, content_length, parsed_fields, range_in};
use crate::http::message::Request;

/// The most fields that a head may be allowed to have.
const MAX_FIELDS: usize = 256;
/// The longest target: what [`Uri`] can hold.
const MAX_TARGET: usize = 65_534;

/// A request whose body is still to come.
#[derive(Debug)]
pub(super) struct RequestHead {
    pub(super) request: Request<RequestBody>,
    /// Finds the end of its body.
    pub(super) decoder: Decoder,
    /// Another request may follow on the connection.
    pub(super) keep_alive: bool,
    /// The client waits for `100 Continue`.
    pub(super) expects_continue: bool,
    /// The client asks to switch protocols. The route says to which it may.
    pub(super) upgrades: bool,
}

/// A head before it is bound to its text.
#[derive(Debug)]
pub(super) struct ParsedHead {
    method: Method,
    target: Range<usize>,
    version: Version,
    fields: ParsedFields,
}

/// Parses a head at the beginning of `text`, of at most `max_fields` fields. Returns it with its
/// length once it is whole.
///
/// # Errors
/// When the head does not parse.
pub(super) fn parse(
    text: &[u8],
    max_fields: usize,
) -> Result<Option<(ParsedHead, usize)>, CloseReason> {
    let mut fields = [const { MaybeUninit::uninit() }; MAX_FIELDS];
    let mut parsed = httparse::Request::new(&mut []);
    let status = parsed
        .parse_with_uninit_headers(text, &mut fields[..max_fields.min(MAX_FIELDS)])
        .map_err(InvalidMessage::from)?;
    let httparse::Status::Complete(length) = status else {
        return Ok(None);
    };
    let (Some(method), Some(target), Some(version)) = (parsed.method, parsed.path, parsed.version)
    else {
        return Err(InvalidMessage::Meaning("its head is incomplete").into());
    };
    if target.len() > MAX_TARGET {
        let reason = "its target is too long".to_owned();
        return Err(CloseReason::Refused(StatusCode::URI_TOO_LONG, reason));
    }
    let head = ParsedHead {
        method: Method::from_bytes(method.as_bytes())
            .map_err(|_| InvalidMessage::Meaning("its method isn't a token"))?,
        target: range_in(target.as_bytes(), text),
        version: match version {
            0 => Version::HTTP_10,
            _ => Version::HTTP_11,
        },
        fields: parsed_fields(parsed.headers, text)?,
    };
    Ok(Some((head, length)))
}

impl ParsedHead {
    /// Binds the head to its text.
    ///
    /// # Errors
    /// When its target is no URI.
    pub(super) fn of(self, text: Bytes) -> Result<RequestHead, CloseReason> {
        // A copy is cheaper than sharing the text.
        let target = &text[self.target];
        let no_uri = InvalidMessage::Meaning("its target isn't a URI");
        let uri = match Uri::try_from(target).map_err(|_| no_uri)? {
            uri if self.method == Method::OPTIONS && is_whole_server(&uri, target) => {
                whole_server(uri).ok_or(no_uri)?
            }
            uri => uri,
        };
        let (version, headers) = (self.version, self.fields.of(text));
        let fields = FramingFields::of(&headers);
        let decoder = decoder(version, fields.lengths, fields.codings);
        let has_body = !matches!(decoder, Some(Decoder::Ended));
        let understands = version == Version::HTTP_11;
        let upgrades = fields.asks_to_switch() && !has_body && understands;
        let keep_alive = decoder.is_some() && fields.keeps_alive(version);
        let expects_continue = fields.expects_continue && has_body && understands;
        let is_checked = decoder.is_some() && !fields.is_unusual;
        let body = RequestBody::empty();
        let mut request = Request::with_head(self.method, uri, version, headers, body);
        if is_checked {
            request.set_checked_end();
        }
        Ok(RequestHead {
            upgrades,
            keep_alive,
            decoder: decoder.unwrap_or(Decoder::Ended),
            expects_continue,
            request,
        })
    }
}

/// Returns true if a target is an absolute URI without path and query. [`Uri`] adds a slash.
fn is_whole_server(uri: &Uri, target: &[u8]) -> bool {
    uri.scheme().is_some() && uri.path() == "/" && uri.query().is_none() && !target.ends_with(b"/")
}

/// Such a target means `*` of that server in OPTIONS (RFC 9112 section 3.2.4).
fn whole_server(uri: Uri) -> Option<Uri> {
    let mut parts = uri.into_parts();
    parts.path_and_query = Some(PathAndQuery::from_static("*"));
    Uri::from_parts(parts).ok()
}

/// Finds the body's framing (RFC 9112 section 6.3). `None` if it is not certain: the connection
/// reads nothing more. The service reports the error (see [`crate::http::framing`]).
fn decoder(version: Version, lengths: Occurrence<'_>, codings: Occurrence<'_>) -> Option<Decoder> {
    match (lengths, codings) {
        (Occurrence::None, Occurrence::None) => Some(Decoder::Ended),
        (Occurrence::One(length), Occurrence::None) => match content_length(length).ok()? {
            0 => Some(Decoder::Ended),
            length => Some(Decoder::Length(length)),
        },
        (Occurrence::None, Occurrence::One(coding)) => {
            let is_known = version == Version::HTTP_11 && coding.eq_ignore_ascii_case(b"chunked");
            is_known.then_some(Decoder::CHUNKED)
        }
        _ => None,
    }
}
