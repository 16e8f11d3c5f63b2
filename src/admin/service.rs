//! The router as a service of the project's server.

use std::convert::Infallible;
use std::pin::Pin;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::response::IntoResponse;
use http::header::{HeaderValue, X_CONTENT_TYPE_OPTIONS};
use http_body_util::Limited;
use hyper::service::Service as _;
use hyper_util::service::TowerToHyperService;

use super::hosts::HostCheck;
use super::problem_details::ProblemDetails;
use crate::http::body::RequestBody;
use crate::http::framing;
use crate::http::message::{Request, Response};
use crate::http::service::{HttpService, ResponseSource};
use crate::net::peer_address::PeerAddress;

/// The largest body of a request, in bytes. An endpoint that reads a larger one answers 413.
const MAX_BODY: usize = 64 * 1024;

/// The largest body for [`CHECK`], in bytes: two configurations with many routes are long.
const MAX_CHECKED_BODY: usize = 2 * 1024 * 1024;

/// The path of the endpoint that checks configurations.
pub(super) const CHECK: &str = "/v1/check";

/// The longest pause within a request's body.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// The service of one connection: calls the router with bounded requests for hosts of the listener.
/// The connection discards a body that no endpoint reads.
#[derive(Debug)]
pub(super) struct AdminService {
    router: TowerToHyperService<Router>,
    hosts: HostCheck,
    peer: PeerAddress,
}

impl AdminService {
    pub(super) fn new(router: Router, hosts: HostCheck, peer: PeerAddress) -> Self {
        Self {
            router: TowerToHyperService::new(router),
            hosts,
            peer,
        }
    }

    /// Lets a request pass whose end is certain, and whose host is one of the listener.
    ///
    /// # Errors
    /// The answer to another request.
    fn admit<B>(&self, request: &Request<B>) -> Result<(), ProblemDetails> {
        framing::check_end(request)
            .map_err(|error| ProblemDetails::new(error.status, error.reason))?;
        self.hosts.check(request, self.peer)
    }
}

impl ResponseSource for Body {}

impl HttpService for AdminService {
    type Body = Body;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn call(&self, mut request: Request<RequestBody>) -> Self::Future {
        request.body_mut().bound(u64::MAX, BODY_TIMEOUT);
        let answered = self.admit(&request).map(|()| {
            let most = max_body(request.uri().path());
            let bounded = request.map(|body| Limited::new(body, most));
            let mut bounded: http::Request<_> = bounded.into();
            bounded.extensions_mut().insert(self.peer);
            self.router.call(bounded)
        });
        Box::pin(async {
            let mut response = match answered {
                Ok(answer) => answer.await?,
                Err(refusal) => refusal.into_response(),
            };
            forbid_sniffing(&mut response);
            Ok(response.into())
        })
    }
}

/// Has browsers believe the media type (WHATWG Fetch, `X-Content-Type-Options`).
fn forbid_sniffing<B>(response: &mut http::Response<B>) {
    let nosniff = HeaderValue::from_static("nosniff");
    response
        .headers_mut()
        .insert(X_CONTENT_TYPE_OPTIONS, nosniff);
}

/// The largest body of a request to this path, in bytes.
fn max_body(path: &str) -> usize {
    match path {
        CHECK => MAX_CHECKED_BODY,
        _ => MAX_BODY,
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Waker};

    use axum::routing::post;
    use bytes::Bytes;
    use http::{Method, StatusCode, Uri};
    use http_body::Frame;

    use super::*;
    use crate::admin::hosts::AllowedHosts;
    use crate::http::body::body_channel;
    use crate::telemetry::metrics::AdminMetrics;
    use crate::telemetry::registry::Registry;

    async fn post_bytes(path: &'static str, length: usize) -> StatusCode {
        let router = Router::new().route(path, post(|body: Bytes| async move { drop(body) }));
        let (mut sender, body) = body_channel(Some(length as u64));
        let mut request = Request::new(RequestBody::from(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = Uri::from_static(path);
        let hosts = AllowedHosts::without_names();
        let hosts = HostCheck::new(hosts, AdminMetrics::new(&Registry::default()));
        let service = AdminService::new(router, hosts, PeerAddress::Unix);
        let response = service.call(request);
        let frame = Frame::data(Bytes::from(vec![b'x'; length]));
        sender.send(Some(Ok(frame)), &Context::from_waker(Waker::noop()));
        let response = response.await;
        response.expect("infallible").status()
    }

    #[tokio::test]
    async fn a_body_above_the_bound_is_413() {
        for (path, most) in [("/", MAX_BODY), (CHECK, MAX_CHECKED_BODY)] {
            assert_eq!(post_bytes(path, most).await, 200, "{path}");
            assert_eq!(post_bytes(path, most + 1).await, 413, "{path}");
        }
    }
}
