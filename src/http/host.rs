//! The host of a request (RFC 9112 section 3.2, RFC 9113 section 8.3.1).
//!
//! Most requests name a host in the same spelling as earlier ones: each thread caches some.

use std::borrow::Cow;
use std::cell::RefCell;
use std::net::Ipv6Addr;
use std::rc::Rc;

use http::header::HOST;
use http::{Uri, Version};

use crate::http::connection::Scheme;
use crate::http::http1::ParseCache;
use crate::http::message::Request;
use crate::whole_number;

/// The longest name that DNS has, with its trailing dot (RFC 1035 section 2.3.4).
const MAX_LENGTH: usize = 254;

/// The number of cached authorities, a power of two.
const PLACES: usize = 64;

/// The longest cached authority, in bytes.
const LONGEST_REMEMBERED: usize = 64;

thread_local! {
    static AUTHORITIES: RefCell<ParseCache<Authority, PLACES>> = const { RefCell::new(ParseCache::EMPTY) };
}

/// Reasons why the host is unknown. Each is the client's fault: 400. The text is a sentence for
/// the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
pub enum HostError {
    /// HTTP/1.1 asks for a Host, even beside an absolute target.
    #[strum(serialize = "The request has no Host.")]
    Missing,
    /// Two servers may use different ones.
    #[strum(serialize = "The request has more than one Host.")]
    Several,
    /// The request line, or `:authority`, names another host than Host does.
    #[strum(serialize = "Host differs from the host of the request's target.")]
    Mismatch,
    /// The target has another scheme than `http` or `https`.
    #[strum(serialize = "The request's target isn't an http or https URL.")]
    Scheme,
    /// It is no host and port.
    #[strum(serialize = "Host is not a host with an optional port.")]
    Invalid,
}

/// Returns the host in lower case, without port and trailing dot, an IPv6 address in its shortest
/// form. It is empty if a request of HTTP/1.0 names none.
///
/// # Errors
/// When the host is missing, ambiguous or malformed.
pub fn effective<B>(request: &Request<B>) -> Result<Rc<str>, HostError> {
    let (uri, version) = (request.uri(), request.version());
    if !matches!(uri.scheme_str(), None | Some("http" | "https")) {
        return Err(HostError::Scheme);
    }
    let mut fields = request.headers().get_all(HOST);
    let field = fields.next();
    if fields.next().is_some() {
        return Err(HostError::Several);
    }
    let field = field.map(Authority::of).transpose()?;
    let target = uri.authority();
    let target = target
        .map(|target| Authority::of(target.as_str().as_bytes()))
        .transpose()?;
    match (target, field) {
        (Some(target), Some(field)) if target.is(&field, uri) => Ok(field.host),
        (Some(_), Some(_)) => Err(HostError::Mismatch),
        (_, None) if version == Version::HTTP_11 => Err(HostError::Missing),
        (Some(only), None) | (None, Some(only)) => Ok(only.host),
        (None, None) if version < Version::HTTP_11 => Ok(Rc::default()),
        (None, None) => Err(HostError::Missing),
    }
}

/// A host and a port, without user information, which HTTP does not have (RFC 9110 section 4.2.4).
#[derive(Clone, Debug)]
struct Authority {
    host: Rc<str>,
    port: Option<u16>,
}

impl Authority {
    fn of(text: &[u8]) -> Result<Self, HostError> {
        if text.len() > LONGEST_REMEMBERED {
            return Authority::parse(text);
        }
        AUTHORITIES.with_borrow_mut(|known| known.read(text, place(text), Authority::parse))
    }

    fn parse(text: &[u8]) -> Result<Self, HostError> {
        let end = match text.first() {
            Some(b'[') => text.iter().position(|&byte| byte == b']').map(|at| at + 1),
            _ => Some(text.iter().take_while(|&&byte| byte != b':').count()),
        };
        let (host, port) = text.split_at(end.ok_or(HostError::Invalid)?);
        Ok(Authority {
            host: name(host).ok_or(HostError::Invalid)?.into(),
            port: match port {
                [] | [b':'] => None,
                [b':', digits @ ..] => Some(port_number(digits).ok_or(HostError::Invalid)?),
                _ => return Err(HostError::Invalid),
            },
        })
    }

    /// Returns true if both are the same, with or without the scheme's port.
    fn is(&self, other: &Self, uri: &Uri) -> bool {
        let default = Scheme::of(uri).unwrap_or_default().default_port();
        let ports = [self.port, other.port].map(|port| port.unwrap_or(default));
        self.host == other.host && ports[0] == ports[1]
    }
}

/// The place of an authority in the cache. Many hosts differ in one character, anywhere.
fn place(text: &[u8]) -> usize {
    let (words, rest) = text.as_chunks::<8>();
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    let words = words.iter().chain([&last]);
    let mixed = words.fold(0_u64, |mixed, word| {
        (mixed ^ u64::from_le_bytes(*word)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    });
    // A difference in the highest byte of a word only reaches the highest byte of the product.
    (mixed >> 56) as usize
}

/// The canonical spelling of a host's name; `None` if it is invalid.
fn name(host: &[u8]) -> Option<Cow<'_, str>> {
    if host.starts_with(b"[") {
        return address(str::from_utf8(host).ok()?);
    }
    if host.len() > MAX_LENGTH {
        return None;
    }
    let host = host.strip_suffix(b".").unwrap_or(host);
    let (mut before, mut has_upper_case) = (b'.', false);
    for &byte in host {
        let fits = is_host_byte(byte) || (byte == b'.' && before != b'.');
        if !fits {
            return None;
        }
        has_upper_case |= byte.is_ascii_uppercase();
        before = byte;
    }
    let host = str::from_utf8(host).ok()?;
    match (before, has_upper_case) {
        // No name, or one more dot than may stand at the end.
        (b'.', _) => None,
        (_, true) => Some(Cow::Owned(host.to_ascii_lowercase())),
        (_, false) => Some(Cow::Borrowed(host)),
    }
}

/// The canonical spelling of an IPv6 address in brackets.
fn address(host: &str) -> Option<Cow<'_, str>> {
    let address: Ipv6Addr = host.strip_prefix('[')?.strip_suffix(']')?.parse().ok()?;
    let shortest = format!("[{address}]");
    Some(if shortest == host {
        Cow::Borrowed(host)
    } else {
        Cow::Owned(shortest)
    })
}

/// A port of decimal digits.
pub(super) fn port_number(digits: &[u8]) -> Option<u16> {
    u16::try_from(whole_number::parse(digits)?).ok()
}

fn is_host_byte(byte: u8) -> bool {
    const HOST_BYTES: [bool; 256] = {
        let mut bytes = [false; 256];
        let mut byte = 0;
        while byte < 256 {
            let char = byte as u8;
            bytes[byte] = char.is_ascii_alphanumeric() || matches!(char, b'-' | b'_' | b'~');
            byte += 1;
        }
        bytes
    };
    HOST_BYTES[usize::from(byte)]
}

#[cfg(test)]
mod tests;
