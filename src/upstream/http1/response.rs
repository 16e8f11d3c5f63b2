//! The head of a response as it comes from the upstream.

use std::mem::MaybeUninit;

use bytes::Bytes;
use http::{StatusCode, Version};

use crate::http_ext::framing;
use crate::http_ext::http1::{Decoder, Invalid, Received, content_length, headers};
use crate::http_ext::message::Response;

/// The largest head, in bytes.
const MAX_HEAD: usize = 64 * 1024;
/// The most fields in a head.
const MAX_FIELDS: usize = 256;

/// Takes a head from the beginning of what was received, once it is there whole.
///
/// # Errors
/// When it is malformed, or larger than is read.
pub(super) fn head(received: &mut Received) -> Result<Option<Response<()>>, Invalid> {
    received.take_head(MAX_HEAD)?.map(parse).transpose()
}

fn parse(text: Bytes) -> Result<Response<()>, Invalid> {
    let mut fields = [const { MaybeUninit::uninit() }; MAX_FIELDS];
    let mut parsed = httparse::Response::new(&mut []);
    let status = httparse::ParserConfig::default().parse_response_with_uninit_headers(
        &mut parsed,
        &text,
        &mut fields,
    )?;
    let (Some(version), Some(code), httparse::Status::Complete(_)) =
        (parsed.version, parsed.code, status)
    else {
        return Err(Invalid::Meaning("its head is incomplete"));
    };
    let status = StatusCode::from_u16(code)
        .map_err(|_| Invalid::Meaning("its status is not a number from 100 to 999"))?;
    let mut response = Response::new(());
    *response.status_mut() = status;
    *response.version_mut() = match version {
        0 => Version::HTTP_10,
        _ => Version::HTTP_11,
    };
    *response.headers_mut() = headers(parsed.headers, &text)?;
    Ok(response)
}

/// Whether the upstream goes on with WebSocket, as it was asked to.
pub(super) fn upgrades(response: &Response<()>) -> bool {
    framing::Fields::of(response.headers()).upgrades_to_websocket()
}

/// How the body's end is found (RFC 9112 section 6.3), and whether the connection serves on after it.
///
/// # Errors
/// Where the client might find another end.
pub(super) fn body(response: &Response<()>, is_head: bool) -> Result<(Decoder, bool), Invalid> {
    let status = response.status();
    let fields = framing::Fields::of(response.headers());
    framing::check_response(&fields).map_err(Invalid::Meaning)?;
    let is_chunked = !fields.codings.is_none();
    if is_chunked && response.version() == Version::HTTP_10 {
        let what = "it has a Transfer-Encoding in HTTP/1.0";
        return Err(Invalid::Meaning(what));
    }
    let length = fields.lengths.one().map(content_length).transpose()?;
    let never_has_body = matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    let decoder = match length {
        _ if is_head || never_has_body => Decoder::Ended,
        _ if is_chunked => Decoder::ChunkSize,
        Some(length) => Decoder::Length(length),
        None => Decoder::UntilClose,
    };
    Ok((decoder, fields.keeps_alive(response.version())))
}
