//! Frames of HTTP/2 (RFC 9113 section 4.1).

/// What a client sends first, without TLS also to choose HTTP/2 (section 3.4).
pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The bytes before the payload.
const HEAD: usize = 9;

pub(super) const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
pub(super) const PRIORITY: u8 = 2;
pub(super) const RST_STREAM: u8 = 3;
pub(super) const SETTINGS: u8 = 4;
pub(super) const PUSH_PROMISE: u8 = 5;
pub(super) const PING: u8 = 6;
pub(super) const GOAWAY: u8 = 7;
pub(super) const WINDOW_UPDATE: u8 = 8;
pub(super) const CONTINUATION: u8 = 9;

/// Of DATA and HEADERS; of SETTINGS and PING the same bit is ACK.
pub(super) const END_STREAM: u8 = 1;
pub(super) const END_HEADERS: u8 = 4;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) stream: u32,
    pub(super) payload: Vec<u8>,
}

impl Frame {
    pub(super) fn new(kind: u8, flags: u8, stream: u32, payload: impl Into<Vec<u8>>) -> Self {
        Frame {
            kind,
            flags,
            stream,
            payload: payload.into(),
        }
    }

    pub(super) fn write(&self, bytes: &mut Vec<u8>) {
        let length = self.payload.len() as u32;
        bytes.extend_from_slice(&length.to_be_bytes()[1..]);
        bytes.extend_from_slice(&[self.kind, self.flags]);
        bytes.extend_from_slice(&self.stream.to_be_bytes());
        bytes.extend_from_slice(&self.payload);
    }
}

/// The whole frames, and what follows them.
pub(super) fn frames(mut bytes: &[u8]) -> (Vec<Frame>, &[u8]) {
    let mut frames = Vec::new();
    while let Some((head, rest)) = bytes.split_first_chunk::<HEAD>() {
        let &[high, middle, low, kind, flags, a, b, c, d] = head;
        let length = u32::from_be_bytes([0, high, middle, low]) as usize;
        let Some((payload, rest)) = rest.split_at_checked(length) else {
            break;
        };
        let stream = u32::from_be_bytes([a, b, c, d]);
        frames.push(Frame::new(kind, flags, stream, payload));
        bytes = rest;
    }
    (frames, bytes)
}
