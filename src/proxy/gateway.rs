//! The life of a request, from its head to the head of the response.
//!
//! ```text
//! target -- route -- admit -- forward -- respond
//!    |                 |         |
//! 400, 501   429, decoy, drop  502, 504
//! ```

pub(super) mod state;

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{StatusCode, Version};

use super::admission::acquired_permits::AcquiredPermits;
use super::admission::delay::Delay;
use super::admission::permit_queue::Pending;
use super::admission::tag;
use super::admission::{Admission, AdmissionInputs};
use super::answers::action::{Action, TarpitSlot};
use super::answers::error::Error;
use super::body::ResponseBody;
use super::client::Client;
use super::exchange::{DecisionInputs, Exchange, RequestContext};
use super::ruleset::Route;
use super::target::{RequestTarget, Sender};
use super::{catch_panic, discard, forward, own_response};
use crate::http::body::RequestBody;
use crate::http::connection::ClientConnection;
use crate::http::message::{Request, Response};
use crate::http::service::{HttpService, ServiceFuture};
use crate::net::drain::{DrainStage, DrainWatcher};
use crate::rules::Head;
use crate::store::Undecided;
pub use state::Gateway;

/// The service of one client connection. An error closes the connection without a response.
pub fn service(
    gateway: &Arc<Gateway>,
    connection: &ClientConnection,
) -> impl HttpService<Body = ResponseBody, Error = Dropped> + use<> {
    let client = Rc::new(Client::new(Arc::clone(gateway), connection));
    move |request: Request<RequestBody>| handle(Rc::clone(&client), request)
}

/// Handles one request. Its exchange counts and logs it, whether it ends or the client leaves.
///
/// A request that is limited at once has no future: a future has room for everything that it may wait for.
fn handle(client: Rc<Client>, mut request: Request<RequestBody>) -> ResponseFuture {
    let known = Rc::clone(&client);
    let metrics = &known.gateway.metrics;
    let handled = catch_panic::catch(metrics, || {
        let mut exchange = Exchange::begin(client, &request);
        let mut response = bare(StatusCode::OK);
        let decided = catch_panic::catch(metrics, || {
            let target = check_target(&exchange, &request)?;
            let sender = known.sender(exchange.context(), request.headers());
            let head = target.head(&request, sender);
            exchange.find_route(&head);
            if exchange.route().decides() {
                return admit_question(&mut exchange, &mut request, sender, &mut response);
            }
            let decided = admit_routed(&mut exchange, (&target, &head), &mut response)?;
            Ok((target, decided))
        });
        match decided.unwrap_or_else(|panicked| Err(panicked.into())) {
            Ok((_, Disposition::Respond)) => discard::discard(&mut request),
            Ok((target, decided)) => return serve_later(exchange, request, target, decided),
            Err(error) => {
                if let Error::Denied(_) = error {
                    discard::discard(&mut request);
                }
                response = exchange.error_response(&error, &request);
            }
        }
        exchange.complete(&mut response);
        ResponseFuture::Ready(Some(response))
    });
    handled.unwrap_or_else(|_| ResponseFuture::Ready(Some(bare(Error::Panicked.status()))))
}

/// Admits the request that a question is about.
#[cold]
fn admit_question(
    exchange: &mut Exchange,
    request: &mut Request<RequestBody>,
    sender: Sender<'_>,
    response: &mut Response<ResponseBody>,
) -> Result<(RequestTarget, Disposition), Error> {
    let slashes = exchange.context().ruleset.whole().encoded_slashes;
    let peer = exchange.context().trust();
    let target = RequestTarget::described(request, peer, slashes)?;
    let head = target.head(request, sender);
    exchange.set_question(request, &head);
    let decided = admit_routed(exchange, (&target, &head), response)?;
    Ok((target, decided))
}

/// Admits a request that has its route, if the access rules let it pass.
#[inline(always)] // Its second caller, a question, is rare.
#[expect(clippy::inline_always)]
fn admit_routed(
    exchange: &mut Exchange,
    (target, head): (&RequestTarget, &Head<'_>),
    response: &mut Response<ResponseBody>,
) -> Result<Disposition, Error> {
    target.check_route(exchange.route())?;
    // Browsers send preflight requests without credentials, and none goes further.
    if !exchange.answers_preflight() {
        check_access(exchange, head)?;
    }
    let resumed = ResumeWith::Permits(AcquiredPermits::default());
    admit(exchange, head, response, resumed)
}

/// Checks the head, and finds the target, once for the whole request.
fn check_target(
    exchange: &Exchange,
    request: &Request<RequestBody>,
) -> Result<RequestTarget, Error> {
    let context = exchange.context();
    let scheme = context.client().connection.scheme;
    RequestTarget::check_scheme(request, scheme, || context.trust())?;
    RequestTarget::of(request, context.ruleset.whole().encoded_slashes)
}

/// Checks the access rules of the request's route, once: the token's check and its instant stay the
/// same.
fn check_access(exchange: &Exchange, head: &Head<'_>) -> Result<(), Error> {
    let route = exchange.route();
    let Some(access) = &route.access else {
        return Ok(());
    };
    let context = exchange.context();
    let token = context.token(route, head.headers);
    let denial = access.denial(&Head {
        token: token.as_ref(),
        ..*head
    });
    let Some(denial) = denial else {
        return Ok(());
    };
    context.count_token();
    access.denied.increment();
    Err(Error::Denied(denial))
}

/// The outcome of admission: what happens to the request next.
enum Disposition {
    /// Forward it, after a delay if a limit asks for one.
    Forward(Option<Box<Delay>>),
    /// A limit refuses it: the response is ready.
    Respond,
    /// A limit refuses it after a while.
    Tarpit(TarpitSlot),
    /// A limit answers it after a while as an upstream would, once its body is there.
    Decoy(TarpitSlot),
    /// A limit closes its connection or stream without a response.
    Drop,
    /// Nothing is decided before this has come.
    Wait(Pending),
}

/// The result of a wait.
enum ResumeWith {
    /// Permits; none for a request that has not waited.
    Permits(AcquiredPermits),
    /// The decision of the store.
    Decision(Result<(), Undecided>),
}

/// Admits the request by all limits of its route, at one instant, and counts its token.
///
/// Not async: its future would have room for everything that is looked at here.
fn admit(
    exchange: &mut Exchange,
    head: &Head<'_>,
    response: &mut Response<ResponseBody>,
    resumed: ResumeWith,
) -> Result<Disposition, Error> {
    let decided = decide(exchange, head, response, resumed);
    exchange.context().count_token();
    decided
}

fn decide(
    exchange: &mut Exchange,
    head: &Head<'_>,
    response: &mut Response<ResponseBody>,
    resumed: ResumeWith,
) -> Result<Disposition, Error> {
    let DecisionInputs {
        context,
        route,
        now,
        admission,
        trail,
    } = exchange.decision_inputs();
    let ruleset = context.ruleset.whole();
    let token = context.token(route, head.headers);
    let head = Head {
        token: token.as_ref(),
        ..*head
    };
    let inputs = AdmissionInputs {
        route,
        limits: &route.limits,
        secret: &ruleset.secret,
        head: &head,
        store: &ruleset.store,
        now,
    };
    let pending = match resumed {
        ResumeWith::Permits(permits) => inputs.admit(permits, admission)?,
        ResumeWith::Decision(decided) => admission.conclude_pending(decided, &inputs)?,
    };
    if let Some(pending) = pending {
        if let Pending::Permit(waiter) = &pending {
            let policy = Arc::clone(&waiter.limit(route).policy.name);
            exchange.note_wait(policy);
        }
        return Ok(Disposition::Wait(pending));
    }
    let client = context.client();
    let activity = &client.gateway.activity;
    activity.record(client.connection.worker, &inputs, admission);
    let key_text = context.key_text(admission, route, &head);
    if let Some(refused) = refuse(admission, route, context, &head, response) {
        if let Some(trail) = trail {
            trail.record(&inputs, admission);
        }
        exchange.set_decided(key_text);
        return Ok(refused);
    }
    let delay = Delay::enter(admission, route, context.clock());
    tag::decide_tags(&inputs, admission);
    if let Some(trail) = trail {
        trail.record(&inputs, admission);
    }
    exchange.set_decided(key_text);
    Ok(Disposition::Forward(delay))
}

/// The disposition of a request that a limit refuses; `None` if none does.
fn refuse(
    admission: &Admission,
    route: &Route,
    context: &RequestContext,
    head: &Head<'_>,
    response: &mut Response<ResponseBody>,
) -> Option<Disposition> {
    let refusing = admission.refusing(route)?;
    let (limit, id) = refusing;
    let action = limit.action(id);
    if context.is_question() {
        // Refusals of gRPC have status 200, which would be a yes.
        let mut headers = head.headers.clone();
        headers.remove(CONTENT_TYPE);
        let head = Head {
            headers: &headers,
            ..*head
        };
        let styles = &context.ruleset.whole().styles;
        admission.refuse(refusing, route, styles, &head, response);
        // A decoy would look like a yes.
        if action.is_decoy() {
            *response = bare(StatusCode::TOO_MANY_REQUESTS);
        }
        return Some(Disposition::Respond);
    }
    let held = match action {
        Action::Drop => return Some(Disposition::Drop),
        Action::Tarpit(tarpit) => tarpit.acquire().map(Disposition::Tarpit),
        Action::Decoy(tarpit) => {
            let learned = route.learned_responses.as_ref();
            let time = learned.map(|learned| learned.response_time(head.method));
            let elapsed = context.now().since(context.started);
            let slot = time.and_then(|time| tarpit.acquire_for(time.saturating_sub(elapsed)));
            slot.map(Disposition::Decoy)
        }
        Action::Reject | Action::Tag(_) => None,
    };
    if held.is_some() {
        return held;
    }
    let styles = &context.ruleset.whole().styles;
    admission.refuse(refusing, route, styles, head, response);
    Some(Disposition::Respond)
}

/// Serves a request that is forwarded or has to wait.
fn serve_later(
    mut exchange: Box<Exchange>,
    mut request: Request<RequestBody>,
    target: RequestTarget,
    decided: Disposition,
) -> ResponseFuture {
    let version = request.version();
    // Not an async function: that would have room for each of its arguments twice.
    ResponseFuture::Pending(Box::pin(async move {
        let client = Rc::clone(exchange.context().shared_client());
        let metrics = &client.gateway.metrics;
        let served = {
            let serving = pin!(serve(&mut exchange, &mut request, target, decided));
            tokio::select! {
                biased;
                served = catch_panic::catch_async(metrics, serving) => served,
                () = last_answers(&client.connection.drain, version) => Ok(Err(Error::DrainDeadline)),
            }
        };
        let served = served.unwrap_or_else(|panicked| Err(panicked.into()));
        let response = catch_panic::catch(metrics, || respond(exchange, served, &request));
        response.unwrap_or_else(|_| Ok(bare(Error::Panicked.status())))
    }))
}

/// Waits until the drain has requests that wait answered.
async fn last_answers(drain: &DrainWatcher, version: Version) {
    if version == Version::HTTP_2 {
        // Streams have tasks of their own, which have to be woken. Boxed: other requests have no room
        // for it.
        let mut drain = drain.clone();
        return Box::pin(async move { drain.reached(DrainStage::Answer).await }).await;
    }
    // The task of a connection of HTTP/1, which wakes at each stage, polls its request.
    poll_fn(|_| {
        if drain.has_reached(DrainStage::Answer) {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
}

/// Waits for what admission needs, then forwards or refuses; `None` if there is to be no response.
///
/// The exchange is borrowed: it is large, and each owner would move it.
async fn serve(
    exchange: &mut Exchange,
    request: &mut Request<RequestBody>,
    target: RequestTarget,
    mut decided: Disposition,
) -> Result<Option<Response<ResponseBody>>, Error> {
    // What only some requests wait for is boxed, so that the others have no room for it.
    if let Disposition::Wait(pending) = decided {
        let mut response = bare(StatusCode::OK);
        decided = Box::pin(wait(exchange, request, &target, &mut response, pending)).await?;
        if let Disposition::Respond = decided {
            discard::discard(request);
            return Ok(Some(response));
        }
    }
    match decided {
        Disposition::Forward(delay) => {
            if let Some(delay) = delay {
                Box::pin(delay.wait()).await;
                exchange.resume();
            }
            if exchange.answers_itself() {
                let response = Box::pin(own_response::respond(exchange, request, &target)).await?;
                forward::learn(exchange, request, &response);
                return Ok(Some(response));
            }
            let key = forward::balance_key(exchange, request, &target);
            let path = target.path;
            let forwarded = forward::forward(exchange, request, path, key);
            forwarded.await.map(Some)
        }
        Disposition::Tarpit(slot) => {
            discard::discard(request);
            Box::pin(slot.wait()).await;
            Ok(Some(refused(exchange, request, &target)))
        }
        Disposition::Decoy(slot) => {
            let received = forward::receive(exchange, request);
            Box::pin(slot.wait_beside(received)).await?;
            Ok(Some(refused(exchange, request, &target)))
        }
        Disposition::Drop | Disposition::Wait(_) | Disposition::Respond => {
            discard::discard(request);
            Ok(None)
        }
    }
}

/// The answer to a refused request that was held.
fn refused(
    exchange: &mut Exchange,
    request: &Request<RequestBody>,
    target: &RequestTarget,
) -> Response<ResponseBody> {
    let mut response = bare(StatusCode::OK);
    let client = Rc::clone(exchange.context().shared_client());
    let sender = client.sender(exchange.context(), request.headers());
    let head = target.head(request, sender);
    exchange.refuse_now(&head, &mut response);
    response
}

/// Waits for permits and for the store, one after the other, until the request is decided.
async fn wait(
    exchange: &mut Exchange,
    request: &Request<RequestBody>,
    target: &RequestTarget,
    response: &mut Response<ResponseBody>,
    mut pending: Pending,
) -> Result<Disposition, Error> {
    let client = Rc::clone(exchange.context().shared_client());
    loop {
        let resumed = match pending {
            Pending::Permit(waiter) => {
                let permits = waiter.wait(exchange.context().clock()).await;
                exchange.resume();
                ResumeWith::Permits(permits)
            }
            Pending::Others(others) => {
                let permits = others.wait().await;
                exchange.resume();
                ResumeWith::Permits(permits)
            }
            Pending::Store(charge) => ResumeWith::Decision(exchange.decide(charge).await),
        };
        let sender = client.sender(exchange.context(), request.headers());
        let head = target.head(request, sender);
        match admit(exchange, &head, response, resumed)? {
            Disposition::Wait(next) => pending = next,
            decided => return Ok(decided),
        }
    }
}

/// Completes the exchange with its response, or with an error page.
fn respond(
    mut exchange: Box<Exchange>,
    served: Result<Option<Response<ResponseBody>>, Error>,
    request: &Request<RequestBody>,
) -> Result<Response<ResponseBody>, Dropped> {
    let mut response = match served {
        Ok(Some(response)) => response,
        Ok(None) => {
            exchange.end_without_response();
            return Err(Dropped);
        }
        Err(error) => exchange.error_response(&error, request),
    };
    exchange.complete(&mut response);
    Ok(response)
}

/// A response without fields and body.
fn bare(status: StatusCode) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::own(Bytes::new()));
    *response.status_mut() = status;
    response
}

/// The response to a request: ready, or still to come.
enum ResponseFuture {
    /// `None` once it was taken.
    Ready(Option<Response<ResponseBody>>),
    Pending(Pin<Box<dyn Future<Output = Result<Response<ResponseBody>, Dropped>>>>),
}

impl Future for ResponseFuture {
    type Output = Result<Response<ResponseBody>, Dropped>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.get_mut() {
            Self::Ready(response) => Poll::Ready(response.take().ok_or(Dropped)),
            Self::Pending(response) => response.as_mut().poll(cx),
        }
    }
}

impl ServiceFuture for ResponseFuture {
    fn is_ready(&self) -> bool {
        matches!(self, Self::Ready(_))
    }
}

/// The error of a request that a limit drops: it gets no response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a limit drops the request")]
pub struct Dropped;
