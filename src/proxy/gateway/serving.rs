//! Requests that wait, for a limit or for their upstream, up to the head of the response.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;

use http::{StatusCode, Version};

use super::decision::{Disposition, ResumeWith, admit, deny};
use crate::http::body::RequestBody;
use crate::http::message::{Request, Response};
use crate::net::drain::{DrainStage, DrainWatcher};
use crate::proxy::admission::acquired_permits::AcquiredPermits;
use crate::proxy::admission::permit_queue::Pending;
use crate::proxy::answers::error::Error;
use crate::proxy::answers::route_answer::{PreparedAnswer, RouteAnswer};
use crate::proxy::body::{ResponseBody, empty_response};
use crate::proxy::exchange::Exchange;
use crate::proxy::ruleset::Destination;
use crate::proxy::target::RequestTarget;
use crate::proxy::{batch, catch_panic, discard, forward, status};
use crate::rules::ResponseOrigin;

/// A response that is still to come.
pub(super) type PendingResponse =
    Pin<Box<dyn Future<Output = Result<Response<ResponseBody>, Dropped>>>>;

/// The error of a request that a limit drops: it gets no response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a limit drops the request")]
pub struct Dropped;

/// Serves a request that is forwarded or has to wait.
pub(super) fn serve_later(
    mut exchange: Box<Exchange>,
    mut request: Request<RequestBody>,
    target: RequestTarget,
    decided: Disposition,
) -> PendingResponse {
    let version = request.version();
    // Not an async function: that would have room for each of its arguments twice.
    Box::pin(async move {
        let client = Rc::clone(&exchange.context.client);
        let metrics = &client.gateway.metrics;
        let served = {
            let serving = pin!(serve(&mut exchange, &mut request, target, decided));
            tokio::select! {
                biased;
                served = catch_panic::catch_async(metrics, serving) => served,
                () = last_answers(&client.connection.drain, version) => Ok(Err(Error::DrainDeadline)),
            }
        };
        let served = served.unwrap_or(Err(Error::Panicked));
        let response = catch_panic::catch(metrics, || respond(exchange, served, &mut request));
        response.unwrap_or_else(|_| Ok(empty_response(Error::Panicked.status())))
    })
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
    if let Disposition::Wait(_) | Disposition::Deny(_) | Disposition::Read = decided {
        let mut response = empty_response(StatusCode::OK);
        let waited = Box::pin(wait(exchange, request, &target, &mut response, decided)).await;
        decided = waited?;
        if let Disposition::Respond = decided {
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
                let response = Box::pin(answer(exchange, request, &target)).await?;
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
        Disposition::Drop
        | Disposition::Wait(_)
        | Disposition::Read
        | Disposition::Deny(_)
        | Disposition::Respond => Ok(None),
    }
}

/// Answers a request that the proxy [answers itself](Exchange::answers_itself).
///
/// # Errors
/// 400 if a redirect needs a host, and the request names none; those of [`batch::respond`].
async fn answer(
    exchange: &mut Exchange,
    request: &mut Request<RequestBody>,
    target: &RequestTarget,
) -> Result<Response<ResponseBody>, Error> {
    let answer = match &exchange.route().destination {
        _ if exchange.context.is_question() => PreparedAnswer::Decision,
        // The changes to responses complete it.
        _ if exchange.answers_preflight() => PreparedAnswer::Preflight,
        Destination::Answer(RouteAnswer::Decisions) => {
            return batch::respond(exchange, request).await;
        }
        Destination::Answer(RouteAnswer::Status) => {
            return Ok(status::respond(exchange, request, target).await);
        }
        Destination::Answer(answer) => answer.prepare(target.redirected(request))?,
        Destination::Nowhere | Destination::Upstream(_) => return Err(Error::NoRoute),
    };
    let response = answer.response();
    exchange.author = ResponseOrigin::Proxy;
    Ok(response)
}

/// The answer to a refused request that was held.
fn refused(
    exchange: &mut Exchange,
    request: &Request<RequestBody>,
    target: &RequestTarget,
) -> Response<ResponseBody> {
    let mut response = empty_response(StatusCode::OK);
    let client = Rc::clone(&exchange.context.client);
    let sender = exchange.context.sender(&client, request.headers());
    let head = target.head(request, sender);
    exchange.refuse_now(&head, &mut response);
    response
}

/// Waits for the body, permits and the store, one after the other, until the request is decided.
async fn wait(
    exchange: &mut Exchange,
    request: &mut Request<RequestBody>,
    target: &RequestTarget,
    response: &mut Response<ResponseBody>,
    mut waiting: Disposition,
) -> Result<Disposition, Error> {
    let client = Rc::clone(&exchange.context.client);
    loop {
        let (denial, pending) = match waiting {
            Disposition::Wait(pending) => (None, Some(pending)),
            Disposition::Deny(denied) => (Some(denied.0), Some(denied.1)),
            Disposition::Read => (None, None),
            decided => return Ok(decided),
        };
        let resumed = match pending {
            None => {
                Box::pin(exchange.read_body(request)).await?;
                exchange.resume();
                ResumeWith::Permits(AcquiredPermits::default())
            }
            Some(Pending::Permit(waiter)) => {
                let permits = waiter.wait(exchange.context.clock()).await;
                exchange.resume();
                ResumeWith::Permits(permits)
            }
            Some(Pending::Units(waiter)) => {
                let permits = waiter.wait(exchange.context.clock()).await;
                exchange.resume();
                ResumeWith::Permits(permits)
            }
            Some(Pending::Others(others)) => {
                let permits = others.wait().await;
                exchange.resume();
                ResumeWith::Permits(permits)
            }
            // Boxed: those that wait for permits have no room for a call.
            Some(Pending::Store(charge)) => {
                ResumeWith::Decision(Box::pin(exchange.decide(charge)).await)
            }
            Some(Pending::Peek(charge)) => {
                ResumeWith::Peek(Box::pin(exchange.decide(charge)).await)
            }
        };
        let sender = exchange.context.sender(&client, request.headers());
        let head = target.head(request, sender);
        waiting = match denial {
            None => admit(exchange, &head, response, resumed)?,
            Some(denial) => deny(exchange, &head, response, denial, resumed)?,
        };
    }
}

/// Completes the exchange with its response, or with an error page.
fn respond(
    mut exchange: Box<Exchange>,
    served: Result<Option<Response<ResponseBody>>, Error>,
    request: &mut Request<RequestBody>,
) -> Result<Response<ResponseBody>, Dropped> {
    // What went to an upstream has no body left here, or one that its client may not have begun.
    if !matches!(served, Err(Error::Upstream(_))) {
        discard::discard(request);
    }
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
