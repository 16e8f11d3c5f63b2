//! What answers the requests of a connection.

use http_body::Body;
use hyper::{Request, Response, body::Incoming, service::Service};

/// Any error.
pub(super) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A service that hyper can run on one thread, in HTTP/1 and HTTP/2. Every service that can be one is one: this
/// is a name for the bounds.
pub trait HttpService:
    Service<
        Request<Incoming>,
        Response = Response<<Self as HttpService>::Body>,
        Error: Into<BoxError>,
        Future: 'static,
    > + 'static
{
    /// The body of its responses.
    type Body: Body<Data: 'static, Error: Into<BoxError>> + 'static;
}

impl<S, B> HttpService for S
where
    S: Service<Request<Incoming>, Response = Response<B>, Error: Into<BoxError>, Future: 'static>
        + 'static,
    B: Body<Data: 'static, Error: Into<BoxError>> + 'static,
{
    type Body = B;
}
