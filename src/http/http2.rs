//! The parts of HTTP/2 that clients and upstreams have in common: bodies over streams, and frames as
//! bytes on a connection, for what the library does not report: header blocks that do not end, and
//! floods of frames.

mod body_upload;
mod flood;
mod frame_io;
mod frame_tracker;
mod receive_buffer;

use std::time::Duration;

pub(crate) use body_upload::{BodyUpload, UploadError};
pub(crate) use frame_io::{ConnectionFrames, FrameIo, FrameObserver};
pub(crate) use frame_tracker::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, FrameHead, FrameTracker, HEADERS, WINDOW_UPDATE,
};
pub(crate) use receive_buffer::{ReceiveBuffer, ReceiveBuffers};

/// The flow-control window of a stream: the most bytes that a peer may send on it unread. The window
/// of a connection is that of all its streams, so that those that nobody reads delay no other.
pub(crate) const STREAM_WINDOW: u32 = 128 * 1024;

/// The most streams that this side has reset whose late frames are dropped, and for how long. A frame
/// of a stream that is forgotten is an error, and h2 ends a connection with many.
pub(crate) const RESET_STREAMS: usize = 1024;
pub(crate) const RESET_TIME: Duration = Duration::from_secs(5);
