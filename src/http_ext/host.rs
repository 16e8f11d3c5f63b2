//! Which host a request is for (RFC 9112 section 3.2, RFC 9113 section 8.3.1).

use std::borrow::Cow;

use http::header::HOST;
use http::request::Parts;
use http::{Uri, Version};

/// Why it cannot be told. Each is the client's doing: 400.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    /// HTTP/1.1 asks for a Host.
    #[error("the request has no Host")]
    Missing,
    /// Two servers may take different ones.
    #[error("the request has more than one Host")]
    Several,
    /// The request line, or `:authority`, names another host than Host does.
    #[error("Host differs from the host of the request's target")]
    Mismatch,
    /// It is no host and port.
    #[error("Host is not a host with an optional port")]
    Invalid,
}

/// The host in lower case, without port and trailing dot; empty where HTTP/1.0 names none.
///
/// # Errors
/// When there is none, or it is ambiguous or malformed.
pub fn effective(parts: &Parts) -> Result<Cow<'_, str>, HostError> {
    let mut fields = parts.headers.get_all(HOST).iter();
    let field = fields.next();
    if fields.next().is_some() {
        return Err(HostError::Several);
    }
    let field = field
        .map(|value| value.to_str().map_err(|_| HostError::Invalid))
        .transpose()?;
    let host = match (parts.uri.authority(), field) {
        (Some(target), None) => target.as_str(),
        (Some(target), Some(field)) if same(&parts.uri, target.as_str(), field) => field,
        (Some(_), Some(_)) => return Err(HostError::Mismatch),
        (None, Some(field)) => field,
        (None, None) if parts.version < Version::HTTP_11 => "",
        (None, None) => return Err(HostError::Missing),
    };
    name(host)
}

/// Whether two authorities are one, the scheme's port being no difference.
fn same(uri: &Uri, target: &str, field: &str) -> bool {
    let port = match uri.scheme_str() {
        Some("https") => ":443",
        _ => ":80",
    };
    let bare = |authority: &'_ str| {
        authority.len() - authority.strip_suffix(port).map_or(0, |_| port.len())
    };
    target[..bare(target)].eq_ignore_ascii_case(&field[..bare(field)])
}

fn name(authority: &str) -> Result<Cow<'_, str>, HostError> {
    let (host, port) = match authority.strip_prefix('[') {
        Some(_) => authority.split_at(authority.find(']').ok_or(HostError::Invalid)? + 1),
        None => authority.split_at(authority.find(':').unwrap_or(authority.len())),
    };
    let port_is_valid = port.is_empty()
        || port.strip_prefix(':').is_some_and(|port| {
            port.len() <= 5 && port.bytes().all(|digit| digit.is_ascii_digit())
        });
    let host_is_valid = match host.strip_prefix('[') {
        Some(address) => address
            .trim_end_matches(']')
            .parse::<std::net::Ipv6Addr>()
            .is_ok(),
        None => host.bytes().all(is_host_byte),
    };
    if !port_is_valid || !host_is_valid {
        return Err(HostError::Invalid);
    }
    let host = host.strip_suffix('.').unwrap_or(host);
    Ok(match host.bytes().any(|byte| byte.is_ascii_uppercase()) {
        true => Cow::Owned(host.to_ascii_lowercase()),
        false => Cow::Borrowed(host),
    })
}

fn is_host_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}
