//! One address of an upstream with its connections. It outlives reloads: a new snapshot finds the
//! endpoint of the old one again by its [`EndpointSpec`].

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use http::{HeaderValue, Request, Response};
use hyper::body::Incoming;

use super::connect::Target;
use super::pool::{Connection, Lease, Pool};
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

/// Why there is no response.
#[derive(Debug)]
pub(super) struct Failure {
    pub error: Error,
    /// Whether the upstream saw nothing of the request, which is where it was, so that another endpoint
    /// may be tried.
    pub unsent: bool,
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

    /// Sends `request`, which is taken, and waits for the head of the response.
    ///
    /// A connection that was kept may be closed by the upstream just as the request is written. Then
    /// nothing was processed if hyper hands the request back; and a request that is safe to repeat
    /// (RFC 9110 section 9.2.2) and has no body is sent again when it does not.
    pub(super) async fn send(
        &self,
        worker: usize,
        request: &mut Request<RequestBody>,
        timeouts: &Timeouts,
    ) -> Result<(Response<Incoming>, Lease), Failure> {
        while let Some(lease) = self.pool.take(worker) {
            let spare = repeatable(request);
            let failure = match self.exchange(lease, request, timeouts).await {
                Ok(done) => return Ok(done),
                Err(failure) => failure,
            };
            match (&failure.error, spare) {
                (Error::Closed { .. }, _) if failure.unsent => {}
                (Error::Closed { .. }, Some(spare)) => *request = spare,
                _ => return Err(failure),
            }
        }
        match self.target.connect(timeouts.connect).await {
            Ok(sender) => {
                let lease = self.pool.open(worker, sender);
                self.exchange(lease, request, timeouts).await
            }
            Err(error) => Err(Failure {
                error,
                unsent: true,
            }),
        }
    }

    async fn exchange(
        &self,
        mut lease: Lease,
        request: &mut Request<RequestBody>,
        timeouts: &Timeouts,
    ) -> Result<(Response<Incoming>, Lease), Failure> {
        let Connection { sender, patience } = &mut lease.connection;
        let taken = std::mem::replace(request, Request::new(RequestBody::empty()));
        let mut response = pin!(sender.try_send_request(taken));
        patience.renew_with(timeouts.response);
        let response = poll_fn(|cx| match response.as_mut().poll(cx) {
            Poll::Ready(response) => Poll::Ready(Some(response)),
            Poll::Pending => patience.poll_exhausted(cx).map(|()| None),
        });
        let error = match response.await {
            Some(Ok(response)) => {
                match framing::check_response(response.status(), response.headers()) {
                    Ok(()) => return Ok((response, lease)),
                    Err(what) => Error::Unusable {
                        endpoint: self.target.label.clone(),
                        what,
                    },
                }
            }
            Some(Err(mut failure)) => {
                let unsent = failure.take_message().map(|unsent| *request = unsent);
                return Err(Failure {
                    error: Error::exchange(&self.target.label, failure.into_error()),
                    unsent: unsent.is_some(),
                });
            }
            None => Error::ResponseTimeout {
                endpoint: self.target.label.clone(),
                after: timeouts.response,
            },
        };
        Err(Failure {
            error,
            unsent: false,
        })
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
