//! Responses of the proxy itself to requests that their limits admit.

use super::answers::error::Error;
use super::body::ResponseBody;
use super::exchange::Exchange;
use super::target::RequestTarget;
use super::{discard, status};
use crate::http::body::RequestBody;
use crate::http::message::{Request, Response};

/// Responds to a request of a route that [answers itself](super::ruleset::Route::answers_itself).
///
/// # Errors
/// 400 if a redirect needs a host, and the request names none.
pub(super) async fn respond(
    exchange: &mut Exchange,
    request: &mut Request<RequestBody>,
    target: &RequestTarget,
) -> Result<Response<ResponseBody>, Error> {
    let Some(answer) = &exchange.route().answer else {
        return Ok(status::respond(exchange, request, target).await);
    };
    let response = answer.prepare(target.redirected(request))?.response();
    discard::discard(request);
    exchange.set_own_response();
    Ok(response)
}
