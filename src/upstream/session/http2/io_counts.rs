//! Counts of what passes on a connection.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::task::Poll;

use parking_lot::Mutex;

use crate::http::http2::{ConnectionFrames, FrameObserver};

/// The counts of a connection. Only its task changes them.
#[derive(Debug, Default)]
pub(in crate::upstream) struct IoCounts {
    /// How often something was read. Wraps around.
    pub(super) reads: AtomicU32,
    /// How many bytes were written.
    pub(super) written: AtomicU64,
    /// So many streams were reset that the host may end the connection.
    pub(super) is_worn_out: AtomicBool,
    /// The latest streams that ended with a header block of several frames.
    split_ends: Mutex<VecDeque<u32>>,
}

/// The most streams to remember: far more than are open at once.
const MAX_SPLIT_ENDS: usize = 1024;

impl IoCounts {
    /// Returns true if `stream` ended with a header block of several frames. Forgets it.
    pub(super) fn take_split_end(&self, stream: u32) -> bool {
        let mut streams = self.split_ends.lock();
        let place = streams.iter().position(|&one| one == stream);
        place.and_then(|place| streams.remove(place)).is_some()
    }
}

impl FrameObserver for Arc<IoCounts> {
    fn received(&mut self, bytes: &mut [u8], frames: &mut ConnectionFrames) -> bool {
        let reads = self.reads.load(Relaxed).wrapping_add(1);
        self.reads.store(reads, Relaxed);
        frames.received(bytes, |head, _| {
            if head.is_split_end() {
                let mut streams = self.split_ends.lock();
                if streams.len() == MAX_SPLIT_ENDS {
                    streams.pop_front();
                }
                streams.push_back(head.stream);
            }
        })
    }

    fn wrote(&mut self, result: &Poll<io::Result<usize>>, frames: &ConnectionFrames) {
        if let Poll::Ready(Ok(length)) = *result {
            let written = self.written.load(Relaxed) + length as u64;
            self.written.store(written, Relaxed);
            if frames.has_reset_many() {
                self.is_worn_out.store(true, Relaxed);
            }
        }
    }

    fn end_flood(&mut self, _frames: &ConnectionFrames) -> (Option<[u8; 17]>, &'static str) {
        (None, "the upstream floods the connection with frames")
    }
}
