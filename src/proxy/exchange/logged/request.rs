//! The parts of a request that its access-log line has.

use http::header::{self, HeaderName};

use super::super::traced::TRACEPARENT;
use crate::http::message::Request;
use crate::telemetry::access_log::{
    LogField, LoggedHeader, LoggedParts, MAX_HEADER_VALUE, MAX_HEADER_VALUES, RequestTexts,
};
use crate::telemetry::spans::context::TraceContext;

const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Copies of the request's texts for its access-log line. One copy costs less than sharing the
/// buffer of the head, which would live longer.
#[derive(Debug)]
pub(in crate::proxy) struct LoggedRequest {
    texts: Box<[u8]>,
    lengths: [u32; TEXTS],
    /// Values of the operator's header fields, whose texts follow the others.
    headers: Box<[LoggedValue]>,
}

/// A value of a header field.
#[derive(Clone, Copy, Debug)]
struct LoggedValue {
    /// The index of the field's name.
    field: u16,
    length: u16,
    is_cut: bool,
}

/// The host alone; the last colon of an IPv6 address stands before a bracket.
fn without_port(host: &[u8]) -> &[u8] {
    let colon = host.iter().rposition(|&byte| byte == b':');
    match colon.map(|at| host.split_at(at)) {
        Some((host, port)) if !port.contains(&b']') => host,
        _ => host,
    }
}

/// Target, host, referer, user agent, request id and trace id.
const TEXTS: usize = 6;

impl LoggedRequest {
    /// Copies the parts that lines have.
    pub(in crate::proxy) fn new<B>(request: &Request<B>, parts: &LoggedParts) -> Self {
        let (mut host, mut referer, mut user_agent) = (None, None, None);
        let (mut request_id, mut traceparent) = (None, None);
        let [has_host, has_request_id, has_trace] =
            [LogField::Host, LogField::RequestId, LogField::TraceId].map(|field| parts.has(field));
        let mut headers: Vec<(LoggedValue, &[u8])> = Vec::new();
        // One pass: a look-up for each field would cost more.
        for (name, value) in request.headers().iter() {
            if let Some(field) = parts.headers.iter().position(|wanted| wanted == name) {
                note_header(&mut headers, field, value);
            }
            let place = match *name {
                header::REFERER if parts.has(LogField::Referer) => &mut referer,
                header::USER_AGENT if parts.has(LogField::UserAgent) => &mut user_agent,
                header::HOST if has_host => &mut host,
                _ if has_request_id && *name == X_REQUEST_ID => &mut request_id,
                _ if has_trace && *name == TRACEPARENT => &mut traceparent,
                _ => continue,
            };
            place.get_or_insert(value);
        }
        let uri = request.uri();
        let target = uri.path_and_query().filter(|_| parts.has(LogField::Path));
        // HTTP/2 has the host in the target.
        let authority = || uri.authority().map(|host| host.as_str().as_bytes());
        let texts = [
            target.map(|target| target.as_str().as_bytes()),
            host.or_else(|| has_host.then(authority).flatten())
                .map(without_port),
            referer,
            user_agent,
            request_id,
            traceparent.and_then(trace_id),
        ]
        .map(Option::unwrap_or_default);
        headers.sort_by_key(|(value, _)| value.field);
        let values = headers.iter().map(|(_, text)| *text);
        let all = texts.into_iter().chain(values);
        let mut joined = Vec::with_capacity(all.clone().map(<[u8]>::len).sum());
        for text in all.filter(|text| !text.is_empty()) {
            joined.extend_from_slice(text);
        }
        LoggedRequest {
            texts: joined.into(),
            // Heads are bounded far below 4 GiB.
            lengths: texts.map(|text| text.len() as u32),
            headers: headers.into_iter().map(|(value, _)| value).collect(),
        }
    }

    pub(super) fn texts(&self) -> RequestTexts<'_> {
        let mut rest = &*self.texts;
        let [path, host, referer, user_agent, request_id, trace_id] = self.lengths.map(|length| {
            let (text, after) = rest.split_at(length as usize);
            rest = after;
            text
        });
        RequestTexts {
            path,
            host,
            referer,
            user_agent,
            request_id,
            trace_id,
        }
    }

    /// The operator's header fields, which have these names.
    pub(super) fn headers<'a>(
        &'a self,
        names: &'a [HeaderName],
    ) -> impl Iterator<Item = LoggedHeader<'a>> {
        let before: u32 = self.lengths.iter().sum();
        let mut rest = &self.texts[before as usize..];
        self.headers.iter().map(move |one| {
            let (value, after) = rest.split_at(one.length.into());
            rest = after;
            LoggedHeader {
                name: names[usize::from(one.field)].as_str(),
                value,
                is_cut: one.is_cut,
            }
        })
    }
}

/// Adds a value of the operator's header field with this index, cut to its bound. If a line has no
/// room for more values, the last one of the field is marked instead.
fn note_header<'a>(headers: &mut Vec<(LoggedValue, &'a [u8])>, field: usize, value: &'a [u8]) {
    // Names are few: the configuration bounds them.
    let field = field as u16;
    if headers.len() >= MAX_HEADER_VALUES {
        let mut known = headers.iter_mut().rev();
        if let Some((last, _)) = known.find(|(known, _)| known.field == field) {
            last.is_cut = true;
        }
        return;
    }
    let text = &value[..value.len().min(MAX_HEADER_VALUE)];
    let noted = LoggedValue {
        field,
        length: text.len() as u16,
        is_cut: text.len() < value.len(),
    };
    headers.push((noted, text));
}

/// The trace id of a valid Traceparent field.
fn trace_id(field: &[u8]) -> Option<&[u8]> {
    TraceContext::parse(field).map(|_| &field[3..35])
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;
    use crate::telemetry::access_log::{AccessLogSpec, LineFormat, LogTarget};

    #[test]
    fn header_fields_are_kept_up_to_their_bounds() {
        let names = ["x-a", "x-b"].map(HeaderName::from_static);
        let parts = LoggedParts::of(&AccessLogSpec {
            headers: names.to_vec(),
            ..AccessLogSpec::new(LineFormat::Json, LogTarget::Stdout)
        });
        let mut request = Request::new(());
        let long = "b".repeat(MAX_HEADER_VALUE + 1);
        for (name, value) in [("x-b", &*long), ("x-c", "c"), ("x-a", "1"), ("x-a", "")] {
            let value = HeaderValue::from_str(value).expect("a value");
            request
                .headers_mut()
                .append(HeaderName::from_static(name), value);
        }
        let kept = |request: &Request<()>| -> Vec<_> {
            let logged = LoggedRequest::new(request, &parts);
            let headers = logged.headers(&names);
            headers
                .map(|one| (one.name.to_owned(), one.value.len(), one.is_cut))
                .collect()
        };
        let expected = [
            ("x-a", 1, false),
            ("x-a", 0, false),
            ("x-b", MAX_HEADER_VALUE, true),
        ];
        let expected = expected.map(|(name, length, cut)| (name.to_owned(), length, cut));
        assert_eq!(kept(&request), expected);
        for _ in 0..100 {
            let value = HeaderValue::from_static("more");
            request.headers_mut().append(names[0].clone(), value);
        }
        let kept = kept(&request);
        assert_eq!(kept.len(), MAX_HEADER_VALUES);
        let last = kept.iter().rev().find(|(name, ..)| name == "x-a");
        assert!(last.is_some_and(|(.., is_cut)| *is_cut), "{kept:?}");
    }
}
