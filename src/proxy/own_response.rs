//! Responses of the proxy itself to requests that their limits admit.

use super::answers::error::Error;
use super::answers::route_answer::{PreparedAnswer, RouteAnswer};
use super::body::ResponseBody;
use super::exchange::Exchange;
use super::ruleset::Destination;
use super::target::RequestTarget;
use super::{batch, discard, status};
use crate::http::body::RequestBody;
use crate::http::message::{Request, Response};
use crate::rules::ResponseOrigin;

/// Responds to a request that the proxy [answers itself](Exchange::answers_itself).
///
/// # Errors
/// 400 if a redirect needs a host, and the request names none; those of [`batch::respond`].
pub(super) async fn respond(
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
    discard::discard(request);
    exchange.author = ResponseOrigin::Proxy;
    Ok(response)
}
