//! `Max-Forwards` of OPTIONS requests (RFC 9110 section 7.6.2).

use http::Method;
use http::header::MAX_FORWARDS;

use super::message::Request;
use crate::whole_number;

/// `Max-Forwards` is there more than once, or is no whole number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoCount;

/// Decrements `Max-Forwards` of an OPTIONS request. Returns true if the request goes no further: this
/// proxy answers it. Other methods ignore the field; TRACE is never forwarded (`framing`).
///
/// # Errors
/// When the value is not clear.
pub(crate) fn count_down<B>(request: &mut Request<B>) -> Result<bool, NoCount> {
    if request.method() != Method::OPTIONS {
        return Ok(false);
    }
    let headers = request.headers_mut();
    let mut counts = headers.get_all(MAX_FORWARDS);
    let left = match (counts.next(), counts.next()) {
        (None, _) => return Ok(false),
        (Some(count), None) => whole_number::parse(count).ok_or(NoCount)?,
        (Some(_), Some(_)) => return Err(NoCount),
    };
    drop(counts);
    match left.checked_sub(1) {
        None => Ok(true),
        Some(left) => {
            headers.insert(MAX_FORWARDS, u64::from(left));
            Ok(false)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// True if the proxy answers, and the forwarded field.
    fn counted(method: &str, counts: &[&str]) -> (Result<bool, NoCount>, Vec<String>) {
        let mut request = http::Request::builder().method(method);
        for count in counts {
            request = request.header(MAX_FORWARDS, *count);
        }
        let mut request: Request<()> = request.body(()).expect("a request").into();
        let answers = count_down(&mut request);
        let left = request.headers().get_all(MAX_FORWARDS);
        let left = left.map(|left| String::from_utf8_lossy(left).into_owned());
        (answers, left.collect())
    }

    #[test]
    fn options_loses_a_hop() {
        for (count, left) in [
            ("1", "0"),
            ("10", "9"),
            ("007", "6"),
            ("4294967295", "4294967294"),
            ("4294967296", "4294967294"),
            ("99999999999999999999999999999999999999999999", "4294967294"),
        ] {
            let counted = counted("OPTIONS", &[count]);
            assert_eq!(counted, (Ok(false), vec![left.to_owned()]));
        }
        assert_eq!(counted("OPTIONS", &[]), (Ok(false), vec![]));
    }

    #[test]
    fn the_last_hop_answers() {
        for count in ["0", "000"] {
            assert_eq!(counted("OPTIONS", &[count]).0, Ok(true));
        }
    }

    #[test]
    fn other_methods_are_unchanged() {
        for count in ["0", "5", "x"] {
            let counted = counted("GET", &[count]);
            assert_eq!(counted, (Ok(false), vec![count.to_owned()]));
        }
    }

    #[test]
    fn an_invalid_max_forwards_is_refused() {
        for count in ["", "-1", "+1", "1.0", "1, 2", "x", "1 "] {
            assert_eq!(counted("OPTIONS", &[count]).0, Err(NoCount), "{count:?}");
        }
        assert_eq!(counted("OPTIONS", &["1", "1"]).0, Err(NoCount));
    }
}
