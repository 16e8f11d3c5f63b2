//! The service as hyper calls it. It notes where each exchange begins, and where its response's
//! body ends.

use std::{
    future::Future,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
};

use http_body::{Body, Frame, SizeHint};
use hyper::{body::Incoming, service::Service};
use pin_project_lite::pin_project;

use super::activity::{Activity, ExchangeGuard};
use crate::http::body::RequestBody;
use crate::http::message::{Request, Response};

/// A service that reports its exchanges to the connection's [`Activity`].
#[derive(Debug)]
pub(super) struct TrackedService<S> {
    inner: S,
    activity: Rc<Activity>,
}

impl<S> TrackedService<S> {
    pub(super) fn new(inner: S, activity: Rc<Activity>) -> Self {
        Self { inner, activity }
    }
}

impl<S, B> Service<hyper::Request<Incoming>> for TrackedService<S>
where
    S: Service<Request<RequestBody>, Response = Response<B>>,
{
    type Response = hyper::Response<TrackedBody<B>>;
    type Error = S::Error;
    type Future = TrackedFuture<S::Future>;

    fn call(&self, request: hyper::Request<Incoming>) -> Self::Future {
        let exchange = self.activity.begin();
        TrackedFuture {
            inner: self
                .inner
                .call(Request::from(request).map(RequestBody::from)),
            exchange: Some(exchange),
        }
    }
}

pin_project! {
    pub(super) struct TrackedFuture<F> {
        #[pin]
        inner: F,
        exchange: Option<ExchangeGuard>,
    }
}

impl<F, B, E> Future for TrackedFuture<F>
where
    F: Future<Output = Result<Response<B>, E>>,
{
    type Output = Result<hyper::Response<TrackedBody<B>>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let response = ready!(this.inner.poll(cx))?;
        let exchange = this
            .exchange
            .take()
            .expect("a future is not polled after its end");
        exchange.respond(response.status());
        let response = response.map(|inner| TrackedBody { inner, exchange });
        Poll::Ready(Ok(response.into()))
    }
}

pin_project! {
    /// The body of a response, whose end ends the exchange.
    pub(super) struct TrackedBody<B> {
        #[pin]
        inner: B,
        exchange: ExchangeGuard,
    }
}

impl<B: Body> Body for TrackedBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let this = self.project();
        this.exchange.polled();
        let frame = ready!(this.inner.poll_frame(cx));
        this.exchange.gave_frame();
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
