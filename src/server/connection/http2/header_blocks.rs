//! Header blocks of a client, found in its frames as they are read (RFC 9113 sections 4.1 and 6.10): hyper tells nobody of
//! one that does not end.

/// Bytes of the preface, which comes before the first frame.
const PREFACE: usize = 24;

/// Types of frames.
const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;

/// The flag of the last frame of a block.
const END_HEADERS: u8 = 4;

/// How far a client has come with what it sends. Malformed frames are left to hyper.
#[derive(Debug)]
pub(super) struct HeaderBlocks {
    /// Bytes of the preface that are to come.
    preface: usize,
    /// The head of the next frame: its first bytes.
    head: [u8; 9],
    filled: usize,
    /// Bytes of the current frame's payload that are to come.
    payload: usize,
    /// Whether the current frame is the last of its block.
    ends_block: bool,
    /// Whether a block has begun and has not ended.
    is_open: bool,
    /// Frames that have begun, those within a block left out.
    begun: u32,
}

impl HeaderBlocks {
    pub(super) fn new() -> Self {
        HeaderBlocks {
            preface: PREFACE,
            head: [0; 9],
            filled: 0,
            payload: 0,
            ends_block: false,
            is_open: false,
            begun: 0,
        }
    }

    /// Follows the bytes that come next.
    pub(super) fn observe(&mut self, mut bytes: &[u8]) {
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
                self.begin_frame();
            }
            skip(&mut bytes, &mut self.payload);
            if self.payload == 0 && self.ends_block {
                (self.is_open, self.ends_block) = (false, false);
            }
        }
    }

    fn begin_frame(&mut self) {
        let [a, b, c, kind, flags, ..] = self.head;
        self.payload = u32::from_be_bytes([0, a, b, c]) as usize;
        if kind == HEADERS || kind == CONTINUATION {
            self.is_open = true;
            self.ends_block = flags & END_HEADERS != 0;
        }
    }

    /// Whether the preface is there whole.
    pub(super) fn has_preface(&self) -> bool {
        self.preface == 0
    }

    /// The number of the header block, or of the frame's head, that has begun and has not ended.
    pub(super) fn open(&self) -> Option<u32> {
        (self.is_open || self.filled > 0).then_some(self.begun)
    }
}

/// Leaves out of `bytes` as many as `missing` says, which is less by them.
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

    /// Which block is open after each of these, the preface having come before them.
    fn open(parts: &[Vec<u8>]) -> Vec<Option<u32>> {
        let mut blocks = HeaderBlocks::new();
        blocks.observe(&[b'x'; PREFACE]);
        let each = parts.iter().map(|part| {
            blocks.observe(part);
            blocks.open()
        });
        each.collect()
    }

    #[test]
    fn a_block_is_open_until_the_payload_that_ends_it() {
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
    fn a_head_that_is_not_whole_is_open_as_the_block_that_it_begins() {
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
        let mut blocks = HeaderBlocks::new();
        blocks.observe(&[1; PREFACE - 1]);
        assert!(!blocks.has_preface());
        blocks.observe(&[1]);
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
            let (mut whole, mut cut) = (HeaderBlocks::new(), HeaderBlocks::new());
            whole.observe(&bytes);
            bytes.chunks(size).for_each(|piece| cut.observe(piece));
            prop_assert_eq!(whole.open(), cut.open());
        }
    }
}
