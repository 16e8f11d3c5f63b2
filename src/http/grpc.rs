//! Requests of gRPC (gRPC over HTTP/2, `doc/PROTOCOL-HTTP2.md`).

use std::time::Duration;

use http::HeaderName;
use http::header::CONTENT_TYPE;

use super::headers::Headers;

static GRPC_TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");

/// The content type, before its subtype.
pub(crate) const CONTENT: &str = "application/grpc";

/// The longest deadline that is kept. A longer one is as good as none.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

/// Returns true for a request of gRPC. gRPC-Web is another protocol.
pub(crate) fn is_request(headers: &Headers) -> bool {
    headers.get(CONTENT_TYPE).is_some_and(is_content_type)
}

/// Returns true for the content types of gRPC.
pub(crate) fn is_content_type(content_type: &[u8]) -> bool {
    subtype(content_type).is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';')))
}

/// The rest of a content type that begins as those of gRPC do.
pub(crate) fn subtype(content_type: &[u8]) -> Option<&[u8]> {
    let (start, rest) = content_type.split_at_checked(CONTENT.len())?;
    start
        .eq_ignore_ascii_case(CONTENT.as_bytes())
        .then_some(rest)
}

/// The time that the client of a gRPC request gives it (`grpc-timeout`). `None` for other requests,
/// and for a malformed value, which gRPC ignores as well.
pub(crate) fn timeout(headers: &Headers) -> Option<Duration> {
    let value = headers.get(&GRPC_TIMEOUT)?;
    if !is_request(headers) {
        return None;
    }
    let (unit, digits) = value.split_last()?;
    if !(1..=8).contains(&digits.len()) || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number: u64 = str::from_utf8(digits).ok()?.parse().ok()?;
    let timeout = match unit {
        b'H' => Duration::from_secs(number * 3600),
        b'M' => Duration::from_secs(number * 60),
        b'S' => Duration::from_secs(number),
        b'm' => Duration::from_millis(number),
        b'u' => Duration::from_micros(number),
        b'n' => Duration::from_nanos(number),
        _ => return None,
    };
    Some(timeout).filter(|timeout| *timeout <= LONGEST)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn timeout_of(content_type: &'static str, timeout_value: &'static str) -> Option<Duration> {
        timeout(&Headers::from_iter([
            (CONTENT_TYPE, HeaderValue::from_static(content_type)),
            (
                GRPC_TIMEOUT.clone(),
                HeaderValue::from_static(timeout_value),
            ),
        ]))
    }

    #[test]
    fn a_timeout_is_a_number_with_a_unit() {
        let second = Duration::from_secs(1);
        for (value, expected) in [
            ("1H", 3600 * second),
            ("2M", 120 * second),
            ("3S", 3 * second),
            ("1000m", second),
            ("1000000u", second),
            ("99999999n", Duration::from_nanos(99_999_999)),
            ("0S", Duration::ZERO),
        ] {
            assert_eq!(
                timeout_of("application/grpc+proto", value),
                Some(expected),
                "{value}"
            );
        }
    }

    #[test]
    fn malformed_and_endless_timeouts_are_none() {
        for value in [
            "",
            "S",
            "1",
            "1s",
            "1 S",
            "-1S",
            "+1S",
            "123456789n",
            "1.5S",
            "99999999H",
        ] {
            assert_eq!(timeout_of("application/grpc", value), None, "{value}");
        }
    }

    #[test]
    fn other_requests_have_no_timeout() {
        for content_type in [
            "application/json",
            "application/grpcx",
            "application/grpc-web",
        ] {
            assert_eq!(timeout_of(content_type, "1S"), None, "{content_type}");
        }
    }
}
