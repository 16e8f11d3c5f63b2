//! The life of a request, from its head to the head of the response.
//!
//! ```text
//! check the head -- find the route -- admit -- forward -- respond
//!       |                               |        |
//!    400, 501          429, decoy, drop, wait  502, 504
//! ```

use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use http::StatusCode;
use hyper::service::Service;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::admission::Admission;
use super::body::ResponseBody;
use super::catch_panic;
use super::exchange::{DecisionInputs, Exchange, RequestContext};
use super::ruleset::{Route, Ruleset};
use super::target::Target;
use super::{discard, forward};
use crate::clock::Clock;
use crate::http::body::RequestBody;
use crate::http::connection::Connection;
use crate::http::forwarded::Forwarding;
use crate::http::message::{Request, Response};
use crate::http::service::{Answer, service_fn};
use crate::proxy::admission::delay::Delay;
use crate::proxy::admission::permit_queue::{self, AcquiredPermits, Pending};
use crate::proxy::admission::redis_charge::PendingRedisCharge;
use crate::proxy::admission::tag;
use crate::proxy::answers::action::{Action, TarpitSlot};
use crate::proxy::answers::error::Error;
use crate::rules::Head;
use crate::store::redis::Store;
use crate::telemetry::metrics::RequestMetrics;

/// What serves requests: the running ruleset, and what outlives it.
#[derive(Debug)]
pub struct Gateway {
    snapshot: ArcSwap<Ruleset>,
    /// Those that ran before, until nobody has them any more.
    retired: Mutex<Vec<Arc<Ruleset>>>,
    /// Those of earlier rulesets, as long as requests know them.
    former_stores: Mutex<Vec<Weak<Store>>>,
    pub(super) clock: Arc<Clock>,
    pub(super) metrics: Arc<RequestMetrics>,
}

impl Gateway {
    /// A gateway that runs `snapshot`.
    pub fn new(snapshot: Arc<Ruleset>, clock: Arc<Clock>, metrics: Arc<RequestMetrics>) -> Self {
        Gateway {
            snapshot: ArcSwap::new(snapshot),
            retired: Mutex::default(),
            former_stores: Mutex::default(),
            clock,
            metrics,
        }
    }

    /// What runs now.
    pub fn snapshot(&self) -> Arc<Ruleset> {
        self.snapshot.load_full()
    }

    /// Runs `snapshot` from the next request on.
    pub fn swap(&self, snapshot: Arc<Ruleset>) {
        let before = self.snapshot.swap(snapshot);
        let mut stores = self.former_stores.lock();
        stores.retain(|store| store.strong_count() > 0);
        stores.extend(before.redis.as_ref().map(Arc::downgrade));
        drop(stores);
        self.retired.lock().push(before);
    }

    /// The snapshots that ran before and that nobody has any more. To drop one of 10,000 routes takes tens of milliseconds: a
    /// worker that did so, after its last request, would serve nobody meanwhile.
    pub fn take_unused(&self) -> Vec<Arc<Ruleset>> {
        let mut retired = self.retired.lock();
        let unused = retired.extract_if(.., |snapshot| Arc::strong_count(snapshot) == 1);
        unused.collect()
    }

    /// Waits until stores have been told of what the requests of a worker had there, which have ended; not for long.
    pub async fn last_words(self: Arc<Self>, worker: usize) {
        const LONGEST: Duration = Duration::from_millis(500);
        let until = Instant::now() + LONGEST;
        let former = self.former_stores.lock().clone();
        let former = former.iter().filter_map(Weak::upgrade);
        let stores: Vec<_> = former.chain(self.snapshot.load().redis.clone()).collect();
        for store in stores {
            store.last_words(worker, until).await;
        }
    }

    /// The service of one connection. It fails where there is to be no answer, and the connection to be closed.
    pub fn client(
        self: &Arc<Self>,
        connection: &Connection,
    ) -> impl Service<
        Request<RequestBody>,
        Response = Response<ResponseBody>,
        Error = Dropped,
        Future: Answer + 'static,
    > + use<> {
        let client = Rc::new(Client {
            gateway: Arc::clone(self),
            forwarding: Forwarding::new(connection),
            connection: connection.clone(),
        });
        service_fn(move |request: Request<RequestBody>| handle(Rc::clone(&client), request))
    }
}

/// Answers one request. Whatever happens to it is counted and logged when its response ends, or when the client
/// leaves.
///
/// Who is refused at once has no future: one has room for all that a request may have to wait for.
fn handle(client: Rc<Client>, request: Request<RequestBody>) -> ResponseFuture {
    let known = Rc::clone(&client);
    let answering = catch_panic::catch(&known.gateway.metrics, || answer(client, request));
    answering.unwrap_or_else(|_| ResponseFuture::Now(Some(bare(Error::Panicked.status()))))
}

fn answer(client: Rc<Client>, mut request: Request<RequestBody>) -> ResponseFuture {
    let gateway = Rc::clone(&client);
    let mut exchange = Exchange::begin(client, &request);
    let mut response = bare(StatusCode::OK);
    let nothing = ResumeWith::Stood(AcquiredPermits::default());
    let course = catch_panic::catch(&gateway.gateway.metrics, || {
        decide(&mut exchange, &mut request, &mut response, nothing)
    });
    match course.unwrap_or_else(|panicked| Err(panicked.into())) {
        Ok(Disposition::Answered) => {}
        Ok(course) => return later(exchange, request, course),
        Err(error) => response = exchange.failed(&error, request.headers()),
    }
    exchange.complete(&mut response);
    ResponseFuture::Now(Some(response))
}

/// The answer to a request of which this was decided first.
fn later(
    mut exchange: Box<Exchange>,
    mut request: Request<RequestBody>,
    course: Disposition,
) -> ResponseFuture {
    // No async function: that would have room for each of its arguments twice.
    ResponseFuture::Later(Box::pin(async move {
        let client = Rc::clone(exchange.context().shared_client());
        let metrics = &client.gateway.metrics;
        let served = {
            let serving = pin!(serve(&mut exchange, &mut request, course));
            catch_panic::catch_async(metrics, serving).await
        };
        let served = served.unwrap_or_else(|panicked| Err(panicked.into()));
        let answer = catch_panic::catch(metrics, || conclude(exchange, served, &request));
        answer.unwrap_or_else(|_| Ok(bare(Error::Panicked.status())))
    }))
}

/// Makes an answer of what came of a request.
fn conclude(
    mut exchange: Box<Exchange>,
    served: Result<Option<Response<ResponseBody>>, Error>,
    request: &Request<RequestBody>,
) -> Result<Response<ResponseBody>, Dropped> {
    let mut response = match served {
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

/// An answer without fields and body.
fn bare(status: StatusCode) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::own(Bytes::new()));
    *response.status_mut() = status;
    response
}

/// The answer to a request, which is there, or is waited for.
enum ResponseFuture {
    /// `None` once it was taken.
    Now(Option<Response<ResponseBody>>),
    Later(Pin<Box<dyn Future<Output = Result<Response<ResponseBody>, Dropped>>>>),
}

impl Future for ResponseFuture {
    type Output = Result<Response<ResponseBody>, Dropped>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.get_mut() {
            Self::Now(response) => Poll::Ready(response.take().ok_or(Dropped)),
            Self::Later(answering) => answering.as_mut().poll(cx),
        }
    }
}

impl Answer for ResponseFuture {
    fn is_there(&self) -> bool {
        matches!(self, Self::Now(_))
    }
}

/// A request that gets no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a limit drops the request")]
pub struct Dropped;

/// A client's connection, and what is the same for all its requests.
#[derive(Debug)]
pub(super) struct Client {
    pub gateway: Arc<Gateway>,
    pub connection: Connection,
    pub forwarding: Forwarding,
}

/// Serves a request of which this was decided first; `None` where there is to be no response. It is lent: it is large,
/// and each hand that took it would move it.
async fn serve(
    exchange: &mut Exchange,
    request: &mut Request<RequestBody>,
    mut course: Disposition,
) -> Result<Option<Response<ResponseBody>>, Error> {
    if let Disposition::Pend(pending) = course {
        // Boxed: a request that does not wait has no room for what it would wait for.
        let (decided, response) = Box::pin(wait(exchange, request, pending)).await?;
        if let Disposition::Answered = decided {
            return Ok(Some(response));
        }
        course = decided;
    }
    match course {
        Disposition::Forward(path, queued) => {
            if let Some(queued) = queued {
                // Boxed: a request that does not wait has no room for a timer.
                Box::pin(queued.pass()).await;
                exchange.waited();
            }
            forward::forward(exchange, request, path).await.map(Some)
        }
        Disposition::Hold(held) => {
            // Boxed: a request that is not held has no room for a timer.
            Box::pin(held.pass()).await;
            let target = Target::of(request)?;
            let head = target.head(request, exchange.context().client_ip);
            let mut response = Response::new(ResponseBody::own(Bytes::new()));
            exchange.refuse_now(&head, &mut response);
            Ok(Some(response))
        }
        Disposition::Drop | Disposition::Pend(_) | Disposition::Answered => Ok(None),
    }
}

/// Has a request wait for one thing after the other, until it is decided on. The response is the answer where it is
/// [answered](Course::Answered).
async fn wait(
    exchange: &mut Exchange,
    request: &mut Request<RequestBody>,
    mut pending: Pending,
) -> Result<(Disposition, Response<ResponseBody>), Error> {
    let mut response = Response::new(ResponseBody::own(Bytes::new()));
    loop {
        let so_far = match pending {
            Pending::Line(standing) => {
                let stood = standing.pass(exchange.context().clock()).await;
                exchange.waited();
                ResumeWith::Stood(stood)
            }
            Pending::Store(asking) => ResumeWith::Asked(exchange.ask(asking).await),
        };
        match decide(exchange, request, &mut response, so_far)? {
            Disposition::Pend(next) => pending = next,
            course => return Ok((course, response)),
        }
    }
}

/// What becomes of a request.
enum Disposition {
    /// It is forwarded, with a path where that is not the one that the client wrote, and after a wait where a limit
    /// delays it.
    Forward(Option<String>, Option<Box<Delay>>),
    /// It is refused: the response says so.
    Answered,
    /// It is refused later.
    Hold(TarpitSlot),
    /// It is not answered.
    Drop,
    /// Something is to be waited for before all is decided.
    Pend(Pending),
}

/// What a request has by now that waited for something.
enum ResumeWith {
    /// Permits, or nothing.
    Stood(AcquiredPermits),
    /// What Redis said.
    Asked(Box<PendingRedisCharge>),
}

/// All that is decided before a request is forwarded, at one instant. Its token is counted where this looked at it first.
fn decide(
    exchange: &mut Exchange,
    request: &mut Request<RequestBody>,
    response: &mut Response<ResponseBody>,
    so_far: ResumeWith,
) -> Result<Disposition, Error> {
    let was_known = exchange.context().token.get().is_some();
    let decided = decide_now(exchange, request, response, so_far);
    let begun = exchange.context();
    if let Some(tokens) = &begun.ruleset.whole().tokens {
        tokens.note(&begun.token, was_known, begun.started);
    }
    decided
}

/// The decision alone. No future, which would have to have room for all that is looked at here.
fn decide_now(
    exchange: &mut Exchange,
    request: &mut Request<RequestBody>,
    response: &mut Response<ResponseBody>,
    so_far: ResumeWith,
) -> Result<Disposition, Error> {
    let (begun, scheme) = (
        exchange.context(),
        exchange.context().client().connection.scheme,
    );
    Target::check_scheme(request, scheme, || begun.trust())?;
    let target = Target::of(request)?;
    let head = target.head(request, exchange.context().client_ip);
    exchange.find_route(&head);
    let DecisionInputs {
        begun,
        route,
        now,
        admission,
    } = exchange.decision_inputs();
    let snapshot = begun.ruleset.whole();
    // The token of a request that waits stays as good as it was.
    let token = snapshot.token(route, request.headers(), begun.started, &begun.token);
    let head = Head {
        token: token.as_ref(),
        ..head
    };
    let (secret, store) = (&snapshot.secret, snapshot.redis.as_deref());
    let (pending, told) = match so_far {
        ResumeWith::Stood(stood) => {
            let pending = permit_queue::admit(route, secret, &head, now, stood, store, admission)?;
            (pending, Vec::new())
        }
        ResumeWith::Asked(asked) => (None, asked.finish(route, secret, now, admission)?),
    };
    if let Some(pending) = pending {
        if let Pending::Line(standing) = &pending {
            let policy = Arc::clone(&standing.limit(route).policy.name);
            exchange.stands(policy);
        }
        return Ok(Disposition::Pend(pending));
    }
    if let Some(course) = refuse(admission, route, begun, &head, response) {
        exchange.decided();
        discard::discard(request);
        return Ok(course);
    }
    let queued = Delay::enter(admission, route, secret, &head, begun.clock());
    if !route.tags.is_empty() {
        let tagged = tag::decide_tags(route, secret, &head, now, told);
        exchange.keep_tagged(tagged);
    }
    exchange.decided();
    Ok(Disposition::Forward(target.into_rewritten(), queued))
}

/// What becomes of a request that a limit refuses; `None` where none does.
fn refuse(
    admission: &Admission,
    route: &Route,
    begun: &RequestContext,
    head: &Head<'_>,
    response: &mut Response<ResponseBody>,
) -> Option<Disposition> {
    let held = match &admission.refusing(route)?.policy.action {
        Action::Drop => return Some(Disposition::Drop),
        Action::Tarpit(tarpit) => tarpit.acquire(),
        Action::Reject | Action::Decoy | Action::Tag(_) => None,
    };
    if let Some(held) = held {
        return Some(Disposition::Hold(held));
    }
    admission.refuse(route, &begun.ruleset.whole().styles, head, response);
    Some(Disposition::Answered)
}
