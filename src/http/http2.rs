//! Frames of HTTP/2 as bytes on a connection, for what the libraries do not report: header blocks
//! that do not end, and floods of frames.

mod connection_frames;
mod flood;
mod frame_tracker;

pub(crate) use connection_frames::ConnectionFrames;
pub(crate) use frame_tracker::{FrameHead, FrameTracker, HEADERS};
