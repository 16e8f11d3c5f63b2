//! What the access log says of an exchange.

use std::time::Duration;

use http::header::{self, HeaderName, HeaderValue};
use http::{StatusCode, Uri};

use super::Exchange;
use crate::http_ext::message::Request;
use crate::telemetry::access_log::{AccessLog, Record};
use crate::telemetry::metrics::LimitDecision;

const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// What the access log wants to know of a request, and the request itself no longer has at its end.
#[derive(Debug)]
pub(super) struct Logged {
    uri: Uri,
    host: Option<HeaderValue>,
    referer: Option<HeaderValue>,
    user_agent: Option<HeaderValue>,
    request_id: Option<HeaderValue>,
}

impl Logged {
    pub(super) fn new<B>(request: &Request<B>) -> Self {
        let field = |name| request.headers().get(name).cloned();
        // HTTP/2 has it in the target.
        let authority = || HeaderValue::from_str(request.uri().authority()?.as_str()).ok();
        Logged {
            uri: request.uri().clone(),
            host: field(header::HOST).or_else(authority),
            referer: field(header::REFERER),
            user_agent: field(header::USER_AGENT),
            request_id: field(X_REQUEST_ID),
        }
    }
}

/// What a field says; nothing where it is absent.
fn text(field: &Option<HeaderValue>) -> &[u8] {
    field.as_ref().map_or(b"", HeaderValue::as_bytes)
}

impl Exchange {
    pub(super) fn log(
        &self,
        log: &AccessLog,
        logged: &Logged,
        status: StatusCode,
        duration: Duration,
    ) {
        let route = self.route();
        let (policy, decision) = match self.admission() {
            Some(admission) => admission.logged(route),
            // It has left before its turn.
            None => match &self.line {
                Some(policy) => (&**policy, LimitDecision::Delayed.as_str()),
                None => ("", LimitDecision::Allowed.as_str()),
            },
        };
        let record = Record {
            time: self.begun.started,
            client_ip: self.begun.client_ip,
            method: self.begun.method.as_str().as_bytes(),
            host: text(&logged.host),
            path: logged
                .uri
                .path_and_query()
                .map_or(b"", |target| target.as_str().as_bytes()),
            version: self.begun.version,
            status: status.as_u16(),
            bytes: self.sent,
            duration,
            delay: self.delay(duration),
            upstream: self.upstream,
            route: route.name.as_bytes(),
            policy: policy.as_bytes(),
            decision,
            referer: text(&logged.referer),
            user_agent: text(&logged.user_agent),
            request_id: text(&logged.request_id),
        };
        log.record(self.begun.client.connection.worker, &record);
    }

    /// For how long it had to wait, if it had to.
    fn delay(&self, duration: Duration) -> Option<Duration> {
        let Some(admission) = self.admission() else {
            return self.line.as_ref().map(|_| duration);
        };
        let until = match admission.delayed_until() {
            None if self.line.is_some() => self.forwarded,
            until => until?,
        };
        Some(until.since(self.begun.started))
    }
}
