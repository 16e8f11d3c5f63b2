//! The body of a response on its way to the client.
//!
//! It carries what must happen when the response is over: the exchange is counted and logged, whichever
//! way it ends.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use super::catch_panic::{self, PanicCaught};
use super::exchange::Exchange;
use crate::http::body::{RequestBody, RequestBodyError};
use crate::upstream::{BodyError, UpstreamBody};

/// What the client is sent.
#[derive(Debug)]
pub struct ResponseBody {
    content: Content,
    /// Counts and logs when it is dropped.
    exchange: Option<Box<Exchange>>,
}

#[derive(Debug)]
enum Content {
    /// Bytes of our own.
    Own(Bytes),
    /// Bytes of our own, whose length is not told.
    Streamed(Bytes),
    /// The upstream's.
    Upstream(UpstreamBody),
    /// The built-in origin: the head of the request as text, then its body.
    Echo {
        head: Bytes,
        /// Boxed: responses are moved, and few are the built-in origin's.
        body: Box<RequestBody>,
    },
}

/// Why a response ended before its end.
#[derive(Debug, thiserror::Error)]
pub enum ResponseBodyError {
    /// The upstream's broke off.
    #[error(transparent)]
    Upstream(#[from] BodyError),
    /// The request's body, which was being echoed, broke off.
    #[error(transparent)]
    Request(#[from] RequestBodyError),
    /// The code that passes it on has panicked.
    #[error(transparent)]
    Panicked(#[from] PanicCaught),
}

impl ResponseBodyError {
    /// The word by which the access log says it.
    pub(super) fn reason(&self) -> &'static str {
        match self {
            Self::Upstream(error) => error.reason().map_or("request_body", |why| why.as_str()),
            Self::Request(_) => "request_body",
            Self::Panicked(_) => "panic",
        }
    }
}

impl ResponseBody {
    /// No bytes, or `bytes` of our own.
    pub(super) fn own(bytes: Bytes) -> Self {
        Self::from(Content::Own(bytes))
    }

    /// `bytes` of our own, sent as a body whose length is not known before it ends.
    pub(super) fn streamed(bytes: Bytes) -> Self {
        Self::from(Content::Streamed(bytes))
    }

    /// What the upstream sends.
    pub(super) fn upstream(body: UpstreamBody) -> Self {
        Self::from(Content::Upstream(body))
    }

    /// `head`, then `body`.
    pub(super) fn echo(head: Bytes, body: RequestBody) -> Self {
        let body = Box::new(body);
        Self::from(Content::Echo { head, body })
    }

    fn from(content: Content) -> Self {
        ResponseBody {
            content,
            exchange: None,
        }
    }

    /// Lets `exchange` end with this body.
    pub(super) fn ends(&mut self, exchange: Box<Exchange>) {
        self.exchange = Some(exchange);
    }
}

type Polled = Poll<Option<Result<Frame<Bytes>, ResponseBodyError>>>;

impl Content {
    fn poll(&mut self, cx: &mut Context<'_>) -> Polled {
        match self {
            Self::Own(bytes) | Self::Streamed(bytes) if bytes.is_empty() => Poll::Ready(None),
            Self::Own(bytes) | Self::Streamed(bytes) | Self::Echo { head: bytes, .. }
                if !bytes.is_empty() =>
            {
                Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes)))))
            }
            Self::Own(_) | Self::Streamed(_) => Poll::Ready(None),
            Self::Echo { body, .. } => Pin::new(body)
                .poll_frame(cx)
                .map(|frame| frame.map(|frame| frame.map_err(ResponseBodyError::from))),
            Self::Upstream(body) => Pin::new(body)
                .poll_frame(cx)
                .map(|frame| frame.map(|frame| frame.map_err(ResponseBodyError::from))),
        }
    }
}

impl Content {
    fn is_end_stream(&self) -> bool {
        match self {
            Self::Own(bytes) | Self::Streamed(bytes) => bytes.is_empty(),
            Self::Upstream(body) => body.is_end_stream(),
            Self::Echo { head, body } => head.is_empty() && body.is_end_stream(),
        }
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = ResponseBodyError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Polled {
        let this = self.get_mut();
        let Some(exchange) = &mut this.exchange else {
            return this.content.poll(cx);
        };
        let content = &mut this.content;
        let polled = catch_panic::catch(exchange.metrics(), || content.poll(cx));
        let frame = match polled {
            Ok(polled) => ready!(polled),
            Err(panicked) => {
                this.content = Content::Own(Bytes::new());
                Some(Err(panicked.into()))
            }
        };
        match &frame {
            Some(Ok(frame)) => {
                exchange.sent(frame);
                if this.content.is_end_stream() {
                    exchange.ended();
                }
            }
            Some(Err(error)) => exchange.broken(error),
            None => exchange.ended(),
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.content.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Own(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Content::Streamed(_) => SizeHint::default(),
            Content::Upstream(body) => body.size_hint(),
            Content::Echo { head, body } => match body.size_hint().exact() {
                Some(length) => SizeHint::with_exact(head.len() as u64 + length),
                None => SizeHint::default(),
            },
        }
    }
}
