//! The life of a request, from its head to the head of the response.
//!
//! ```text
//! target -- route -- admit -- forward -- respond
//!    |                 |         |
//! 400, 501   429, decoy, drop  502, 504
//! ```

pub(super) mod body;
mod decision;
mod serving;
pub(super) mod state;

use std::future::{Ready, ready};
use std::rc::Rc;
use std::sync::Arc;

use http::StatusCode;
use tokio_util::either::Either;

use super::admission::acquired_permits::AcquiredPermits;
use super::answers::error::Error;
use super::body::{ResponseBody, empty_response};
use super::client::Client;
use super::exchange::Exchange;
use super::target::{RequestTarget, Sender};
use super::{catch_panic, discard};
use crate::http::body::RequestBody;
use crate::http::connection::ClientConnection;
use crate::http::framing;
use crate::http::message::{Request, Response};
use crate::http::service::{HttpService, ServiceFuture};
use crate::rules::{Denial, Head};
use decision::{Disposition, ResumeWith, admit, deny};
pub use serving::Dropped;
use serving::{PendingResponse, serve_later};
pub use state::Gateway;

/// The service of one client connection. An error closes the connection without a response.
pub fn service(
    gateway: &Arc<Gateway>,
    connection: &ClientConnection,
) -> impl HttpService<Body = ResponseBody, Error = Dropped> + use<> {
    let client = Rc::new(Client::new(Arc::clone(gateway), connection));
    move |request: Request<RequestBody>| handle(Rc::clone(&client), request, false)
}

/// Decides about a request that another proxy serves, which has described it.
pub(super) fn ask(
    client: Rc<Client>,
    request: Request<RequestBody>,
) -> impl ServiceFuture<Output = Result<Response<ResponseBody>, Dropped>> {
    handle(client, request, true)
}

/// Handles one request. Its exchange counts and logs it, whether it ends or the client leaves. A
/// request `is_question` on each route if it came as one.
///
/// A request that is limited at once has no future: a future has room for everything that it may wait for.
fn handle(
    client: Rc<Client>,
    mut request: Request<RequestBody>,
    is_question: bool,
) -> Either<Ready<Result<Response<ResponseBody>, Dropped>>, PendingResponse> {
    let known = Rc::clone(&client);
    let metrics = &known.gateway.metrics;
    let mut response = empty_response(StatusCode::OK);
    let handled = catch_panic::catch(metrics, || {
        let mut exchange = Exchange::begin(client, &request);
        let decided = catch_panic::catch(metrics, || {
            let target = check_target(&exchange, &mut request)?;
            let sender = exchange.context.sender(&known, request.headers());
            let head = target.head(&request, sender);
            exchange.find_route(&head);
            if is_question || exchange.route().decides() {
                return admit_question(&mut exchange, &mut request, sender, &mut response);
            }
            let resumed = exchange.first_step(&request);
            let decided = admit_routed(&mut exchange, &target, &head, &mut response, resumed)?;
            Ok((target, decided))
        });
        match decided.unwrap_or(Err(Error::Panicked)) {
            Ok((_, Disposition::Respond)) => {}
            Ok((target, decided)) => return Some((exchange, target, decided)),
            Err(error) => response = exchange.error_response(&error, &request),
        }
        discard::discard(&mut request);
        exchange.complete(&mut response);
        None
    });
    match handled {
        Ok(None) => Either::Left(ready(Ok(response))),
        Ok(Some((exchange, target, decided))) => {
            Either::Right(serve_later(exchange, request, target, decided))
        }
        Err(_) => Either::Left(ready(Ok(empty_response(Error::Panicked.status())))),
    }
}

/// Admits the request that a question is about.
#[cold]
fn admit_question(
    exchange: &mut Exchange,
    request: &mut Request<RequestBody>,
    sender: Sender<'_>,
    response: &mut Response<ResponseBody>,
) -> Result<(RequestTarget, Disposition), Error> {
    let context = &exchange.context;
    let target = RequestTarget::described(request, context.trust(), context.ruleset.whole())?;
    let head = target.head(request, sender);
    exchange.set_question(request, &head);
    let resumed = exchange.first_step(request);
    let decided = admit_routed(exchange, &target, &head, response, resumed)?;
    Ok((target, decided))
}

/// Admits a request that has its route, if the access rules let it pass.
#[inline(always)] // Its second caller, a question, is rare.
#[expect(clippy::inline_always)]
fn admit_routed(
    exchange: &mut Exchange,
    target: &RequestTarget,
    head: &Head<'_>,
    response: &mut Response<ResponseBody>,
    resumed: ResumeWith,
) -> Result<Disposition, Error> {
    target.check_route(exchange.route())?;
    // Browsers send preflight requests without credentials, and none goes further.
    if !exchange.answers_preflight()
        && let Some(denial) = check_access(exchange, head)
    {
        let resumed = ResumeWith::Permits(AcquiredPermits::default());
        return deny(exchange, head, response, denial, resumed);
    }
    admit(exchange, head, response, resumed)
}

/// Checks the head, and finds the target, once for the whole request.
fn check_target(
    exchange: &Exchange,
    request: &mut Request<RequestBody>,
) -> Result<RequestTarget, Error> {
    let context = &exchange.context;
    let scheme = context.client.connection.scheme;
    RequestTarget::check_scheme(request, scheme, || context.trust())?;
    framing::check(request)?;
    RequestTarget::of(request, context.ruleset.whole().encoded_slashes)
}

/// Checks the access rules of the request's route, once: the token's check and its instant stay the
/// same.
fn check_access(exchange: &Exchange, head: &Head<'_>) -> Option<Denial> {
    let route = exchange.route();
    let access = route.access.as_ref()?;
    let token = exchange.context.token(route, head.headers);
    let head = head.with_token(token.as_ref());
    access.denial(&head.with_client(exchange.context.known_client()))
}
