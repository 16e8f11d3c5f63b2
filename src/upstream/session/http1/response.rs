//! Reads heads of responses from an upstream.

use std::mem::MaybeUninit;

use http::{StatusCode, Version};

use crate::http::framing;
use crate::http::headers::ParsedFields;
use crate::http::http1::{Decoder, InvalidMessage, ReadBuffer, content_length, parsed_fields};
use crate::http::message::Response;

/// The largest head, in bytes.
const MAX_HEAD: usize = 64 * 1024;
/// The most fields in a head.
const MAX_FIELDS: usize = 256;

type Parsed = (StatusCode, Version, ParsedFields);

/// Takes a whole head from the received bytes.
///
/// # Errors
/// When it is malformed or too large.
pub(super) fn head(received: &mut ReadBuffer) -> Result<Option<Response<()>>, InvalidMessage> {
    // httparse would skip them again at each call.
    received.skip_empty_lines();
    let head = received.take_head(MAX_HEAD, parse)?;
    Ok(head.map(|((status, version, fields), text)| {
        Response::with_head(status, version, fields.of(text), ())
    }))
}

/// Parses a head at the beginning of `text`. Returns it with its length once it is whole.
fn parse(text: &[u8]) -> Result<Option<(Parsed, usize)>, InvalidMessage> {
    let mut fields = [const { MaybeUninit::uninit() }; MAX_FIELDS];
    let mut parsed = httparse::Response::new(&mut []);
    let status = httparse::ParserConfig::default().parse_response_with_uninit_headers(
        &mut parsed,
        text,
        &mut fields,
    )?;
    let httparse::Status::Complete(length) = status else {
        return Ok(None);
    };
    let (Some(version), Some(code)) = (parsed.version, parsed.code) else {
        return Err(InvalidMessage::Meaning("its head is incomplete"));
    };
    let status = StatusCode::from_u16(code)
        .map_err(|_| InvalidMessage::Meaning("its status is not a number from 100 to 999"))?;
    let version = match version {
        0 => Version::HTTP_10,
        _ => Version::HTTP_11,
    };
    let fields = parsed_fields(parsed.headers, text)?;
    Ok(Some(((status, version, fields), length)))
}

/// Finds the body's framing (RFC 9112 section 6.3). Also returns true if the connection persists
/// after it.
///
/// # Errors
/// When the client might find another end.
pub(super) fn body(
    response: &Response<()>,
    is_head: bool,
) -> Result<(Decoder, bool), InvalidMessage> {
    let status = response.status();
    let fields = framing::FramingFields::of(response.headers());
    framing::check_response(&fields).map_err(InvalidMessage::Meaning)?;
    let is_chunked = !fields.codings.is_none();
    if is_chunked && response.version() == Version::HTTP_10 {
        let what = "it has a Transfer-Encoding in HTTP/1.0";
        return Err(InvalidMessage::Meaning(what));
    }
    let length = fields.lengths.one().map(content_length).transpose()?;
    let never_has_body = matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    let decoder = match length {
        _ if is_head || never_has_body => Decoder::Ended,
        _ if is_chunked => Decoder::CHUNKED,
        Some(length) => Decoder::Length(length),
        None => Decoder::UntilClose,
    };
    Ok((decoder, fields.keeps_alive(response.version())))
}
