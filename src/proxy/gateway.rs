//! The life of a request, from its head to the head of the response.
//!
//! ```text
//! check the head -- find the route -- admit -- forward -- respond
//!       |                               |        |
//!    400, 501          429, decoy, drop, wait  502, 504
//! ```

use std::sync::Arc;

use arc_swap::ArcSwap;
use http::{Request, Response};
use hyper::service::{Service, service_fn};

use super::action::{Action, Held};
use super::admission::Admission;
use super::body::ResponseBody;
use super::error::Error;
use super::exchange::Exchange;
use super::line::{self, Standing, Stood};
use super::queue::Queued;
use super::snapshot::{Route, Snapshot};
use super::target::Target;
use super::{discard, forward, tag};
use crate::clock::Clock;
use crate::http_ext::body::RequestBody;
use crate::http_ext::connection::Connection;
use crate::http_ext::forwarded::Forwarding;
use crate::rules::Head;
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

    /// The service of one connection. It fails where there is to be no answer, and the connection to be closed.
    pub fn client(
        self: &Arc<Self>,
        connection: &Connection,
    ) -> impl Service<
        Request<RequestBody>,
        Response = Response<ResponseBody>,
        Error = Dropped,
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
    ) -> Result<Response<ResponseBody>, Dropped> {
        let mut exchange = Exchange::begin(self, client, &request);
        let mut response = match serve(&mut exchange, &mut request).await {
            Ok(Some(response)) => response,
            Ok(None) => {
                exchange.unanswered();
                return Err(Dropped);
            }
            Err(error) => exchange.failed(&error, request.headers()),
        };
        exchange.complete(&mut response);
        Ok(response)
    }
}

/// A request that gets no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a limit drops the request")]
pub struct Dropped;

/// A client's connection, and what is the same for all its requests.
#[derive(Debug)]
pub(super) struct Client {
    pub connection: Connection,
    pub forwarding: Forwarding,
}

/// Serves a request, which is lent, not given: it is large, and each hand that takes it would move it. `None` where
/// there is to be no answer.
async fn serve(
    exchange: &mut Exchange,
    request: &mut Request<RequestBody>,
) -> Result<Option<Response<ResponseBody>>, Error> {
    let course = match decide(exchange, request, Stood::default())? {
        Ok(course) => course,
        // Boxed: a request that does not wait has no room for a timer.
        Err(standing) => Box::pin(stand(exchange, request, standing)).await?,
    };
    match course {
        Course::Forward(route, path, queued) => {
            if let Some(queued) = queued {
                // Boxed: a request that does not wait has no room for a timer.
                Box::pin(queued.pass()).await;
                exchange.waited();
            }
            let response = forward::forward(exchange, &route, request, path);
            response.await.map(Some)
        }
        Course::Answer(refusal) => Ok(Some(refusal)),
        Course::Hold(held) => {
            // Boxed: a request that is not held has no room for a timer.
            Box::pin(held.pass()).await;
            let target = Target::of(request)?;
            let head = target.head(request, exchange.client_ip());
            Ok(exchange.refusal_now(&head))
        }
        Course::Drop => Ok(None),
    }
}

/// Has a request stand in one line after the other, until it is decided on.
async fn stand(
    exchange: &mut Exchange,
    request: &mut Request<RequestBody>,
    mut standing: Box<Standing>,
) -> Result<Course, Error> {
    loop {
        let clock = Arc::clone(exchange.clock());
        let stood = standing.pass(&clock).await;
        exchange.waited();
        match decide(exchange, request, stood)? {
            Ok(course) => return Ok(course),
            Err(next) => standing = next,
        }
    }
}

/// What becomes of a request.
#[expect(
    clippy::large_enum_variant,
    reason = "there is one at a time, and a box would cost each refusal an allocation"
)]
enum Course {
    /// It is forwarded on this route; with a path where that is not the one that the client wrote, and after a
    /// wait where a limit delays it.
    Forward(Arc<Route>, Option<String>, Option<Box<Queued>>),
    /// It is refused.
    Answer(Response<ResponseBody>),
    /// It is refused later.
    Hold(Held),
    /// It is not answered.
    Drop,
}

/// All that is decided before a request is forwarded, at one instant; it ends with the refusal of a limit, or in a line
/// in which the request has to stand first.
/// No future, which would have to have room for all that is looked at here.
fn decide(
    exchange: &mut Exchange,
    request: &mut Request<RequestBody>,
    stood: Stood,
) -> Result<Result<Course, Box<Standing>>, Error> {
    let target = Target::of(request)?;
    let head = target.head(request, exchange.client_ip());
    let route = exchange.find_route(&head);
    // The token of a request that waits stays as good as it was.
    let started = exchange.started();
    let token = exchange
        .snapshot()
        .token(&route, request.headers(), started);
    let head = Head {
        token: token.as_ref(),
        ..head
    };
    let now = exchange.turn();
    let secret = &exchange.snapshot().secret;
    let admission = match line::admit(&route, secret, &head, now, stood)? {
        Ok(admission) => admission,
        Err(standing) => {
            exchange.stands(&standing.limit(&route).policy);
            return Ok(Err(standing));
        }
    };
    let refusal = refuse(&admission, &route, exchange, &head);
    if let Some(course) = refusal {
        exchange.decided(admission);
        discard::discard(request);
        return Ok(Ok(course));
    }
    let secret = &exchange.snapshot().secret;
    let queued = Queued::enter(&admission, &route, secret, &head, exchange.clock());
    exchange.decided(admission);
    if !route.tags.is_empty() {
        let secret = &exchange.snapshot().secret;
        let tagged = tag::tagged(&route, secret, &head, now);
        exchange.keep_tagged(tagged);
    }
    let rewritten = target.into_rewritten();
    Ok(Ok(Course::Forward(route, rewritten, queued)))
}

/// What becomes of a request that a limit refuses; `None` where none does.
fn refuse(
    admission: &Admission,
    route: &Route,
    exchange: &Exchange,
    head: &Head<'_>,
) -> Option<Course> {
    let held = match &admission.refusing(route)?.policy.action {
        Action::Drop => return Some(Course::Drop),
        Action::Tarpit(tarpit) => tarpit.hold(),
        Action::Reject | Action::Decoy | Action::Tag(_) => None,
    };
    match held {
        Some(held) => Some(Course::Hold(held)),
        None => admission
            .refusal(route, exchange.styles(), head)
            .map(Course::Answer),
    }
}
