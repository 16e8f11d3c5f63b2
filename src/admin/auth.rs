//! Authentication of callers of the API: bearer tokens (RFC 6750), and the role of each.
//!
//! Browsers send no token by themselves, so another site cannot use a caller's. Requests that
//! change something are refused beside that if a page of another origin sends them.

use std::fmt;
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use aws_lc_rs::rand;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::header::{AUTHORIZATION, HOST, HeaderValue, ORIGIN, WWW_AUTHENTICATE};
use http::{HeaderMap, StatusCode};

use super::AdminState;
use super::audit::{self, Action};
use super::problem_details::{LoggedChange, ProblemDetails};
use crate::http::token_digest::TokenDigest;
use crate::net::peer_address::PeerAddress;
use crate::telemetry::metrics::AdminRefusal;

/// The tokens of a configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessSpec {
    /// Tokens of callers that may read.
    pub read: Vec<TokenDigest>,
    /// Tokens of callers that may also change what runs.
    pub write: Vec<TokenDigest>,
}

/// The role of a caller. Each includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub(super) enum Role {
    Read,
    Write,
}

/// An authenticated caller.
#[derive(Clone, Debug)]
pub(super) struct Actor {
    role: Role,
    /// The place of its token in the configuration, from 1.
    number: usize,
    /// The other end of its connection.
    pub(super) peer: PeerAddress,
}

/// The token's role and place: `write#1`.
impl fmt::Display for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{}", <&str>::from(self.role), self.number)
    }
}

/// The tokens in force, which reloads replace. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Access {
    in_force: Arc<ArcSwap<AccessSpec>>,
    /// The token that was made because none was configured. It stays valid while none is.
    made: Arc<OnceLock<TokenDigest>>,
}

impl Access {
    /// The tokens of `spec`; without any, a write token that is made and logged.
    pub fn new(spec: AccessSpec) -> Self {
        let access = Self::default();
        access.reload(spec);
        access
    }

    /// Accepts these tokens, and no others, from now on.
    pub fn reload(&self, mut spec: AccessSpec) {
        if spec.read.is_empty() && spec.write.is_empty() {
            spec.write.push(*self.made.get_or_init(make_token));
        }
        self.in_force.store(Arc::new(spec));
    }

    /// The tokens in force.
    pub(super) fn tokens(&self) -> Arc<AccessSpec> {
        self.in_force.load_full()
    }

    /// The role of a token, and its place from 1. Compares with all tokens, whatever matches.
    fn identify(&self, token: &str) -> Option<(Role, usize)> {
        let (given, known) = (TokenDigest::of(token), self.in_force.load());
        let find = |role, digests: &[TokenDigest]| {
            let numbered = digests.iter().zip(1..);
            numbered.fold(None, |found, (digest, number)| {
                match digest.matches(&given) {
                    true => Some((role, number)),
                    false => found,
                }
            })
        };
        let readers = find(Role::Read, &known.read);
        find(Role::Write, &known.write).or(readers)
    }
}

/// Makes a token of 256 random bits, and logs it.
fn make_token() -> TokenDigest {
    let mut bytes = [0; 32];
    rand::fill(&mut bytes).expect("the system has random numbers");
    let token = URL_SAFE_NO_PAD.encode(bytes);
    tracing::info!(
        token,
        "admin.tokens is empty: this token may read and write until the process ends"
    );
    TokenDigest::of(&token)
}

/// Lets callers pass that may read.
pub(super) async fn require_read(
    State(state): State<AdminState>,
    request: Request,
    next: Next,
) -> Response {
    match authorise(Role::Read, &state.access, &request) {
        Ok(_) => next.run(request).await,
        Err(refusal) => refuse(&state, refusal),
    }
}

/// Lets callers pass that may change something. Logs changes that are not made, unless the endpoint
/// has.
pub(super) async fn require_write(
    State((state, action)): State<(AdminState, Action)>,
    mut request: Request,
    next: Next,
) -> Response {
    let actor = match authorise(Role::Write, &state.access, &request) {
        Ok(actor) => actor,
        Err(refusal) => {
            audit::log_refused(&state, action, peer(&request), refusal);
            return refuse(&state, refusal);
        }
    };
    let uri = request.uri().clone();
    request.extensions_mut().insert(actor.clone());
    let response = next.run(request).await;
    let is_logged = response.extensions().get::<LoggedChange>().is_some();
    if !is_logged && !response.status().is_success() {
        audit::log_rejected(&state, &actor, (action, uri.path()), response.status());
    }
    response
}

fn refuse(state: &AdminState, refusal: AdminRefusal) -> Response {
    state.admin_metrics.refused(refusal);
    respond(refusal)
}

/// The other end of the connection.
fn peer(request: &Request) -> PeerAddress {
    let peer = request.extensions().get().copied();
    peer.unwrap_or(PeerAddress::Unix)
}

fn authorise(role: Role, access: &Access, request: &Request) -> Result<Actor, AdminRefusal> {
    let headers = request.headers();
    let caller = bearer(headers).and_then(|token| access.identify(token));
    let (held, number) = caller.ok_or(AdminRefusal::Unauthenticated)?;
    if held < role {
        return Err(AdminRefusal::Forbidden);
    }
    if role == Role::Write && is_cross_origin(headers) {
        return Err(AdminRefusal::CrossOrigin);
    }
    Ok(Actor {
        role: held,
        number,
        peer: peer(request),
    })
}

/// The token of the only `Authorization` field (RFC 6750 section 2.1).
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let mut fields = headers.get_all(AUTHORIZATION).iter();
    let (field, None) = (fields.next()?, fields.next()) else {
        return None;
    };
    let (scheme, token) = field.to_str().ok()?.split_once(' ')?;
    let is_bearer = scheme.eq_ignore_ascii_case("bearer");
    is_bearer.then_some(token.trim_start_matches(' '))
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

/// The answer to a refused request, without its header fields.
pub(super) fn problem(refusal: AdminRefusal) -> ProblemDetails {
    let (status, detail) = match refusal {
        AdminRefusal::Unauthenticated => (
            StatusCode::UNAUTHORIZED,
            "send a token of admin.tokens: `Authorization: Bearer TOKEN`",
        ),
        AdminRefusal::Forbidden => (
            StatusCode::FORBIDDEN,
            "this token may read only: use one of admin.tokens.write",
        ),
        AdminRefusal::CrossOrigin => (
            StatusCode::FORBIDDEN,
            "a page of another origin sent this: the listener serves its own pages only",
        ),
        AdminRefusal::UnknownHost => (
            StatusCode::MISDIRECTED_REQUEST,
            "the listener has another host: use its address, localhost, or a name of admin.hosts",
        ),
    };
    ProblemDetails::new(status, detail)
}

fn respond(refusal: AdminRefusal) -> Response {
    let mut response = problem(refusal).into_response();
    if refusal == AdminRefusal::Unauthenticated {
        let challenge = HeaderValue::from_static("Bearer realm=\"sluicegate admin\"");
        response.headers_mut().insert(WWW_AUTHENTICATE, challenge);
    }
    response
}

#[cfg(test)]
mod tests;
