//! Reading the body of a request before its limits decide.

use std::time::Duration;

use http::header::{CONTENT_LENGTH, HeaderName, HeaderValue};
use http_body::Body;
use tokio::time::timeout;

use super::decision::ResumeWith;
use crate::http::body::{BodyMemory, RequestBody, RequestBodyError};
use crate::http::message::Request;
use crate::proxy::admission::acquired_permits::AcquiredPermits;
use crate::proxy::answers::error::{Error, bad_request};
use crate::proxy::exchange::Exchange;
use crate::rules::{Ambiguous, BodyChange, stream_usage};

/// The longest time until a body has come: no client that sends bytes one by one holds memory longer.
const MAX_TIME: Duration = Duration::from_secs(300);

/// Fields with a digest of the body, which another body would contradict (RFC 9530).
pub(in crate::proxy) const DIGESTS: [&str; 4] =
    ["content-digest", "content-md5", "digest", "repr-digest"];

impl Exchange {
    /// The first step of admission: by the head alone, if limits may read the body of `request`.
    #[inline]
    pub(super) fn first_step(&self, request: &Request<RequestBody>) -> ResumeWith {
        let reads = self.route().body.is_some() && !self.context.is_question();
        let body = request.body();
        if reads && !body.is_end_stream() && !body.is_tunnel() {
            ResumeWith::Head
        } else {
            ResumeWith::Permits(AcquiredPermits::default())
        }
    }

    /// Receives the body, or as much of it as the route reads, and finds what its limits ask for.
    ///
    /// # Errors
    /// The body is too large, breaks off, or can't be changed; or too many are held.
    pub(super) async fn read_body(&self, request: &mut Request<RequestBody>) -> Result<(), Error> {
        let (route, ruleset) = (self.route(), self.context.ruleset.whole());
        let Some(rules) = &route.spec.body else {
            return Ok(());
        };
        let announced = request.body().size_hint().lower();
        let body = request.body_mut();
        body.bound(route.max_body, ruleset.body_timeout);
        if announced <= rules.limit as u64 {
            let memory = BodyMemory {
                most: ruleset.max_held_bodies as usize,
                client: ruleset.client_ip.identify_client(self.context.client_ip),
            };
            let held = timeout(MAX_TIME, body.hold(rules.limit, memory)).await;
            let held = held.unwrap_or(Err(RequestBodyError::Quiet(MAX_TIME)));
            if !held? {
                return Err(Error::HeldBodies);
            }
        }
        let held = request.body().held();
        let is_long = held.is_none_or(|held| held.len() > rules.limit);
        if is_long && !rules.changes.is_empty() {
            return Err(Error::TooLarge);
        }
        let fields = route.body_fields(request, held).map(Box::new);
        _ = fields.map(|fields| self.context.body.set(fields));
        change_body(request, &rules.changes)
    }
}

/// Has a stream report its usage if a limit needs that. Returns true if the client hasn't asked for it.
///
/// # Errors
/// Upstreams may not read the body alike.
pub(in crate::proxy) fn ask_for_usage(
    exchange: &Exchange,
    request: &mut Request<RequestBody>,
) -> Result<bool, Error> {
    let fields = exchange.context.body();
    let fields = fields.filter(|_| exchange.admission.needs_usage(exchange.route()));
    let path = request.uri().path();
    let changes = fields.map_or(&[][..], |fields| stream_usage::changes(path, fields));
    change_body(request, changes)?;
    Ok(!changes.is_empty())
}

/// Changes a JSON object that is held whole.
///
/// # Errors
/// Upstreams may not read it alike.
pub(in crate::proxy) fn change_body(
    request: &mut Request<RequestBody>,
    changes: &[BodyChange],
) -> Result<(), Error> {
    let Some(held) = request.body().held().filter(|_| !changes.is_empty()) else {
        return Ok(());
    };
    let changed = BodyChange::apply(changes, request.headers(), held);
    let changed =
        changed.map_err(|Ambiguous| bad_request("The body can be read in different ways."))?;
    if let Some(changed) = changed {
        let headers = request.headers_mut();
        if headers.contains(CONTENT_LENGTH) {
            headers.insert(&CONTENT_LENGTH, HeaderValue::from(changed.len()));
        }
        for name in DIGESTS {
            headers.remove(HeaderName::from_static(name));
        }
        request.body_mut().replace_held(changed);
    }
    Ok(())
}
