//! The combined log format: `ADDRESS IDENT USER [TIME] "REQUEST" STATUS BYTES "REFERER" "AGENT"`.
//!
//! The fields behind the request may be missing (the common log format has none), and more may
//! follow: `"X-FORWARDED-FOR"` in the format that nginx is installed with. A host may be in front, as
//! in Apache's `vhost_combined`. Quoted texts are escaped as nginx (`\x22`) or Apache (`\"`) does.

use std::borrow::Cow;
use std::net::IpAddr;

use http::StatusCode;
use http::header::{HeaderName, HeaderValue, REFERER, USER_AGENT};
use http::uri::Authority;
use http1::headers::Headers;

use super::request::{self, RequestParts};
use super::{LogEntry, LoggedHead, LoggedResponse, instant, wrong};

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
/// The text for an absent value.
const ABSENT: &[u8] = b"-";

/// Parses a line. `host` is that of requests whose target names none.
pub(super) fn read(
    line: &[u8],
    clock: &mut instant::TimeReader,
    host: &HeaderValue,
) -> Result<LogEntry, String> {
    let (first, rest) = split(line, b" ").unwrap_or((line, b""));
    let (named, peer, rest) = match address(first) {
        Some(peer) => (None, peer, rest),
        None => {
            let (second, rest) = split(rest, b" ").unwrap_or((rest, b""));
            let named = host_name(first).zip(address(second));
            let (host, peer) = named.ok_or_else(|| wrong("an address of a client", first))?;
            (Some(host), peer, rest)
        }
    };
    let (_, rest) = split(rest, b"[").ok_or("no [time]")?;
    let (time, rest) = split(rest, b"]").ok_or("no [time]")?;
    let time = clock.combined(time)?;
    let mut texts = QuotedStrings(rest);
    let request = texts.next().ok_or("no \"request\"")?;
    let response = response(texts.0);
    Ok(LogEntry {
        time,
        peer,
        head: head(&request, texts, named, host),
        response,
        granted: Vec::new(),
        banned: None,
    })
}

/// The host in front of a line, with its port.
fn host_name(text: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(text).ok()?;
    let is_other = text == "-" || text.contains(',');
    let is_host = !is_other && text.parse::<Authority>().is_ok();
    is_host.then_some(text)
}

fn address(text: &[u8]) -> Option<IpAddr> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Parses the text behind the request: the status, and the bytes of the body, `-` for none.
fn response(rest: &[u8]) -> Option<LoggedResponse> {
    let mut words = std::str::from_utf8(rest.split(|&byte| byte == b'"').next()?)
        .ok()?
        .split_ascii_whitespace();
    let status = StatusCode::from_u16(words.next()?.parse().ok()?).ok()?;
    let bytes = words.next().and_then(|bytes| match bytes.as_bytes() {
        ABSENT => Some(0),
        _ => bytes.parse().ok(),
    });
    Some(LoggedResponse {
        status,
        headers: Headers::new(),
        bytes,
        costs: Vec::new(),
    })
}

fn head(
    request: &[u8],
    mut texts: QuotedStrings<'_>,
    host: Option<&str>,
    default: &HeaderValue,
) -> Result<LoggedHead, &'static str> {
    let mut fields = Headers::new();
    for name in [REFERER, USER_AGENT, X_FORWARDED_FOR] {
        let Some(text) = texts.next() else {
            break;
        };
        // The third may be anything else.
        let is_meant = name != X_FORWARDED_FOR || has_addresses(&text);
        if &*text != ABSENT && is_meant {
            request::add(&mut fields, name.as_ref(), &text)?;
        }
    }
    let words = split(request, b" ").and_then(|(method, rest)| {
        let last = rest.iter().rposition(|&byte| byte == b' ')?;
        Some((method, &rest[..last], &rest[last + 1..]))
    });
    let (method, target, version) = words.ok_or("The log has no request line.")?;
    let parts = RequestParts {
        method,
        target,
        version,
        host,
        fields,
    };
    parts.head(default)
}

/// True for a list of addresses.
fn has_addresses(text: &[u8]) -> bool {
    let mut parts = text.split(|&byte| byte == b',');
    parts.all(|part| address(part.trim_ascii()).is_some())
}

/// The texts in quotes, one after the other; ends where a quote stays open.
struct QuotedStrings<'a>(&'a [u8]);

impl<'a> Iterator for QuotedStrings<'a> {
    type Item = Cow<'a, [u8]>;

    fn next(&mut self) -> Option<Self::Item> {
        let (_, inner) = split(self.0, b"\"")?;
        let mut is_escaped = false;
        let end = inner.iter().position(|&byte| {
            let ends = byte == b'"' && !is_escaped;
            is_escaped = byte == b'\\' && !is_escaped;
            ends
        })?;
        self.0 = &inner[end + 1..];
        Some(unescape(&inner[..end]))
    }
}

/// Resolves escapes. A backslash before any other byte stands for itself.
fn unescape(text: &[u8]) -> Cow<'_, [u8]> {
    if !text.contains(&b'\\') {
        return Cow::Borrowed(text);
    }
    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, tail @ ..] = rest {
        let (byte, length) = match (first, tail) {
            (b'\\', [b'x', high, low, ..]) => match (digit(*high), digit(*low)) {
                (Some(high), Some(low)) => (high << 4 | low, 4),
                _ => (b'\\', 1),
            },
            (b'\\', [escaped, ..]) => match escape(*escaped) {
                Some(byte) => (byte, 2),
                None => (b'\\', 1),
            },
            _ => (*first, 1),
        };
        plain.push(byte);
        rest = &rest[length..];
    }
    Cow::Owned(plain)
}

/// The byte that a letter behind a backslash stands for: see `ap_escape_logitem` of Apache.
fn escape(letter: u8) -> Option<u8> {
    Some(match letter {
        b'"' | b'\\' => letter,
        b'b' => 0x08,
        b't' => b'\t',
        b'n' => b'\n',
        b'v' => 0x0b,
        b'r' => b'\r',
        _ => return None,
    })
}

fn digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).map(|digit| digit as u8)
}

/// The texts before and behind the first of these bytes.
fn split<'a>(text: &'a [u8], at: &[u8; 1]) -> Option<(&'a [u8], &'a [u8])> {
    let place = text.iter().position(|byte| byte == &at[0])?;
    Some((&text[..place], &text[place + 1..]))
}
