//! The life of a request, from its head to the head of the response.
//!
//! ```text
//! check the head -- find the route -- admit -- forward -- respond
//!       |                               |        |
//!    400, 501                     429, decoy  502, 504
//! ```

use std::convert::Infallible;
use std::ops::ControlFlow;
use std::sync::Arc;

use arc_swap::ArcSwap;
use http::{Request, Response};
use hyper::service::{Service, service_fn};

use super::body::ResponseBody;
use super::error::Error;
use super::exchange::Exchange;
use super::snapshot::{Route, Snapshot};
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
        Request<RequestBody>,
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
        mut request: Request<RequestBody>,
    ) -> Result<Response<ResponseBody>, Infallible> {
        let mut exchange = Exchange::begin(self, client, &request);
        let mut response = match serve(&mut exchange, &mut request).await {
            Ok(response) => response,
            Err(error) => exchange.failed(&error, request.headers()),
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

/// Serves a request, which is lent, not given: it is large, and each hand that takes it would move it.
async fn serve(
    exchange: &mut Exchange,
    request: &mut Request<RequestBody>,
) -> Result<Response<ResponseBody>, Error> {
    match decide(exchange, request)? {
        ControlFlow::Break(refusal) => Ok(refusal),
        ControlFlow::Continue((route, path)) => {
            forward::forward(exchange, &route, request, path).await
        }
    }
}

/// The route of a request, and its path where that is not the one that the client wrote.
type Admitted = (Arc<Route>, Option<String>);

/// All that is decided before a request is forwarded, at one instant; it ends with the refusal of a limit. No
/// future, which would have to have room for all that is looked at here.
fn decide(
    exchange: &mut Exchange,
    request: &mut Request<RequestBody>,
) -> Result<ControlFlow<Response<ResponseBody>, Admitted>, Error> {
    let target = Target::of(request)?;
    let head = target.head(request, exchange.client_ip());
    let route = exchange.find_route(&head);
    let admission = admission::admit(
        &route,
        &exchange.snapshot().secret,
        &head,
        exchange.started(),
    );
    let refusal = admission.refusal(&route, exchange.styles(), &head);
    exchange.decided(admission);
    if let Some(response) = refusal {
        discard::discard(request);
        return Ok(ControlFlow::Break(response));
    }
    Ok(ControlFlow::Continue((route, target.into_rewritten())))
}
