//! What the access log says of an exchange.

use std::time::Duration;

use http::StatusCode;
use http::header::{self, HeaderName};

use super::Exchange;
use crate::http_ext::message::Request;
use crate::telemetry::access_log::{AccessLog, Format, Record};
use crate::telemetry::metrics::LimitDecision;

const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// What the access log wants to know of a request, and the request itself no longer has at its end.
///
/// Copies in one place: they cost less than to share what the head was read into, which stays no longer than needed.
#[derive(Debug)]
pub(super) struct Logged {
    texts: Box<[u8]>,
    lengths: [u32; TEXTS],
}

/// Target, host, referer, user agent, request id.
const TEXTS: usize = 5;

impl Logged {
    /// What a log in this format says of a request.
    pub(super) fn new<B>(request: &Request<B>, format: Format) -> Self {
        let (uri, headers) = (request.uri(), request.headers());
        let target = uri.path_and_query().map_or("", |target| target.as_str());
        // HTTP/2 has it in the target.
        let authority = || {
            uri.authority()
                .map(|authority| authority.as_str().as_bytes())
        };
        let host = || headers.get(header::HOST).or_else(authority);
        // To look for what is not said would cost as much as to say it.
        let is_told = format.tells_host_and_id();
        let texts = [
            Some(target.as_bytes()),
            is_told.then(host).flatten(),
            headers.get(header::REFERER),
            headers.get(header::USER_AGENT),
            is_told.then(|| headers.get(X_REQUEST_ID)).flatten(),
        ]
        .map(Option::unwrap_or_default);
        Logged {
            texts: texts.concat().into(),
            // Heads are read up to a bound far below 4 GiB.
            lengths: texts.map(|text| text.len() as u32),
        }
    }

    /// The texts; empty where a field is absent.
    fn texts(&self) -> [&[u8]; TEXTS] {
        let mut rest = &*self.texts;
        self.lengths.map(|length| {
            let (text, after) = rest.split_at(length as usize);
            rest = after;
            text
        })
    }
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
        let [target, host, referer, user_agent, request_id] = logged.texts();
        let record = Record {
            time: self.begun.started,
            client_ip: self.begun.client_ip,
            method: self.begun.method.as_str().as_bytes(),
            host,
            path: target,
            version: self.begun.version,
            status: status.as_u16(),
            bytes: self.sent,
            duration,
            delay: self.delay(duration),
            upstream: self.upstream,
            route: route.name.as_bytes(),
            policy: policy.as_bytes(),
            decision,
            referer,
            user_agent,
            request_id,
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
