//! Frames of HTTP/2 as bytes on a connection, for what the libraries do not report: header blocks
//! that do not end, and floods of frames.

mod connection_frames;
mod flood;
mod frame_tracker;

pub(crate) use connection_frames::ConnectionFrames;
pub(crate) use frame_tracker::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, FrameHead, FrameTracker, HEADERS, RST_STREAM,
};

/// The flow-control window of a stream: the most bytes that a peer may send on it unread. The window
/// of a connection is that of all its streams, so that those that nobody reads delay no other.
pub(crate) const STREAM_WINDOW: u32 = 128 * 1024;
