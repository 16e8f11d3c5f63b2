//! An event stream of an upstream, cut around the report of usage that the proxy has asked for, and
//! the client hasn't.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame};

use crate::http::body::PolledFrame;
use crate::rules::stream_usage;
use crate::upstream::{UpstreamBody, UpstreamBodyError};

/// The longest event that is held until its end, in bytes. A longer one is no report.
const MAX_HELD: usize = 16 * 1024;

/// A body of events. All bytes come in order, a report in a frame of its own.
#[derive(Debug)]
pub(super) struct StreamFilter {
    pub(super) body: UpstreamBody,
    pub(super) cutter: EventCutter,
}

/// Cuts the bytes of a stream around reports of usage.
#[derive(Debug, Default)]
pub(super) struct EventCutter {
    held: BytesMut,
    /// The event at the beginning is too long for a report.
    is_long: bool,
    /// The last piece is a report.
    pub(super) is_report: bool,
    /// The end of the body, with its trailers if it has some.
    end: Option<Option<Frame<Bytes>>>,
}

impl StreamFilter {
    pub(super) fn poll_frame(&mut self, cx: &mut Context<'_>) -> PolledFrame<UpstreamBodyError> {
        loop {
            if let Some(piece) = self.cutter.next() {
                return Poll::Ready(Some(Ok(Frame::data(piece))));
            }
            if let Some(trailers) = &mut self.cutter.end {
                return Poll::Ready(trailers.take().map(Ok));
            }
            let frame = ready!(Pin::new(&mut self.body).poll_frame(cx)).transpose()?;
            match frame.as_ref().and_then(Frame::data_ref) {
                Some(data) => self.cutter.held.extend_from_slice(data),
                None => self.cutter.end = Some(frame),
            }
        }
    }

    pub(super) fn is_end_stream(&self) -> bool {
        let is_read = self.cutter.held.is_empty() && self.body.is_end_stream();
        is_read && !matches!(self.cutter.end, Some(Some(_)))
    }
}

impl EventCutter {
    /// The next whole events, up to a report, or a report; what has come of a long event, or at the
    /// end all that is left.
    fn next(&mut self) -> Option<Bytes> {
        self.is_report = false;
        let mut length = 0;
        while let Some(event) = first_event(&self.held[length..], self.end.is_some()) {
            if !std::mem::take(&mut self.is_long) && stream_usage::is_report(event) {
                if length == 0 {
                    (self.is_report, length) = (true, event.len());
                }
                break;
            }
            length += event.len();
        }
        if length == 0 && self.held.len() > MAX_HELD {
            self.is_long = true;
            // A line break stays with the line that it ends, which would else be taken for empty.
            let is_text = |byte: &u8| !b"\r\n".contains(byte);
            length = self.held.iter().rposition(is_text).unwrap_or(0);
        }
        (length > 0).then(|| self.held.split_to(length).freeze())
    }
}

/// The first event, with the empty line behind it; `None` if more of it may come.
fn first_event(bytes: &[u8], has_ended: bool) -> Option<&[u8]> {
    let ends_event = |&at: &usize| match (&bytes[..at], bytes[at]) {
        (before, b'\n') => matches!(before, [] | [b'\r'] | [.., b'\n'] | [.., b'\n', b'\r']),
        (before, _) => before.ends_with(b"\r"),
    };
    let end = memchr::memchr2_iter(b'\r', b'\n', bytes).find(ends_event);
    let length = end.map_or(bytes.len() * usize::from(has_ended), |end| end + 1);
    (length > 0).then_some(&bytes[..length])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const REPORT: &str = r#"data: {"choices":[],"usage":{"total_tokens":7}}"#;

    /// What a client gets of a stream that comes in these pieces, and what is left out.
    fn cut<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> (String, String) {
        let mut cutter = EventCutter::default();
        let (mut passed, mut reports) = (Vec::new(), Vec::new());
        let mut take = |cutter: &mut EventCutter| {
            while let Some(piece) = cutter.next() {
                let to = if cutter.is_report {
                    &mut reports
                } else {
                    &mut passed
                };
                to.extend_from_slice(&piece);
            }
            assert!(cutter.held.len() <= MAX_HELD);
        };
        for piece in pieces {
            cutter.held.extend_from_slice(piece);
            take(&mut cutter);
        }
        cutter.end = Some(None);
        take(&mut cutter);
        let text = |bytes| String::from_utf8(bytes).expect("text");
        (text(passed), text(reports))
    }

    #[test]
    fn only_an_event_that_reports_usage_and_nothing_else_is_left_out() {
        let long = format!("data: {}", "x".repeat(MAX_HELD));
        for (event, is_report) in [
            (REPORT, true),
            (
                r#"data:{"id":"c","choices":[ ],"usage":{},"more":[1]}"#,
                true,
            ),
            (
                "id: 3\nevent: x\ndata: {\"choices\":[],\ndata: \"usage\":{}}\n: x",
                true,
            ),
            (r#"data: {"choices":[],"usage":null}"#, false),
            (r#"data: {"choices":[{"delta":{}}],"usage":{}}"#, false),
            (r#"data: {"choices":[],"prompt_filter_results":[]}"#, false),
            (r#"data: {"usage":{}}"#, false),
            ("data: {\"choices\":[],\"usage\":{}", false),
            ("data: [DONE]", false),
            (": {\"choices\":[],\"usage\":{}}", false),
            (&format!("{long}\n{REPORT}"), false),
        ] {
            for line_break in ["\n", "\r\n", "\r"] {
                let event = format!("{event}\n\n").replace('\n', line_break);
                let [before, after] = ["data: a\n\n", "\n: b\n\ndata: [DONE]\n\n"]
                    .map(|text| text.replace('\n', line_break));
                let stream = [&*before, &event, &after].concat();
                let passed = if is_report {
                    before + &after
                } else {
                    stream.clone()
                };
                let report = if is_report { &*event } else { "" };
                let expected = (passed, report.to_owned());
                assert_eq!(cut([stream.as_bytes()]), expected);
                assert_eq!(cut(stream.as_bytes().chunks(1)), expected);
            }
        }
        let open = format!("data: a\n\n{REPORT}");
        assert_eq!(
            cut([open.as_bytes()]),
            ("data: a\n\n".into(), REPORT.into())
        );
        assert_eq!(
            cut(["data: a".as_bytes()]),
            ("data: a".into(), String::new())
        );
    }

    proptest! {
        #[test]
        fn any_cut_of_a_stream_gives_the_same(
            texts in prop::collection::vec(prop_oneof![
                Just("\n"), Just("\r\n"), Just("\r"), Just("data: a"), Just("data: "),
                Just(REPORT), Just("x"),
            ], 0..20),
            length in 1_usize..40,
        ) {
            let stream = texts.concat();
            let (passed, reports) = cut([stream.as_bytes()]);
            prop_assert_eq!(passed.len() + reports.len(), stream.len());
            prop_assert_eq!(cut(stream.as_bytes().chunks(length)), (passed, reports));
        }
    }
}
