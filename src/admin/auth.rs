//! Authentication of callers of the API: bearer tokens (RFC 6750), and the role of each.
//!
//! Browsers send no token by themselves, so another site cannot use a caller's. Requests that
//! change something are refused beside that if a page of another origin sends them.

mod guesses;

use std::env;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, IsTerminal, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwap;
use aws_lc_rs::rand;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::header::{AUTHORIZATION, HOST, HeaderValue, ORIGIN, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderMap, StatusCode};

use self::guesses::Guesses;
use super::AdminState;
use super::audit::{self, Action};
use super::problem_details::{LoggedChange, ProblemDetails};
use crate::clock::Timestamp;
use crate::http::token_digest::TokenDigest;
use crate::net::peer_address::PeerAddress;
use crate::telemetry::log_throttle::LogThrottle;
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub(super) enum Role {
    Read,
    Write,
}

/// An authenticated caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Actor {
    role: Role,
    /// The place of its token in the configuration, from 1.
    number: usize,
    /// The other end of its connection.
    pub(super) peer: PeerAddress,
}

impl Actor {
    /// The role and the place of its token, which tell tokens apart.
    pub(super) fn token(&self) -> (Role, usize) {
        (self.role, self.number)
    }

    /// A caller with the reader token at this place.
    #[cfg(test)]
    pub(super) fn reader(number: usize, peer: PeerAddress) -> Self {
        Self {
            role: Role::Read,
            number,
            peer,
        }
    }
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
    made: Arc<OnceLock<MadeToken>>,
    guesses: Arc<Guesses>,
    warnings: Arc<Warnings>,
}

/// A token that was made, and its file, which is removed when the process ends.
#[derive(Debug)]
struct MadeToken {
    digest: TokenDigest,
    file: Option<PathBuf>,
}

impl Drop for MadeToken {
    fn drop(&mut self) {
        // Nothing is left to do for one that is gone already.
        self.file
            .iter()
            .for_each(|file| drop(fs::remove_file(file)));
    }
}

/// The pauses between log lines on wrong tokens.
#[derive(Debug)]
struct Warnings(LogThrottle);

impl Default for Warnings {
    fn default() -> Self {
        Self(LogThrottle::new(Duration::from_secs(60)))
    }
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
            spec.write.push(self.made.get_or_init(make_token).digest);
        }
        self.in_force.store(Arc::new(spec));
    }

    /// The tokens in force.
    pub(super) fn tokens(&self) -> Arc<AccessSpec> {
        self.in_force.load_full()
    }

    /// The role of the token that a request has, and its place from 1.
    ///
    /// # Errors
    /// There is no known token, or there were too many wrong ones from its address.
    fn authenticate(
        &self,
        headers: &HeaderMap,
        peer: PeerAddress,
        now: Timestamp,
    ) -> Result<(Role, usize), AdminRefusal> {
        let token = bearer(headers).ok_or(AdminRefusal::Unauthenticated)?;
        let address = peer.ip();
        if address.is_some_and(|address| self.guesses.check(address, now).is_err()) {
            return Err(AdminRefusal::Throttled);
        }
        self.identify(token).ok_or_else(|| {
            address.iter().for_each(|address| self.guesses.note(*address, now));
            if let Some(omitted) = self.warnings.0.admit(now) {
                tracing::warn!(
                    %peer,
                    omitted,
                    "a wrong token for the admin API: an address may try ten at once, then one a second"
                );
            }
            AdminRefusal::Unauthenticated
        })
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

/// Makes a token of 256 random bits. A terminal shows it. Otherwise a file has it that only this user
/// can read: logs go to people who may not change what runs.
fn make_token() -> MadeToken {
    let token = random_text::<32>();
    let mut made = MadeToken {
        digest: TokenDigest::of(&token),
        file: None,
    };
    if io::stderr().is_terminal() {
        tracing::info!(
            token,
            "admin.tokens is empty: this token may read and write until the process ends"
        );
    } else {
        match write_token(&token) {
            Ok(file) => {
                tracing::info!(
                    file = %file.display(),
                    "admin.tokens is empty: this file has a token that may read and write until the process ends"
                );
                made.file = Some(file);
            }
            Err(error) => tracing::warn!(
                %error,
                "admin.tokens is empty, and no file can be written with a token: the admin API is closed"
            ),
        }
    }
    made
}

/// Writes the token to a new file that only this user can read.
fn write_token(token: &str) -> io::Result<PathBuf> {
    let set = |name| env::var_os(name).filter(|value| !value.is_empty());
    // systemd's directories of the service and of the user's session.
    let directories = ["RUNTIME_DIRECTORY", "XDG_RUNTIME_DIR"].into_iter();
    let directories = directories.filter_map(set).map(PathBuf::from);
    let mut written = Err(io::ErrorKind::NotFound.into());
    for directory in directories.chain([env::temp_dir()]) {
        let file = directory.join(format!("sluicegate-admin-token-{}", random_text::<6>()));
        let mut options = File::options();
        let opened = options.write(true).create_new(true).mode(0o600).open(&file);
        written = opened
            .and_then(|mut opened| writeln!(opened, "{token}"))
            .map(|()| file);
        if written.is_ok() {
            break;
        }
    }
    written
}

/// Random bytes as text.
fn random_text<const BYTES: usize>() -> String {
    let mut bytes = [0; BYTES];
    rand::fill(&mut bytes).expect("the system has random numbers");
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Lets callers pass that may read.
pub(super) async fn require_read(
    State(state): State<AdminState>,
    mut request: Request,
    next: Next,
) -> Response {
    match authorise(Role::Read, &state.access, &request, state.clock.now()) {
        Ok(actor) => {
            request.extensions_mut().insert(actor);
            next.run(request).await
        }
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
    let actor = match authorise(Role::Write, &state.access, &request, state.clock.now()) {
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

fn authorise(
    role: Role,
    access: &Access,
    request: &Request,
    now: Timestamp,
) -> Result<Actor, AdminRefusal> {
    let headers = request.headers();
    let (held, number) = access.authenticate(headers, peer(request), now)?;
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
        AdminRefusal::Throttled => (
            StatusCode::TOO_MANY_REQUESTS,
            "too many wrong tokens came from this address: it may try one a second",
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
