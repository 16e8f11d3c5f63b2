//! Tracks the frames of one direction (RFC 9113 sections 4.1 and 6.10). hyper and h2 report
//! neither a header block that does not end nor the kinds of frames.

/// Bytes of the preface before the first frame.
const PREFACE: usize = 24;

/// Types of frames.
pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(super) const RST_STREAM: u8 = 3;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;

/// The flag of the last frame of a stream.
pub(crate) const END_STREAM: u8 = 1;
/// The flag of the last frame of a block.
pub(crate) const END_HEADERS: u8 = 4;

/// The head of a frame.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FrameHead {
    pub(crate) length: usize,
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
}

impl FrameHead {
    /// Returns true if the stream ends with this header block, whose rest is in other frames.
    pub(crate) fn is_split_end(&self) -> bool {
        self.kind == HEADERS && self.flags & (END_STREAM | END_HEADERS) == END_STREAM
    }
}

/// The progress of the frames of one direction. Malformed frames are left to the library.
#[derive(Debug, Default)]
pub(crate) struct FrameTracker {
    /// Missing bytes of the preface.
    preface: usize,
    /// The head of the next frame, as far as it was received.
    head: [u8; 9],
    filled: usize,
    /// Missing bytes of the current frame's payload.
    payload: usize,
    /// The current frame is the last of its block.
    ends_block: bool,
    /// A block has begun and has not ended.
    is_open: bool,
    /// Frames that have begun, without those within a block.
    begun: u32,
}

impl FrameTracker {
    /// A tracker of what a client sends.
    pub(super) fn of_client() -> Self {
        FrameTracker {
            preface: PREFACE,
            ..Self::default()
        }
    }

    /// Follows the bytes that come next, and passes the head of each frame to `see`, with the bytes
    /// behind it.
    pub(super) fn observe(&mut self, mut bytes: &[u8], mut see: impl FnMut(FrameHead, &[u8])) {
        skip(&mut bytes, &mut self.preface);
        while !bytes.is_empty() {
            if self.payload == 0 {
                if self.filled == 0 && !self.is_open {
                    self.begun = self.begun.wrapping_add(1);
                }
                let missing = &mut self.head[self.filled..];
                let length = missing.len().min(bytes.len());
                missing[..length].copy_from_slice(&bytes[..length]);
                bytes = &bytes[length..];
                self.filled += length;
                if self.filled < self.head.len() {
                    return;
                }
                self.filled = 0;
                see(self.begin_frame(), bytes);
            }
            skip(&mut bytes, &mut self.payload);
            if self.payload == 0 && self.ends_block {
                (self.is_open, self.ends_block) = (false, false);
            }
        }
    }

    fn begin_frame(&mut self) -> FrameHead {
        let [a, b, c, kind, flags, stream @ ..] = self.head;
        self.payload = u32::from_be_bytes([0, a, b, c]) as usize;
        if kind == HEADERS || kind == CONTINUATION {
            self.is_open = true;
            self.ends_block = flags & END_HEADERS != 0;
        }
        FrameHead {
            length: self.payload,
            kind,
            flags,
            stream: u32::from_be_bytes(stream) & (u32::MAX >> 1),
        }
    }

    /// Returns true if the next byte begins a frame.
    pub(super) fn is_between_frames(&self) -> bool {
        self.filled == 0 && self.payload == 0
    }

    /// Returns true once the preface is whole.
    pub(crate) fn has_preface(&self) -> bool {
        self.preface == 0
    }

    /// The number of the header block, or of the frame's head, that is incomplete.
    pub(crate) fn open(&self) -> Option<u32> {
        (self.is_open || self.filled > 0).then_some(self.begun)
    }
}

/// Skips up to `missing` bytes, and subtracts them from it.
fn skip(bytes: &mut &[u8], missing: &mut usize) {
    let length = bytes.len().min(*missing);
    *bytes = &bytes[length..];
    *missing -= length;
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frame(kind: u8, flags: u8, length: u8) -> Vec<u8> {
        let mut frame = vec![0, 0, length, kind, flags, 0, 0, 0, 1];
        frame.resize(9 + usize::from(length), 0xff);
        frame
    }

    /// The open block after each of these parts, which follow the preface.
    fn open(parts: &[Vec<u8>]) -> Vec<Option<u32>> {
        let mut blocks = FrameTracker::of_client();
        blocks.observe(&[b'x'; PREFACE], |_, _| ());
        let each = parts.iter().map(|part| {
            blocks.observe(part, |_, _| ());
            blocks.open()
        });
        each.collect()
    }

    #[test]
    fn a_block_is_open_until_its_last_payload() {
        let half = frame(HEADERS, END_HEADERS, 3);
        let parts = [
            frame(4, 0, 6),
            frame(HEADERS, 0, 5),
            frame(CONTINUATION, 0, 0),
            frame(CONTINUATION, END_HEADERS, 1),
            frame(0, 0, 200),
            half[..9].to_vec(),
            half[9..].to_vec(),
            frame(HEADERS, END_HEADERS, 0),
            half[..4].to_vec(),
        ];
        let first = Some(2);
        let expected = [None, first, first, None, None, Some(4), None, None, Some(6)];
        assert_eq!(open(&parts), expected);
    }

    #[test]
    fn an_incomplete_frame_head_counts_as_open() {
        let (data, block) = (frame(0, 0, 3), frame(HEADERS, 0, 3));
        let parts = [
            data[..1].to_vec(),
            data[1..8].to_vec(),
            // The next head begins in the same read, and is another.
            [&data[8..], &block[..1]].concat(),
            block[1..].to_vec(),
            frame(CONTINUATION, 0, 0)[..4].to_vec(),
        ];
        let expected = [Some(1), Some(1), Some(2), Some(2), Some(2)];
        assert_eq!(open(&parts), expected);
    }

    #[test]
    fn the_preface_is_no_frame() {
        let mut blocks = FrameTracker::of_client();
        blocks.observe(&[1; PREFACE - 1], |_, _| ());
        assert!(!blocks.has_preface());
        blocks.observe(&[1], |_, _| ());
        assert!(blocks.has_preface() && blocks.open().is_none());
    }

    proptest! {
        /// However the bytes are cut.
        #[test]
        fn pieces_make_no_difference(
            frames in prop::collection::vec((0..10_u8, any::<u8>(), 0..20_u8), 0..12),
            size in 1..40_usize,
        ) {
            let frames = frames.into_iter().map(|(kind, flags, length)| frame(kind, flags, length));
            let bytes = [vec![0; PREFACE], frames.collect::<Vec<_>>().concat()].concat();
            let (mut whole, mut cut) = (FrameTracker::of_client(), FrameTracker::of_client());
            whole.observe(&bytes, |_, _| ());
            bytes.chunks(size).for_each(|piece| cut.observe(piece, |_, _| ()));
            prop_assert_eq!(whole.open(), cut.open());
        }
    }
}
