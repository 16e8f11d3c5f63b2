//! The body of a stream.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::Frame;
use tokio::sync::mpsc;
use tokio::time::{Instant, Sleep, sleep};

use crate::http::body::PolledFrame;
use crate::telemetry::registry::GaugeGuard;

/// The longest silence of a stream.
const HEARTBEAT: Duration = Duration::from_secs(5);

/// The body of a stream. The place of its reader is free when it is dropped.
pub(in crate::admin) struct EventBody {
    messages: mpsc::Receiver<Bytes>,
    silence: Pin<Box<Sleep>>,
    /// The end of the stream, if its reader wants one.
    end: Option<Pin<Box<Sleep>>>,
    _counted: GaugeGuard,
}

impl EventBody {
    /// A body of these messages, which ends after `length`.
    pub(super) fn new(
        messages: mpsc::Receiver<Bytes>,
        length: Option<Duration>,
        counted: GaugeGuard,
    ) -> Self {
        Self {
            messages,
            silence: Box::pin(sleep(HEARTBEAT)),
            end: length.map(|length| Box::pin(sleep(length))),
            _counted: counted,
        }
    }
}

impl http_body::Body for EventBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> PolledFrame<Infallible> {
        if let Some(end) = &mut self.end
            && end.as_mut().poll(cx).is_ready()
        {
            return Poll::Ready(None);
        }
        let message = match self.messages.poll_recv(cx) {
            Poll::Ready(message) => message,
            Poll::Pending => {
                ready!(self.silence.as_mut().poll(cx));
                // A comment.
                Some(Bytes::from_static(b":\n\n"))
            }
        };
        self.silence.as_mut().reset(Instant::now() + HEARTBEAT);
        Poll::Ready(message.map(|message| Ok(Frame::data(message))))
    }
}
