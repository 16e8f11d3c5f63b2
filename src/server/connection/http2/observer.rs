//! Looks at the frames of a client: reports them to [`Activity`], and makes trailers malformed that h2
//! would change.

use std::io;
use std::rc::Rc;
use std::task::Poll;

use super::activity::Activity;
use super::trailers::{self, FrameVerdict, TrailerCheck};
use crate::http::http2::{ConnectionFrames, FrameObserver, WINDOW_UPDATE};

/// Reports to its connection's [`Activity`].
#[derive(Debug)]
pub(super) struct ClientObserver {
    trailers: TrailerCheck,
    activity: Rc<Activity>,
}

impl ClientObserver {
    pub(super) fn new(activity: Rc<Activity>) -> Self {
        Self {
            trailers: TrailerCheck::new(),
            activity,
        }
    }
}

impl FrameObserver for ClientObserver {
    fn received(&mut self, bytes: &mut [u8], frames: &mut ConnectionFrames) -> bool {
        let (length, mut malformed) = (bytes.len(), Vec::new());
        let mut is_closed = false;
        let is_flood = frames.received(bytes, |head, rest| {
            if head.kind == WINDOW_UPDATE {
                self.activity.widened(head.stream);
            }
            match self.trailers.judge(head, rest) {
                FrameVerdict::Pass => {}
                FrameVerdict::Reset => malformed.push(length - rest.len()),
                FrameVerdict::Close => is_closed = true,
            }
        });
        self.activity.received(&frames.received);
        malformed
            .into_iter()
            .fold(is_flood | is_closed, |is_flood, payload| {
                !trailers::spoil(bytes, payload) | is_flood
            })
    }

    fn wrote(&mut self, result: &Poll<io::Result<usize>>, _frames: &ConnectionFrames) {
        self.activity.wrote(result);
    }

    fn flushed(&mut self, is_pending: bool) {
        self.activity.flushed(is_pending);
    }

    fn is_flooded(&self) -> bool {
        self.activity.flooded.get()
    }

    fn end_flood(&mut self, frames: &ConnectionFrames) -> (Option<[u8; 17]>, &'static str) {
        self.activity.flooded.set(true);
        (
            frames.goaway(),
            "the client floods the connection with frames",
        )
    }
}
