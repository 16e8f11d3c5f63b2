//! The body of a response on its way to the client.

mod stream_filter;

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use http_body::{Body, Frame, SizeHint};
use tokio::time::{Instant, Sleep, sleep_until};

use super::catch_panic::{self, CaughtPanic};
use crate::http::body::{PolledFrame, RequestBody, RequestBodyError};
use crate::http::message::Response;
use crate::http::service::ResponseSource;
use crate::telemetry::metrics::{EndpointFailure, RequestMetrics};
use crate::upstream::{UpstreamBody, UpstreamBodyError};
use stream_filter::{EventCutter, StreamFilter};

/// The body of a response.
#[derive(Debug)]
pub struct ResponseBody {
    content: Content,
    observer: Option<Box<dyn BodyObserver>>,
    /// The end of the time for the whole request.
    deadline: Option<Box<Deadline>>,
}

#[derive(Debug)]
struct Deadline {
    sleep: Pin<Box<Sleep>>,
    time: Duration,
}

/// The owner of an exchange, which learns how the body goes and ends with it: when it is dropped.
pub(super) trait BodyObserver: std::fmt::Debug {
    /// A frame goes to the client, which may lose trailers.
    fn sent(&mut self, frame: &mut Frame<Bytes>);
    /// Data of the upstream that the client doesn't get.
    fn left_out(&mut self, data: &[u8]);
    /// The body is complete.
    fn ended(&mut self);
    /// The body broke off.
    fn broken(&mut self, error: &ResponseBodyError);
    /// The metrics that count a panic of the body.
    fn metrics(&self) -> &RequestMetrics;
}

#[derive(Debug)]
enum Content {
    Own(Bytes),
    /// Bytes of the proxy without a `Content-Length`.
    Streamed(Bytes),
    Upstream(UpstreamBody),
    /// Events of an upstream, of which the client gets no report of usage.
    Filtered(Box<StreamFilter>),
    /// The built-in origin: the head of the request as text, then its body.
    Echo {
        head: Bytes,
        /// Boxed: responses are moved, and few come from the built-in origin.
        body: Box<RequestBody>,
    },
}

/// The reason why a body broke off.
#[derive(Debug, thiserror::Error)]
pub enum ResponseBodyError {
    /// The upstream's body broke off.
    #[error(transparent)]
    Upstream(#[from] UpstreamBodyError),
    /// The request body broke off while it was echoed.
    #[error(transparent)]
    Request(#[from] RequestBodyError),
    /// The time for the whole request is over.
    #[error("the response did not end within {0:?} (timeouts.request)")]
    Deadline(Duration),
    /// The code that forwards the body has panicked.
    #[error(transparent)]
    Panicked(#[from] CaughtPanic),
}

/// A response without fields and body.
pub(super) fn empty_response(status: StatusCode) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::own(Bytes::new()));
    *response.status_mut() = status;
    response
}

/// A response with a JSON text of this type, which no cache may store.
pub(super) fn json_response(
    status: StatusCode,
    media_type: &'static str,
    text: Bytes,
) -> Response<ResponseBody> {
    let mut response = empty_response(status);
    *response.body_mut() = ResponseBody::own(text);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

impl ResponseBodyError {
    /// The word for the access log.
    pub(super) fn reason(&self) -> &'static str {
        match self {
            Self::Upstream(error) => error.reason().map_or("request_body", |why| why.as_str()),
            Self::Request(_) => "request_body",
            Self::Deadline(_) => EndpointFailure::RequestTimeout.as_str(),
            Self::Panicked(_) => "panic",
        }
    }
}

impl ResponseBody {
    /// A body of the proxy itself.
    pub(super) fn own(bytes: Bytes) -> Self {
        Self::from(Content::Own(bytes))
    }

    /// A body of the proxy itself, sent without a `Content-Length`.
    pub(super) fn streamed(bytes: Bytes) -> Self {
        Self::from(Content::Streamed(bytes))
    }

    /// The body of an upstream's response, which must end before `deadline`.
    pub(super) fn upstream(body: UpstreamBody, deadline: Option<(Instant, Duration)>) -> Self {
        let deadline = deadline.filter(|_| !body.is_end_stream());
        let deadline = deadline.map(|(at, time)| {
            let sleep = Box::pin(sleep_until(at));
            Box::new(Deadline { sleep, time })
        });
        ResponseBody {
            deadline,
            ..Self::from(Content::Upstream(body))
        }
    }

    /// `head`, then the request's own body.
    pub(super) fn echo(head: Bytes, body: RequestBody) -> Self {
        let body = Box::new(body);
        Self::from(Content::Echo { head, body })
    }

    fn from(content: Content) -> Self {
        ResponseBody {
            content,
            observer: None,
            deadline: None,
        }
    }

    /// Leaves the report of usage out of the events of an upstream.
    pub(super) fn without_report(mut self) -> Self {
        if let Content::Upstream(body) = self.content {
            let cutter = EventCutter::default();
            self.content = Content::Filtered(Box::new(StreamFilter { body, cutter }));
        }
        self
    }

    /// Lets `observer` follow this body to its end.
    pub(super) fn observe(&mut self, observer: Box<dyn BodyObserver>) {
        self.observer = Some(observer);
    }
}

impl Content {
    fn poll(&mut self, cx: &mut Context<'_>) -> PolledFrame<ResponseBodyError> {
        match self {
            Self::Own(bytes) | Self::Streamed(bytes) | Self::Echo { head: bytes, .. }
                if !bytes.is_empty() =>
            {
                Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes)))))
            }
            Self::Own(_) | Self::Streamed(_) => Poll::Ready(None),
            Self::Echo { body, .. } => Pin::new(body).poll_frame(cx).map_err(Into::into),
            Self::Upstream(body) => Pin::new(body).poll_frame(cx).map_err(Into::into),
            Self::Filtered(body) => body.poll_frame(cx).map_err(Into::into),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Own(bytes) | Self::Streamed(bytes) => bytes.is_empty(),
            Self::Upstream(body) => body.is_end_stream(),
            Self::Filtered(body) => body.is_end_stream(),
            Self::Echo { head, body } => head.is_empty() && body.is_end_stream(),
        }
    }
}

impl ResponseSource for ResponseBody {
    /// Ends a body whose request has had its time.
    fn poll_overdue(&mut self, cx: &mut Context<'_>) -> Poll<ResponseBodyError> {
        let Some(deadline) = &mut self.deadline else {
            return Poll::Pending;
        };
        ready!(deadline.sleep.as_mut().poll(cx));
        let late = ResponseBodyError::Deadline(deadline.time);
        self.deadline = None;
        if self.content.is_end_stream() {
            // Nothing is left at the upstream.
            return Poll::Pending;
        }
        self.content = Content::Own(Bytes::new());
        if let Some(observer) = &mut self.observer {
            observer.broken(&late);
        }
        Poll::Ready(late)
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = ResponseBodyError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> PolledFrame<ResponseBodyError> {
        let this = self.get_mut();
        if let Poll::Ready(late) = this.poll_overdue(cx) {
            return Poll::Ready(Some(Err(late)));
        }
        let Some(observer) = &mut this.observer else {
            return this.content.poll(cx);
        };
        let content = &mut this.content;
        let polled = catch_panic::catch(observer.metrics(), || content.poll(cx));
        let mut frame = match polled {
            Ok(polled) => ready!(polled),
            Err(panicked) => {
                this.content = Content::Own(Bytes::new());
                Some(Err(panicked.into()))
            }
        };
        match &mut frame {
            Some(Ok(frame)) => {
                if let Content::Filtered(events) = &this.content
                    && events.cutter.is_report
                {
                    observer.left_out(frame.data_ref().map_or(&[], |data| data));
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                observer.sent(frame);
                if this.content.is_end_stream() {
                    observer.ended();
                }
            }
            Some(Err(error)) => observer.broken(error),
            None => observer.ended(),
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.content.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Own(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Content::Streamed(_) | Content::Filtered(_) => SizeHint::default(),
            Content::Upstream(body) => body.size_hint(),
            Content::Echo { head, body } => match body.size_hint().exact() {
                Some(length) => SizeHint::with_exact(head.len() as u64 + length),
                None => SizeHint::default(),
            },
        }
    }
}
