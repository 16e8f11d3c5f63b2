//! Event streams (server-sent events) that come in pieces: the data of each event, without keeping
//! any of it.
//!
//! HTML Living Standard, section 9.2 "Server-sent events".

/// Returns true for the content type of event streams.
pub fn is_content_type(content_type: &[u8]) -> bool {
    let essence = content_type.split(|byte| *byte == b';').next();
    let essence = essence.unwrap_or_default().trim_ascii();
    essence.eq_ignore_ascii_case(b"text/event-stream")
}

/// A parser of an event stream.
#[derive(Debug, Default)]
pub struct EventStream {
    state: EventState,
    /// The last byte was CR: a LF after it ends no line of its own.
    after_cr: bool,
    /// The event has data so far.
    has_data: bool,
}

/// The next part of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventPart<'a> {
    /// A piece of its data.
    Data(&'a [u8]),
    /// The data goes on with another line.
    LineBreak,
    /// The event is complete, and has data.
    End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EventState {
    /// At the beginning of the stream, after this many bytes of a byte order mark.
    Start(usize),
    /// After this many bytes of `data` at the beginning of a line.
    Name(usize),
    /// After `data:`, before a space.
    Colon,
    /// In the value of `data`.
    Data,
    /// In a line that is no data.
    Other,
}

impl Default for EventState {
    fn default() -> Self {
        Self::Start(0)
    }
}

const NAME: &[u8] = b"data";
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

impl EventStream {
    /// Reads the next piece of the stream, cut anywhere, and passes its parts to `found`.
    pub fn feed<'a>(&mut self, mut bytes: &'a [u8], mut each: impl FnMut(EventPart<'a>)) {
        while let Some((&first, rest)) = bytes.split_first() {
            if std::mem::take(&mut self.after_cr) && first == b'\n' {
                bytes = rest;
                continue;
            }
            match (self.state, first) {
                (EventState::Start(length), _) if BYTE_ORDER_MARK.get(length) == Some(&first) => {
                    self.state = if length + 1 == BYTE_ORDER_MARK.len() {
                        EventState::Name(0)
                    } else {
                        EventState::Start(length + 1)
                    };
                }
                (EventState::Start(0), _) => {
                    self.state = EventState::Name(0);
                    continue;
                }
                // Part of a mark is a part of a name.
                (EventState::Start(_), _) => {
                    self.state = EventState::Other;
                    continue;
                }
                (_, b'\r' | b'\n') => {
                    self.after_cr = first == b'\r';
                    self.end_line(&mut each);
                }
                (EventState::Name(4), b':') => {
                    self.begin_data(&mut each);
                    self.state = EventState::Colon;
                }
                (EventState::Name(length), _) if NAME.get(length) == Some(&first) => {
                    self.state = EventState::Name(length + 1);
                }
                (EventState::Colon, b' ') => self.state = EventState::Data,
                (EventState::Name(_) | EventState::Other, _) => {
                    self.state = EventState::Other;
                    bytes = &bytes[line_length(bytes)..];
                    continue;
                }
                (EventState::Colon | EventState::Data, _) => {
                    self.state = EventState::Data;
                    let (data, rest) = bytes.split_at(line_length(bytes));
                    each(EventPart::Data(data));
                    bytes = rest;
                    continue;
                }
            }
            bytes = rest;
        }
    }

    /// Ends the stream. Returns true if it ends within an event that has data.
    pub fn finish(&mut self) -> bool {
        // `data` without a colon is a line without data.
        self.state = EventState::Other;
        std::mem::take(&mut self.has_data)
    }

    /// A line of data begins.
    fn begin_data<'a>(&mut self, each: &mut impl FnMut(EventPart<'a>)) {
        if std::mem::replace(&mut self.has_data, true) {
            each(EventPart::LineBreak);
        }
    }

    fn end_line<'a>(&mut self, each: &mut impl FnMut(EventPart<'a>)) {
        match self.state {
            EventState::Name(0) if std::mem::take(&mut self.has_data) => each(EventPart::End),
            EventState::Name(4) => self.begin_data(each),
            _ => {}
        }
        self.state = EventState::Name(0);
    }
}

/// The number of bytes left of the line.
fn line_length(bytes: &[u8]) -> usize {
    memchr::memchr2(b'\r', b'\n', bytes).unwrap_or(bytes.len())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The data of each event, and whether the stream ends within one.
    fn events(pieces: &[&[u8]]) -> (Vec<String>, bool) {
        let mut stream = EventStream::default();
        let (mut events, mut data) = (Vec::new(), Vec::new());
        for piece in pieces {
            stream.feed(piece, |part| match part {
                EventPart::Data(piece) => data.extend_from_slice(piece),
                EventPart::LineBreak => data.push(b'\n'),
                EventPart::End => {
                    let data = std::mem::take(&mut data);
                    events.push(String::from_utf8(data).expect("text"));
                }
            });
        }
        (events, stream.finish())
    }

    #[test]
    fn a_content_type_may_have_parameters() {
        for is in [
            "text/event-stream",
            "Text/Event-Stream;charset=utf-8",
            "text/event-stream ; x=y",
        ] {
            assert!(is_content_type(is.as_bytes()), "{is:?}");
        }
        for other in ["", "text/event-streams", "text/plain; text/event-stream"] {
            assert!(!is_content_type(other.as_bytes()), "{other:?}");
        }
    }

    #[test]
    fn reads_the_data_of_events() {
        for (text, expected, is_open) in [
            ("data: a\n\n", &["a"][..], false),
            (
                "data:a\r\n\r\ndata:  b\r\rdata: c\n\n",
                &["a", " b", "c"],
                false,
            ),
            ("\u{feff}data: a\n\n", &["a"], false),
            ("\u{feff}\u{feff}data: a\n\n", &[], false),
            ("data: a\ndata: b\n\n", &["a\nb"], false),
            (
                "data: a\nid: 3\ndata\ndata:\nevent: x\n\n",
                &["a\n\n"],
                false,
            ),
            ("data\n\n", &[""], false),
            (": comment\nevent: ping\n\n\n\ndata: a\n\n", &["a"], false),
            (
                "data: a: b\n\ndatax: c\n\nxdata: d\n\n data: e\n\n",
                &["a: b"],
                false,
            ),
            ("data: a\n", &[], true),
            ("data: a\n\ndata: b", &["a"], true),
            ("data: a\n\ndata", &["a"], false),
            ("", &[], false),
        ] {
            assert_eq!(events(&[text.as_bytes()]).0, expected, "{text:?}");
            assert_eq!(events(&[text.as_bytes()]).1, is_open, "{text:?}");
            let single: Vec<&[u8]> = text.as_bytes().chunks(1).collect();
            assert_eq!(events(&single).0, expected, "{text:?}, byte by byte");
        }
    }

    /// Reads a whole stream line by line, as the standard says it.
    fn model(text: &str) -> Vec<String> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let text = text.replace("\r\n", "\n").replace('\r', "\n");
        let (mut events, mut data) = (Vec::new(), None::<String>);
        // The last line has no end.
        let mut lines: Vec<&str> = text.split('\n').collect();
        lines.pop();
        for line in lines {
            if line.is_empty() {
                events.extend(data.take());
                continue;
            }
            let (name, value) = line.split_once(':').unwrap_or((line, ""));
            if name == "data" {
                let value = value.strip_prefix(' ').unwrap_or(value);
                data = Some(data.map_or(value.to_owned(), |data| data + "\n" + value));
            }
        }
        events
    }

    proptest! {
        #[test]
        fn reads_as_the_standard_says_however_it_is_cut(
            lines in prop::collection::vec("(data|data:|data: |dat|: ?|x|)[ a:é]{0,3}(\r\n|\n|\r|\n\n)", 0..12),
            has_mark: bool,
            cut in 0.0..1.0,
        ) {
            let mut text = lines.concat();
            if has_mark {
                text.insert(0, '\u{feff}');
            }
            let bytes = text.as_bytes();
            let (one, other) = bytes.split_at((cut * bytes.len() as f64) as usize);
            let expected = model(&text);
            prop_assert_eq!(events(&[one, other]).0, expected.clone());
            let single: Vec<&[u8]> = bytes.chunks(1).collect();
            prop_assert_eq!(events(&single).0, expected);
        }
    }
}
