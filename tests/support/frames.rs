//! HTTP/2 frame by frame (RFC 9113 section 4): a test controls every byte. Knows enough of HPACK to
//! write requests and to read a status.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::DEADLINE;

pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const PRIORITY: u8 = 2;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PING: u8 = 6;
pub const GOAWAY: u8 = 7;
pub const WINDOW_UPDATE: u8 = 8;
pub const CONTINUATION: u8 = 9;

pub const ACK: u8 = 1;
pub const END_STREAM: u8 = 1;
pub const END_HEADERS: u8 = 4;

pub const NO_ERROR: u32 = 0;
pub const REFUSED_STREAM: u32 = 7;
pub const CANCEL: u32 = 8;
pub const ENHANCE_YOUR_CALM: u32 = 11;
pub const STREAM_CLOSED: u32 = 5;

/// The most that a payload may have before the peer allows more.
pub const MAX_PAYLOAD: usize = 16_384;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

#[derive(Clone, Debug)]
pub struct Frame {
    pub kind: u8,
    pub flags: u8,
    pub stream: u32,
    pub payload: Vec<u8>,
}

impl Frame {
    /// The error of a GOAWAY or a RST_STREAM.
    pub fn error(&self) -> Option<u32> {
        let at = match self.kind {
            GOAWAY => 4,
            RST_STREAM => 0,
            _ => return None,
        };
        let code = self.payload.get(at..at + 4)?;
        Some(u32::from_be_bytes(code.try_into().expect("four bytes")))
    }

    /// The status of HEADERS whose first field it is, as it has to be (RFC 9113 section 8.3.2).
    pub fn status(&self) -> Option<u16> {
        if self.kind != HEADERS {
            return None;
        }
        // RFC 7541 appendix A, and section 6.2 with the name's index 8; digits in its Huffman code.
        let after_size_updates = self.payload.iter().position(|byte| byte >> 5 != 1)?;
        match &self.payload[after_size_updates..] {
            [0x88, ..] => Some(200),
            [0x89, ..] => Some(204),
            [0x8c, ..] => Some(400),
            [0x8d, ..] => Some(404),
            [0x8e, ..] => Some(500),
            [0x48 | 0x08, 3, status @ ..] => {
                std::str::from_utf8(status.get(..3)?).ok()?.parse().ok()
            }
            [0x48 | 0x08, coded, status @ ..] if coded & 0x80 != 0 => {
                huffman_digits(status.get(..usize::from(coded & 0x7f))?)
            }
            _ => None,
        }
    }
}

/// Three digits in HPACK's Huffman code: 0, 1 and 2 have five bits, the others six (RFC 7541
/// appendix B).
fn huffman_digits(coded: &[u8]) -> Option<u16> {
    let bits: String = coded.iter().map(|byte| format!("{byte:08b}")).collect();
    let (mut rest, mut number) = (bits.as_str(), 0);
    for _ in 0..3 {
        let value = u16::from_str_radix(rest.get(..5)?, 2).ok()?;
        let (digit, length) = match value {
            0..=2 => (value, 5),
            _ => (
                u16::from_str_radix(rest.get(..6)?, 2)
                    .ok()?
                    .checked_sub(22)?,
                6,
            ),
        };
        number = number * 10 + digit;
        rest = &rest[length..];
    }
    Some(number)
}

/// The bytes of a frame.
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a short payload");
    let head = [
        &length.to_be_bytes()[1..],
        &[kind, flags],
        &stream.to_be_bytes(),
    ];
    [&head.concat(), payload].concat()
}

/// The field block of a GET of `/`.
pub fn get_block() -> Vec<u8> {
    // Indexed: `:method: GET`, `:scheme: http`, `:path: /`; then `:authority`, indexed by name.
    [&[0x82, 0x86, 0x84, 0x01][..], &string("a")].concat()
}

/// The field block of a 200.
pub const OK: &[u8] = &[0x88];

/// HEADERS of a response: of a whole one, or one whose body follows.
pub fn response(stream: u32, block: &[u8], is_whole: bool) -> Vec<u8> {
    let end = if is_whole { END_STREAM } else { 0 };
    frame(HEADERS, END_HEADERS | end, stream, block)
}

/// RST_STREAM.
pub fn reset(stream: u32, code: u32) -> Vec<u8> {
    frame(RST_STREAM, 0, stream, &code.to_be_bytes())
}

/// GOAWAY, with the last stream that is processed.
pub fn goaway(last: u32, code: u32) -> Vec<u8> {
    frame(
        GOAWAY,
        0,
        0,
        &[last.to_be_bytes(), code.to_be_bytes()].concat(),
    )
}

/// A field that is not indexed.
pub fn field(name: &str, value: &str) -> Vec<u8> {
    [&[0x00][..], &string(name), &string(value)].concat()
}

/// A field that is put into the dynamic table.
pub fn indexed_field(name: &str, value: &str) -> Vec<u8> {
    [&[0x40][..], &string(name), &string(value)].concat()
}

fn string(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    // An integer with a prefix of seven bits (RFC 7541 section 5.1).
    match text.len() {
        length @ 0..127 => bytes.push(length as u8),
        length => {
            bytes.push(127);
            let mut rest = length - 127;
            while rest >= 128 {
                bytes.push((rest % 128) as u8 | 0x80);
                rest /= 128;
            }
            bytes.push(rest as u8);
        }
    }
    bytes.extend_from_slice(text.as_bytes());
    bytes
}

/// HEADERS of a whole request, with as many CONTINUATION frames as its block needs.
pub fn request(stream: u32, block: &[u8]) -> Vec<u8> {
    let mut parts = block.chunks(MAX_PAYLOAD).peekable();
    let first = parts.next().expect("a block has bytes");
    let ends = |last: bool| if last { END_HEADERS } else { 0 };
    let flags = END_STREAM | ends(parts.peek().is_none());
    let mut bytes = frame(HEADERS, flags, stream, first);
    while let Some(part) = parts.next() {
        let flags = ends(parts.peek().is_none());
        bytes.extend(frame(CONTINUATION, flags, stream, part));
    }
    bytes
}

/// A connection that speaks HTTP/2 with prior knowledge.
pub struct Http2 {
    stream: TcpStream,
}

impl Http2 {
    /// Connects, and sends the preface and SETTINGS.
    pub fn open(address: SocketAddr) -> Self {
        Self::over(TcpStream::connect(address).expect("the server listens"))
    }

    /// Sends the preface and SETTINGS over a new connection.
    pub fn over(stream: TcpStream) -> Self {
        for set in [TcpStream::set_read_timeout, TcpStream::set_write_timeout] {
            set(&stream, Some(DEADLINE)).expect("a connected socket");
        }
        let mut connection = Self { stream };
        // SETTINGS_HEADER_TABLE_SIZE 0: fields of responses are whole each time.
        let settings = frame(SETTINGS, 0, 0, &[0, 1, 0, 0, 0, 0]);
        connection.send(&[PREFACE, &settings].concat());
        connection
    }

    /// Accepts a connection of a client, and sends SETTINGS with this payload; `None` if the client
    /// leaves before its preface.
    pub fn accept(stream: TcpStream, settings: &[u8]) -> Option<Self> {
        for set in [TcpStream::set_read_timeout, TcpStream::set_write_timeout] {
            set(&stream, Some(DEADLINE)).expect("a connected socket");
        }
        let mut connection = Self { stream };
        let mut preface = [0; PREFACE.len()];
        connection.stream.read_exact(&mut preface).ok()?;
        assert_eq!(preface, PREFACE);
        connection.try_send(&frame(SETTINGS, 0, 0, settings)).ok()?;
        Some(connection)
    }

    /// Waits for the head of the next request. Returns its stream.
    pub fn next_request(&mut self) -> Option<u32> {
        let mut frames = self.frames();
        Some(frames.find(|frame| frame.kind == HEADERS)?.stream)
    }

    /// Reads until the peer closes.
    pub fn drain(&mut self) {
        self.frames().for_each(drop);
    }

    /// Bounds how long a write waits for the peer to read.
    pub fn wait_to_send_for(&self, time: Duration) {
        let set = self.stream.set_write_timeout(Some(time));
        set.expect("a connected socket");
    }

    /// Closes the sending half.
    pub fn finish_sending(&self) {
        let shut = self.stream.shutdown(std::net::Shutdown::Write);
        shut.expect("a connected socket");
    }

    /// Writes these bytes.
    #[track_caller]
    pub fn send(&mut self, bytes: &[u8]) {
        self.try_send(bytes).expect("the connection takes bytes");
    }

    /// Writes these bytes to a peer that may have closed.
    ///
    /// # Errors
    /// When the peer has closed.
    pub fn try_send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// The next frame, without those for settings and windows; `None` at the end or on a reset.
    pub fn receive(&mut self) -> Option<Frame> {
        loop {
            let mut head = [0; 9];
            self.stream.read_exact(&mut head).ok()?;
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
            let mut payload = vec![0; length as usize];
            self.stream.read_exact(&mut payload).ok()?;
            let stream = u32::from_be_bytes(head[5..].try_into().expect("four bytes"));
            if ![SETTINGS, WINDOW_UPDATE].contains(&head[3]) {
                return Some(Frame {
                    kind: head[3],
                    flags: head[4],
                    stream,
                    payload,
                });
            }
        }
    }

    /// Sends a request and receives its status.
    #[track_caller]
    pub fn status_of(&mut self, stream: u32, block: &[u8]) -> u16 {
        self.send(&request(stream, block));
        let answer = self.frames().find(|frame| frame.stream == stream);
        let status = answer.as_ref().and_then(Frame::status);
        status.unwrap_or_else(|| panic!("{answer:?}"))
    }

    /// Waits until the peer has read all that was sent.
    #[track_caller]
    pub fn ping(&mut self) {
        self.send(&frame(PING, 0, 0, b"12345678"));
        let pong = |frame: Frame| (frame.kind, frame.flags) == (PING, ACK);
        assert!(self.frames().any(pong), "an answer to a ping");
    }

    /// The reason of the GOAWAY before the end, if any.
    pub fn goaway(&mut self) -> Option<u32> {
        self.frames().find(|frame| frame.kind == GOAWAY)?.error()
    }

    /// All bytes until the end.
    pub fn frames(&mut self) -> impl Iterator<Item = Frame> {
        std::iter::from_fn(|| self.receive())
    }
}
