//! The service as hyper calls it. It notes where each exchange begins, and where its response's
//! body ends.

use std::{
    future::Future,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http::StatusCode;
use http::header::{COOKIE, HeaderMap};
use http_body::{Body, Frame, SizeHint};
use hyper::{body::Incoming, service::Service};
use pin_project_lite::pin_project;

use super::activity::{Activity, ExchangeGuard};
use super::tunnel::Tunnel;
use crate::http::body::RequestBody;
use crate::http::message::{Request, Response};
use crate::http::trailers;

/// A service that reports its exchanges to the connection's [`Activity`].
#[derive(Debug)]
pub(super) struct TrackedService<S> {
    inner: S,
    /// The largest head; 431 beyond.
    max_head: usize,
    activity: Rc<Activity>,
    max_fields: usize,
}

impl<S> TrackedService<S> {
    pub(super) fn new(
        inner: S,
        (max_head, max_fields): (usize, usize),
        activity: Rc<Activity>,
    ) -> Self {
        Self {
            inner,
            max_head,
            activity,
            max_fields,
        }
    }
}

impl<S, B> Service<hyper::Request<Incoming>> for TrackedService<S>
where
    S: Service<Request<RequestBody>, Response = Response<B>>,
    B: Body<Data = Bytes> + Unpin + 'static,
{
    type Response = hyper::Response<TrackedBody<B>>;
    type Error = S::Error;
    type Future = TrackedFuture<S::Future>;

    fn call(&self, request: hyper::Request<Incoming>) -> Self::Future {
        let exchange = Some(self.activity.begin());
        let target = request.uri().path_and_query();
        let target = target.map_or(0, |target| target.as_str().len());
        let headers = request.headers();
        if target + trailers::size(headers) > self.max_head
            || has_more_fields(headers, self.max_fields)
        {
            return TrackedFuture {
                waits: false,
                inner: None,
                exchange,
                tunnel: None,
            };
        }
        let (request, tunnel) = Tunnel::of(request);
        TrackedFuture {
            waits: self.activity.has_resets(),
            inner: Some(self.inner.call(request)),
            exchange,
            tunnel,
        }
    }
}

/// Returns true for more than `most` fields. Clients of HTTP/2 split `Cookie` (RFC 9113 section
/// 8.2.3).
fn has_more_fields(fields: &HeaderMap, most: usize) -> bool {
    fields.len() > most && {
        let cookies = fields.get_all(COOKIE).iter().count();
        fields.len() - cookies.saturating_sub(1) > most
    }
}

pin_project! {
    pub(super) struct TrackedFuture<F> {
        // hyper looks for a reset only after it has polled this: no upstream must see a stream that
        // ended with its beginning.
        waits: bool,
        // `None` for a head that is too large, or has too many fields.
        #[pin]
        inner: Option<F>,
        exchange: Option<ExchangeGuard>,
        tunnel: Option<Box<Tunnel>>,
    }
}

impl<F, B, E> Future for TrackedFuture<F>
where
    F: Future<Output = Result<Response<B>, E>>,
    B: Body<Data = Bytes> + Unpin + 'static,
{
    type Output = Result<hyper::Response<TrackedBody<B>>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        if std::mem::take(this.waits) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let response = match this.inner.as_pin_mut() {
            Some(inner) => Some(ready!(inner.poll(cx))),
            None => None,
        };
        let mut exchange = this
            .exchange
            .take()
            .expect("a future is not polled after its end");
        let Some(response) = response else {
            exchange.respond(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE);
            exchange.finish();
            let mut refused = hyper::Response::new(TrackedBody(None));
            *refused.status_mut() = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
            return Poll::Ready(Ok(refused));
        };
        let response = response.inspect_err(|_| exchange.finish())?;
        exchange.respond(response.status());
        if response.body().is_end_stream() {
            exchange.finish();
        }
        let response = match this.tunnel.take() {
            None => response.map(|inner| Some((inner, exchange))),
            Some(tunnel) => tunnel.open(response, exchange),
        };
        Poll::Ready(Ok(response.map(TrackedBody).into()))
    }
}

/// The body of a response, whose end ends the exchange; `None` for none.
pub(super) struct TrackedBody<B>(Option<(B, ExchangeGuard)>);

impl<B: Body + Unpin> Body for TrackedBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let Some((inner, exchange)) = &mut self.get_mut().0 else {
            return Poll::Ready(None);
        };
        exchange.polled();
        let frame = ready!(Pin::new(&mut *inner).poll_frame(cx));
        exchange.gave_frame();
        if !matches!(&frame, Some(Ok(frame)) if frame.is_data()) || inner.is_end_stream() {
            exchange.finish();
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.0
            .as_ref()
            .is_none_or(|(inner, _)| inner.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        let hint = self.0.as_ref().map(|(inner, _)| inner.size_hint());
        hint.unwrap_or_else(|| SizeHint::with_exact(0))
    }
}
