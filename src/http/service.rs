//! Services that answer the requests of connections.

use std::future::Ready;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::Body;
use tokio_util::either::Either;

use super::body::RequestBody;
use super::message::{Request, Response};

/// Any error.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A future that may be ready without polling.
pub trait ServiceFuture: Future + Unpin {
    /// The future of an output that is still to come. It is small.
    type Pending: Future<Output = Self::Output> + Unpin + 'static;

    /// Returns the output.
    ///
    /// # Errors
    /// It is still to come.
    fn ready(self) -> Result<Self::Output, Self::Pending>;
}

/// Never known to be ready.
impl<F: Future + ?Sized + 'static> ServiceFuture for Pin<Box<F>> {
    type Pending = Self;

    fn ready(self) -> Result<Self::Output, Self> {
        Err(self)
    }
}

/// Always ready.
impl<T: 'static> ServiceFuture for Ready<T> {
    type Pending = Self;

    fn ready(self) -> Result<T, Self> {
        Ok(self.into_inner())
    }
}

/// The body of a response, whose time may end while the client takes nothing of it.
pub trait ResponseSource: Body<Data = Bytes, Error: Into<BoxError>> + Unpin {
    /// Becomes ready with the reason once the body may no longer be sent. Must be polled when the
    /// client has no room for more. By default there is no such time.
    fn poll_overdue(&mut self, _cx: &mut Context<'_>) -> Poll<Self::Error> {
        Poll::Pending
    }
}

/// Ready, or still to come.
impl<T: 'static, P: Future<Output = T> + Unpin + 'static> ServiceFuture for Either<Ready<T>, P> {
    type Pending = P;

    fn ready(self) -> Result<T, P> {
        match self {
            Self::Left(ready) => Ok(ready.into_inner()),
            Self::Right(pending) => Err(pending),
        }
    }
}

/// A service that runs on one thread, over HTTP/1 and HTTP/2. Functions of requests are services.
pub trait HttpService: 'static {
    /// The body of its responses.
    type Body: ResponseSource + 'static;
    /// The reason for no response: the connection is closed, or the stream reset.
    type Error: Into<BoxError>;
    /// A response on its way.
    type Future: ServiceFuture<Output = Result<Response<Self::Body>, Self::Error>> + 'static;

    /// Answers a request.
    fn call(&self, request: Request<RequestBody>) -> Self::Future;
}

impl<F, R, B, E> HttpService for F
where
    F: Fn(Request<RequestBody>) -> R + 'static,
    R: ServiceFuture<Output = Result<Response<B>, E>> + 'static,
    B: ResponseSource + 'static,
    E: Into<BoxError>,
{
    type Body = B;
    type Error = E;
    type Future = R;

    fn call(&self, request: Request<RequestBody>) -> R {
        self(request)
    }
}

#[cfg(test)]
mod test_bodies {
    use http_body_util::combinators::BoxBody;
    use http_body_util::{Empty, Full};

    use super::{BoxError, Bytes, ResponseSource};

    impl ResponseSource for Empty<Bytes> {}
    impl ResponseSource for Full<Bytes> {}
    impl ResponseSource for BoxBody<Bytes, BoxError> {}
    impl ResponseSource for super::RequestBody {}
}
