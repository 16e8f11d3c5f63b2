//! Authentication of callers of the API: bearer tokens (RFC 6750), and the role of each.
//!
//! Browsers send no token by themselves, so another site cannot use a caller's. Requests that
//! change something are refused beside that if a page of another origin sends them.

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::HeaderMap;
use http::header::{HOST, HeaderValue, ORIGIN, RETRY_AFTER, WWW_AUTHENTICATE};

use super::access::Access;
use super::actor::{Actor, TokenRole};
use super::audit::{self, Action};
use super::problem_details::{LoggedChange, ProblemDetails};
use super::state::AdminState;
use crate::clock::Timestamp;
use crate::net::peer_address::PeerAddress;
use crate::telemetry::metrics::AdminRefusal;

/// Lets callers pass that may read, or make this change. Logs changes that are not made, unless the
/// endpoint has.
pub(super) async fn require_token(
    State((state, action)): State<(AdminState, Option<Action>)>,
    mut request: Request,
    next: Next,
) -> Response {
    let role = match action {
        Some(_) => TokenRole::Write,
        None => TokenRole::Read,
    };
    let actor = match authorise(role, &state.access, &request, state.clock.now()) {
        Ok(actor) => actor,
        Err(refusal) => {
            if let Some(action) = action {
                audit::log_refused(&state, action, peer(&request), refusal);
            }
            state.admin_metrics.refused.record(refusal);
            return respond(refusal);
        }
    };
    let uri = request.uri().clone();
    request.extensions_mut().insert(actor.clone());
    let response = next.run(request).await;
    let is_logged = response.extensions().get::<LoggedChange>().is_some();
    if let Some(action) = action
        && !is_logged
        && !response.status().is_success()
    {
        audit::log_rejected(&state, &actor, (action, uri.path()), response.status());
    }
    response
}

/// The other end of the connection.
fn peer(request: &Request) -> PeerAddress {
    let peer = request.extensions().get().copied();
    peer.unwrap_or(PeerAddress::Unix)
}

fn authorise(
    role: TokenRole,
    access: &Access,
    request: &Request,
    now: Timestamp,
) -> Result<Actor, AdminRefusal> {
    let headers = request.headers();
    let (held, number) = access.authenticate(headers, peer(request), now)?;
    if held < role {
        return Err(AdminRefusal::Forbidden);
    }
    if role == TokenRole::Write && is_cross_origin(headers) {
        return Err(AdminRefusal::CrossOrigin);
    }
    Ok(Actor {
        role: held,
        number,
        peer: peer(request),
    })
}

/// Returns true for requests of pages that this listener has not served: by Fetch Metadata (W3C), and
/// by Origin (RFC 6454). A proxy before the listener may speak TLS, so the scheme does not count.
pub(super) fn is_cross_origin(headers: &HeaderMap) -> bool {
    let site = headers.get("sec-fetch-site").map(HeaderValue::as_bytes);
    if matches!(site, Some(b"cross-site" | b"same-site")) {
        return true;
    }
    let Some(origin) = headers.get(ORIGIN) else {
        return false;
    };
    let host = headers.get(HOST).and_then(|host| host.to_str().ok());
    let origin = origin.to_str().ok();
    let authority = origin.and_then(|origin| Some(origin.split_once("://")?.1));
    !authority
        .zip(host)
        .is_some_and(|(authority, host)| authority.eq_ignore_ascii_case(host))
}

fn respond(refusal: AdminRefusal) -> Response {
    let mut response = ProblemDetails::from(refusal).into_response();
    let field = match refusal {
        AdminRefusal::Unauthenticated => {
            Some((WWW_AUTHENTICATE, "Bearer realm=\"sluicegate admin\""))
        }
        // A wait is never longer.
        AdminRefusal::Throttled => Some((RETRY_AFTER, "1")),
        _ => None,
    };
    let field = field.map(|(name, value)| (name, HeaderValue::from_static(value)));
    response.headers_mut().extend(field);
    response
}

#[cfg(test)]
mod tests;
