//! The life of a request, from its head to the head of the response.
//!
//! ```text
//! check the head -- find the route -- admit -- forward -- respond
//!       |                               |        |
//!    400, 501                     429, decoy  502, 504
//! ```

use std::convert::Infallible;
use std::sync::Arc;

use arc_swap::ArcSwap;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::service::{Service, service_fn};

use super::body::ResponseBody;
use super::error::Error;
use super::exchange::Exchange;
use super::snapshot::Snapshot;
use super::target::Target;
use super::{admission, discard, forward};
use crate::clock::Clock;
use crate::http_ext::body::RequestBody;
use crate::http_ext::connection::Connection;
use crate::http_ext::forwarded::Forwarding;
use crate::telemetry::metrics::RequestMetrics;

/// What serves requests: the running ruleset, and what outlives it.
#[derive(Debug)]
pub struct Gateway {
    snapshot: ArcSwap<Snapshot>,
    pub(super) clock: Arc<Clock>,
    pub(super) metrics: Arc<RequestMetrics>,
}

impl Gateway {
    /// A gateway that runs `snapshot`.
    pub fn new(snapshot: Arc<Snapshot>, clock: Arc<Clock>, metrics: Arc<RequestMetrics>) -> Self {
        Gateway {
            snapshot: ArcSwap::new(snapshot),
            clock,
            metrics,
        }
    }

    /// What runs now.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.snapshot.load_full()
    }

    /// Runs `snapshot` from the next request on.
    pub fn swap(&self, snapshot: Arc<Snapshot>) {
        self.snapshot.store(snapshot);
    }

    /// The service of one connection, which never fails.
    pub fn client(
        self: &Arc<Self>,
        connection: &Connection,
    ) -> impl Service<
        Request<Incoming>,
        Response = Response<ResponseBody>,
        Error = Infallible,
        Future: 'static,
    > + use<> {
        let gateway = Arc::clone(self);
        let client = Arc::new(Client {
            forwarding: Forwarding::new(connection),
            connection: connection.clone(),
        });
        service_fn(move |request| Arc::clone(&gateway).handle(Arc::clone(&client), request))
    }

    /// Answers one request. Whatever happens to it is counted and logged when its response ends, or
    /// when the client leaves.
    async fn handle(
        self: Arc<Self>,
        client: Arc<Client>,
        request: Request<Incoming>,
    ) -> Result<Response<ResponseBody>, Infallible> {
        let mut request = request.map(RequestBody::from);
        let mut exchange = Exchange::begin(self, client, &request);
        let mut response = match serve(&mut exchange, &mut request).await {
            Ok(response) => response,
            Err(error) => exchange.failed(&error),
        };
        exchange.complete(&mut response);
        Ok(response)
    }
}

/// A client's connection, and what is the same for all its requests.
#[derive(Debug)]
pub(super) struct Client {
    pub connection: Connection,
    pub forwarding: Forwarding,
}

/// The request is lent, not given: it is large, and each hand that takes it would move it.
async fn serve(
    exchange: &mut Exchange,
    request: &mut Request<RequestBody>,
) -> Result<Response<ResponseBody>, Error> {
    let target = Target::of(request)?;
    let head = target.head(request, exchange.client_ip());
    let route = exchange.find_route(&head);
    let admission = admission::admit(
        &route,
        &exchange.snapshot().secret,
        &head,
        exchange.started(),
    );
    let refusal = admission.refusal(&route, exchange.styles(), request.headers());
    exchange.decided(admission);
    if let Some(response) = refusal {
        discard::discard(request);
        return Ok(response);
    }
    let path = target.into_rewritten();
    forward::forward(exchange, &route, request, path).await
}
