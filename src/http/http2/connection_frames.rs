//! The frames of both directions of a connection.

use std::io::IoSlice;

use super::flood::FloodCounter;
use super::frame_tracker::{FrameHead, FrameTracker};

/// Follows the frames of a connection, and finds a peer that floods it.
#[derive(Debug)]
pub(crate) struct ConnectionFrames {
    received: FrameTracker,
    sent: FrameTracker,
    flood: FloodCounter,
}

impl ConnectionFrames {
    /// The frames of a connection that a client has opened.
    pub(crate) fn with_client() -> Self {
        ConnectionFrames {
            received: FrameTracker::of_client(),
            sent: FrameTracker::of_server(),
            flood: FloodCounter::new(),
        }
    }

    /// The frames of a connection to a server.
    pub(crate) fn with_server() -> Self {
        ConnectionFrames {
            received: FrameTracker::of_server(),
            sent: FrameTracker::of_client(),
            flood: FloodCounter::new(),
        }
    }

    /// Follows the first `length` bytes of `bufs`, which were sent.
    pub(crate) fn sent(&mut self, bufs: &[IoSlice<'_>], mut length: usize) {
        for buf in bufs {
            let part = buf.len().min(length);
            length -= part;
            let flood = &mut self.flood;
            self.sent.observe(&buf[..part], |head, _| flood.sent(head));
        }
    }

    /// Follows bytes that were received, and passes the head of each frame to `see`, with the bytes
    /// behind it. Returns true if the peer floods the connection.
    pub(crate) fn received(&mut self, bytes: &[u8], mut see: impl FnMut(FrameHead, &[u8])) -> bool {
        let (mut is_flood, flood) = (false, &mut self.flood);
        self.received.observe(bytes, |head, rest| {
            is_flood |= flood.is_one_too_many(head);
            see(head, rest);
        });
        is_flood
    }

    /// Returns true if so many streams of this side were reset by it that the peer may take it for a
    /// flood.
    pub(crate) fn has_reset_many(&self) -> bool {
        self.flood.has_reset_many()
    }

    /// The received frames.
    pub(crate) fn tracker(&self) -> &FrameTracker {
        &self.received
    }

    /// The GOAWAY that ends a flood; `None` within a frame.
    pub(crate) fn goaway(&self) -> Option<[u8; 17]> {
        self.sent.is_between_frames().then(|| self.flood.goaway())
    }
}
