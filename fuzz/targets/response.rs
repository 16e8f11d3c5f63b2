//! Responses of HTTP/1, read by their own framing.

use http::Method;

/// The most fields of a response, and of its trailers.
const MAX_FIELDS: usize = 256;

/// A final response.
#[derive(Debug)]
pub(super) struct Response {
    pub(super) status: u16,
    /// It is the last of its connection.
    pub(super) closes: bool,
    /// The body, without chunk sizes and trailers.
    pub(super) body: Vec<u8>,
}

/// Reads all responses of a connection to requests with these methods; a response to no request is a
/// refusal. The last one may be incomplete if the connection `broke`.
pub(super) fn responses(mut output: &[u8], methods: &[Method], broke: bool) -> Vec<Response> {
    let mut responses: Vec<Response> = Vec::new();
    while !output.is_empty() {
        assert!(
            responses.last().is_none_or(|last| !last.closes),
            "a response after the last: {}",
            String::from_utf8_lossy(output)
        );
        let method = methods.get(responses.len());
        let Some((response, rest)) = response(output, method) else {
            assert!(broke, "incomplete: {}", String::from_utf8_lossy(output));
            break;
        };
        responses.extend(response);
        output = rest;
    }
    responses
}

/// The first response, `None` for an interim one, and what follows; `None` if it is incomplete.
fn response<'a>(output: &'a [u8], method: Option<&Method>) -> Option<(Option<Response>, &'a [u8])> {
    let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
    let mut head = httparse::Response::new(&mut fields);
    let parsed = head.parse(output);
    let parsed = parsed.unwrap_or_else(|error| {
        panic!("{error}: {}", String::from_utf8_lossy(output));
    });
    let httparse::Status::Complete(length) = parsed else {
        return None;
    };
    let status = head.code.expect("parsed");
    let values = |name: &str| {
        let fields = head.headers.iter();
        let named = fields.filter(|field| field.name.eq_ignore_ascii_case(name));
        let values: Vec<&[u8]> = named.map(|field| field.value).collect();
        assert!(values.len() <= 1, "{name} twice in {head:?}");
        values.first().copied()
    };
    let (length_field, coding) = (values("content-length"), values("transfer-encoding"));
    let rest = &output[length..];
    if (100..200).contains(&status) && status != 101 {
        assert!(length_field.is_none() && coding.is_none(), "{head:?}");
        return Some((None, rest));
    }
    assert!(length_field.is_none() || coding.is_none(), "{head:?}");
    assert!(coding.is_none_or(|coding| coding == b"chunked"), "{head:?}");
    let closes = values("connection").is_some_and(|value| value == b"close");
    let has_none = method == Some(&Method::HEAD) || matches!(status, 204 | 304);
    let (body, rest) = match (length_field, coding) {
        _ if status == 101 => (rest.to_vec(), &rest[rest.len()..]),
        _ if has_none => (Vec::new(), rest),
        (Some(digits), _) => {
            let digits = str::from_utf8(digits).expect("digits");
            let length: usize = digits.parse().expect("a number");
            let (body, rest) = rest.split_at_checked(length)?;
            (body.to_vec(), rest)
        }
        (None, Some(_)) => chunks(rest)?,
        (None, None) => {
            assert!(closes, "a body without an end: {head:?}");
            (rest.to_vec(), &rest[rest.len()..])
        }
    };
    let response = Response {
        status,
        closes,
        body,
    };
    Some((Some(response), rest))
}

/// The body in chunks, and what follows its trailers.
fn chunks(mut rest: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut body = Vec::new();
    loop {
        let parsed = httparse::parse_chunk_size(rest).expect("a chunk's size");
        let httparse::Status::Complete((start, size)) = parsed else {
            return None;
        };
        rest = &rest[start..];
        if size == 0 {
            break;
        }
        let (data, after) = rest.split_at_checked(size as usize)?;
        body.extend_from_slice(data);
        let (line_break, after) = after.split_at_checked(2)?;
        assert_eq!(line_break, b"\r\n", "behind a chunk");
        rest = after;
    }
    let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
    match httparse::parse_headers(rest, &mut fields).expect("trailers") {
        httparse::Status::Complete((length, _)) => Some((body, &rest[length..])),
        httparse::Status::Partial => None,
    }
}
