//! Notices that a client takes nothing of one response, while others of its connection go on.

use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::Body;

use super::activity::{Activity, StreamProgress};
use crate::http::http2::BodyUpload;
use crate::net::idle_timer::IdleTimer;

/// The wait of one response for its client, since the first time that it had to wait.
pub(super) struct StallTimer {
    activity: Rc<Activity>,
    stream: u32,
    /// The progress when the timer was set.
    before: StreamProgress,
    timer: IdleTimer,
}

impl StallTimer {
    /// A timer for a response that waits from now on.
    pub(super) fn new<B>(activity: &Rc<Activity>, upload: &BodyUpload<B>, limit: Duration) -> Self {
        let stream = upload.stream.stream_id().as_u32();
        activity.watch(stream);
        Self {
            activity: activity.clone(),
            stream,
            before: activity.progress(stream, upload.taken),
            timer: IdleTimer::new(limit),
        }
    }

    /// Becomes ready once the client has taken nothing for the limit, at the latest for twice as long.
    /// Must be polled when the body is pending.
    pub(super) fn poll_stalled<B>(
        &mut self,
        upload: &BodyUpload<B>,
        cx: &mut Context<'_>,
    ) -> Poll<()>
    where
        B: Body<Data = Bytes> + Unpin,
    {
        loop {
            ready!(self.timer.poll_expired(cx));
            let now = self.activity.progress(self.stream, upload.taken);
            if !upload.waits_for_body() && now == self.before {
                return Poll::Ready(());
            }
            self.before = now;
            self.timer.reset();
        }
    }
}

impl Drop for StallTimer {
    fn drop(&mut self) {
        self.activity.unwatch(self.stream);
    }
}
