//! The service that answers the requests of a connection.

use bytes::Bytes;
use http_body::Body;
use hyper::service::Service;

use crate::http::body::RequestBody;
use crate::http::message::{Request, Response};
use crate::http::service::ServiceFuture;

pub(super) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A service that runs on one thread, over HTTP/1 and HTTP/2. Every [`Service`] with these bounds
/// implements it.
pub trait HttpService:
    Service<
        Request<RequestBody>,
        Response = Response<<Self as HttpService>::Body>,
        Error: Into<BoxError>,
        Future: ServiceFuture + 'static,
    > + 'static
{
    /// The body of its responses.
    type Body: Body<Data = Bytes, Error: Into<BoxError>> + Unpin + 'static;
}

impl<S, B> HttpService for S
where
    S: Service<
            Request<RequestBody>,
            Response = Response<B>,
            Error: Into<BoxError>,
            Future: ServiceFuture + 'static,
        > + 'static,
    B: Body<Data = Bytes, Error: Into<BoxError>> + Unpin + 'static,
{
    type Body = B;
}
