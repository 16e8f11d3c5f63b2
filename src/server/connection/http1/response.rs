//! Writes the heads of responses to a client.

use http::header::{CONNECTION, CONTENT_LENGTH, DATE};
use http::{HeaderName, HeaderValue, StatusCode, Version};
use http_body::Body;

use crate::http::date;
use crate::http::headers::write_field;
use crate::http::http1::{Framing, is_framing_field};
use crate::http::message::{Response, reason_phrase};

/// Properties of a request that the head of its response depends on.
#[derive(Clone, Copy, Debug)]
pub(super) struct RequestTraits {
    /// The request's version: the client understands its framing.
    pub(super) version: Version,
    /// The request's method is HEAD.
    pub(super) is_head: bool,
}

impl RequestTraits {
    /// Chooses the framing of a response's body (RFC 9112 section 6.3).
    pub(super) fn framing(self, status: StatusCode, body: &impl Body) -> Framing {
        if status == StatusCode::SWITCHING_PROTOCOLS {
            return Framing::Tunnel;
        }
        if self.is_head || has_never_a_body(status) {
            return Framing::Ended;
        }
        match body.size_hint().exact() {
            Some(length) => Framing::Length(length),
            None if self.version == Version::HTTP_10 => Framing::UntilClose,
            None => Framing::Chunked,
        }
    }

    /// Writes the status line, the fields, and the framing and connection fields.
    pub(super) fn write_head(
        self,
        head: &Response<()>,
        framing: Framing,
        keep_alive: bool,
        buffer: &mut Vec<u8>,
    ) {
        write_status_line(head.status(), buffer);
        let says_length = framing == Framing::Ended && head.status() != StatusCode::NO_CONTENT;
        let mut has_date = false;
        for (name, value) in head.headers().iter() {
            has_date |= *name == DATE;
            // In a response to HEAD, and in a 304, the length is that of the omitted body.
            let is_told = is_framing_field(name) && !(says_length && *name == CONTENT_LENGTH);
            if !is_told && *name != CONNECTION {
                write_field(name, value, buffer);
            }
        }
        framing.write_field(buffer);
        match (keep_alive, self.version) {
            _ if head.status() == StatusCode::SWITCHING_PROTOCOLS => {
                write_field(&CONNECTION, b"upgrade", buffer);
            }
            (false, _) => write_field(&CONNECTION, b"close", buffer),
            (true, Version::HTTP_10) => write_field(&CONNECTION, b"keep-alive", buffer),
            (true, _) => {}
        }
        if !has_date {
            date::with_now(|now| write_field(&DATE, now.as_bytes(), buffer));
        }
        buffer.extend_from_slice(b"\r\n");
    }
}

/// Writes an informational response.
pub(super) fn write_interim(response: &Response<()>, buffer: &mut Vec<u8>) {
    write_status_line(response.status(), buffer);
    for (name, value) in response.headers().iter() {
        if !is_framing_field(name) {
            write_field(name, value, buffer);
        }
    }
    buffer.extend_from_slice(b"\r\n");
}

/// Writes the server's own version, whatever the client's (RFC 9110 section 2.5).
fn write_status_line(status: StatusCode, buffer: &mut Vec<u8>) {
    buffer.extend_from_slice(b"HTTP/1.1 ");
    buffer.extend_from_slice(status.as_str().as_bytes());
    buffer.extend_from_slice(b" ");
    buffer.extend_from_slice(reason_phrase(status).unwrap_or_default().as_bytes());
    buffer.extend_from_slice(b"\r\n");
}

fn has_never_a_body(status: StatusCode) -> bool {
    status.is_informational() || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
}

/// The response to an invalid request, the last of its connection, with these fields.
pub(super) fn refusal(
    status: StatusCode,
    reason: &str,
    fields: &[(HeaderName, HeaderValue)],
) -> Vec<u8> {
    let phrase = reason_phrase(status).unwrap_or_default();
    let body = format!("{} {phrase}: {reason}\n", status.as_str());
    let mut text = format!("HTTP/1.1 {} {phrase}\r\ndate: ", status.as_str()).into_bytes();
    date::with_now(|now| text.extend_from_slice(now.as_bytes()));
    text.extend_from_slice(b"\r\n");
    for (name, value) in fields {
        write_field(name, value.as_bytes(), &mut text);
    }
    let length = body.len();
    let rest = format!(
        "connection: close\r\ncontent-type: text/plain; charset=utf-8\r\n\
         content-length: {length}\r\n\r\n{body}"
    );
    text.extend_from_slice(rest.as_bytes());
    text
}
