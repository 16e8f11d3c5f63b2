//! Notices that a client takes nothing of one response, while others of its connection go on.

use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::Body;
use tokio::time::{Instant, Sleep, sleep};

use super::activity::{Activity, StreamProgress};
use crate::http::http2::BodyUpload;

/// The wait of one response for its client. Costs nothing before the first one.
pub(super) struct StallTimer {
    activity: Rc<Activity>,
    limit: Duration,
    waiting: Option<Box<Waiting>>,
}

struct Waiting {
    stream: u32,
    /// The progress when the timer was set.
    before: StreamProgress,
    timer: Pin<Box<Sleep>>,
}

impl StallTimer {
    pub(super) fn new(activity: Rc<Activity>, limit: Duration) -> Self {
        Self {
            activity,
            limit,
            waiting: None,
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
        let Self {
            activity, limit, ..
        } = self;
        if self.waiting.is_none() && upload.waits_for_body() {
            return Poll::Pending;
        }
        let waiting = self.waiting.get_or_insert_with(|| {
            let stream = upload.stream.stream_id().as_u32();
            activity.watch(stream);
            Box::new(Waiting {
                stream,
                before: activity.progress(stream, upload.taken),
                timer: Box::pin(sleep(*limit)),
            })
        });
        loop {
            ready!(waiting.timer.as_mut().poll(cx));
            let now = activity.progress(waiting.stream, upload.taken);
            if !upload.waits_for_body() && now == waiting.before {
                return Poll::Ready(());
            }
            waiting.before = now;
            waiting.timer.as_mut().reset(Instant::now() + *limit);
        }
    }
}

impl Drop for StallTimer {
    fn drop(&mut self) {
        if let Some(waiting) = &self.waiting {
            self.activity.unwatch(waiting.stream);
        }
    }
}
