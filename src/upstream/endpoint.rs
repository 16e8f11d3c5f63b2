//! One address of an upstream with its connections. It outlives reloads: a new snapshot finds the
//! endpoint of the old one again by its [`EndpointSpec`].

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderValue, Request, Response};
use hyper::body::Incoming;
use tokio::time::timeout;

use super::connect::Target;
use super::pool::{Lease, Pool};
use super::{EndpointSpec, Error, Timeouts};
use crate::http_ext::body::RequestBody;
use crate::http_ext::framing;

/// An endpoint and its pool.
#[derive(Debug)]
pub struct Endpoint {
    spec: EndpointSpec,
    target: Target,
    host_header: HeaderValue,
    pool: Arc<Pool>,
}

/// A request that reached no upstream, so that another endpoint may be tried.
#[derive(Debug)]
pub(super) struct Unsent {
    pub error: Error,
    /// The request, unless some of it may have been sent.
    pub request: Option<Request<RequestBody>>,
}

impl Endpoint {
    /// An endpoint without connections, to be used by `workers` runtimes.
    pub(super) fn new(spec: EndpointSpec, workers: usize) -> Self {
        let authority = &spec.authority;
        let default_port = if spec.tls.is_some() { 443 } else { 80 };
        Endpoint {
            host_header: HeaderValue::from_str(authority.as_str())
                .expect("an authority has only characters that a field value may have"),
            target: Target {
                host: authority.host().trim_matches(['[', ']']).to_owned(),
                port: authority.port_u16().unwrap_or(default_port),
                tls: spec.tls.as_ref().map(|tls| tls.connector()),
                label: authority.to_string(),
            },
            spec,
            pool: Arc::new(Pool::new(workers)),
        }
    }

    /// The Host that asks for this endpoint itself.
    pub(super) fn host_header(&self) -> HeaderValue {
        self.host_header.clone()
    }

    /// What identifies it.
    pub fn spec(&self) -> &EndpointSpec {
        &self.spec
    }

    pub(super) fn sweep(&self, idle: Duration) {
        self.pool.sweep(idle);
    }

    /// Sends `request` and waits for the head of the response.
    ///
    /// A connection that was kept may be closed by the upstream just as the request is written. Then
    /// nothing was processed if hyper hands the request back; and a request that is safe to repeat
    /// (RFC 9110 section 9.2.2) and has no body is sent again when it does not.
    pub(super) async fn send(
        &self,
        worker: usize,
        mut request: Request<RequestBody>,
        timeouts: &Timeouts,
    ) -> Result<(Response<Incoming>, Lease), Unsent> {
        while let Some(lease) = self.pool.take(worker) {
            let spare = repeatable(&request);
            match self.exchange(lease, request, timeouts).await {
                Ok(done) => return Ok(done),
                Err(Unsent {
                    error: error @ Error::Closed { .. },
                    request: unsent,
                }) => match unsent.or(spare) {
                    Some(again) => request = again,
                    None => {
                        return Err(Unsent {
                            error,
                            request: None,
                        });
                    }
                },
                Err(other) => return Err(other),
            }
        }
        match self.target.connect(timeouts.connect).await {
            Ok(sender) => {
                let lease = self.pool.lease(worker, sender);
                self.exchange(lease, request, timeouts).await
            }
            Err(error) => Err(Unsent {
                error,
                request: Some(request),
            }),
        }
    }

    async fn exchange(
        &self,
        mut lease: Lease,
        request: Request<RequestBody>,
        timeouts: &Timeouts,
    ) -> Result<(Response<Incoming>, Lease), Unsent> {
        let response = lease.sender.try_send_request(request);
        match timeout(timeouts.response, response).await {
            Ok(Ok(response)) => {
                match framing::check_response(response.status(), response.headers()) {
                    Ok(()) => Ok((response, lease)),
                    Err(what) => Err(Unsent {
                        request: None,
                        error: Error::Unusable {
                            endpoint: self.target.label.clone(),
                            what,
                        },
                    }),
                }
            }
            Ok(Err(mut failure)) => Err(Unsent {
                request: failure.take_message(),
                error: Error::exchange(&self.target.label, failure.into_error()),
            }),
            Err(_) => Err(Unsent {
                request: None,
                error: Error::ResponseTimeout {
                    endpoint: self.target.label.clone(),
                    after: timeouts.response,
                },
            }),
        }
    }
}

/// A copy of `request`, if sending it twice does no more than sending it once.
fn repeatable(request: &Request<RequestBody>) -> Option<Request<RequestBody>> {
    if !request.method().is_idempotent() || !request.body().is_empty() {
        return None;
    }
    let mut copy = Request::new(RequestBody::empty());
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.headers_mut() = request.headers().clone();
    Some(copy)
}
