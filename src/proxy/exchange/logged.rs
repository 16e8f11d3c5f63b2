//! The access-log line of an exchange.

use std::time::Duration;

use http::StatusCode;
use http::header::{self, HeaderName};

use super::Exchange;
use crate::http::message::Request;
use crate::proxy::ruleset::Route;
use crate::telemetry::access_log::{AccessLog, LineFormat, Record};
use crate::telemetry::metrics::LimitDecision;

const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Copies of the request's texts for its access-log line. One copy costs less than sharing the
/// buffer of the head, which would live longer.
#[derive(Debug)]
pub(super) struct LoggedRequest {
    texts: Box<[u8]>,
    lengths: [u32; TEXTS],
}

/// The offsets of target, host, referer, user agent and request id.
const TEXTS: usize = 5;

impl LoggedRequest {
    /// Copies the texts that lines of `format` have.
    pub(super) fn new<B>(request: &Request<B>, format: LineFormat) -> Self {
        let is_told = format.tells_all();
        let target = request.uri().path_and_query();
        let (mut host, mut referer, mut user_agent, mut request_id) = (None, None, None, None);
        // One pass: a look-up for each field would cost more.
        for (name, value) in request.headers().iter() {
            let place = match *name {
                header::REFERER => &mut referer,
                header::USER_AGENT => &mut user_agent,
                header::HOST if is_told => &mut host,
                _ if is_told && *name == X_REQUEST_ID => &mut request_id,
                _ => continue,
            };
            place.get_or_insert(value);
        }
        // HTTP/2 has the host in the target.
        let authority = || {
            request
                .uri()
                .authority()
                .map(|host| host.as_str().as_bytes())
        };
        let texts = [
            target.map(|target| target.as_str().as_bytes()),
            host.or_else(|| is_told.then(authority).flatten()),
            referer,
            user_agent,
            request_id,
        ]
        .map(Option::unwrap_or_default);
        let mut all = Vec::with_capacity(texts.iter().map(|text| text.len()).sum());
        for text in texts.into_iter().filter(|text| !text.is_empty()) {
            all.extend_from_slice(text);
        }
        LoggedRequest {
            texts: all.into(),
            // Heads are bounded far below 4 GiB.
            lengths: texts.map(|text| text.len() as u32),
        }
    }

    /// The texts; empty if a field is absent.
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
        logged: &LoggedRequest,
        status: StatusCode,
        duration: Duration,
    ) {
        let route = self.route();
        let is_told = log.spec().format.tells_all();
        let (policy, decision) = match is_told {
            true => self.said(route),
            false => ("", LimitDecision::Allowed),
        };
        let (upstream, endpoint) = self.sent_to(route).unwrap_or_default();
        let [target, host, referer, user_agent, request_id] = logged.texts();
        let record = Record {
            time: self.context.started,
            client_ip: self.context.client_ip,
            method: self.context.method.as_str().as_bytes(),
            host,
            path: target,
            version: self.context.version,
            status,
            bytes: self.sent,
            duration,
            delay: is_told.then(|| self.delay(duration)).flatten(),
            pending: self.pending.get(),
            upstream_time: self.upstream,
            upstream: upstream.as_bytes(),
            endpoint: endpoint.as_bytes(),
            attempts: self.attempts.get(),
            error: self.error.unwrap_or_default(),
            route: route.name.as_bytes(),
            policy: policy.as_bytes(),
            decision: decision.as_str(),
            costs: &self.stated,
            referer,
            user_agent,
            request_id,
        };
        log.record(self.context.client.connection.worker, &record);
    }

    /// The upstream and the endpoint, which a request has not that waits for any of them.
    pub(super) fn sent_to<'a>(&self, route: &'a Route) -> Option<(&'a str, &'a str)> {
        let upstream = route.upstream.as_ref()?;
        match self.endpoint.get() {
            Some(number) => Some((upstream.name(), upstream.endpoints().get(number)?.label())),
            None => self.pending.get().map(|_| (&**upstream.name(), "")),
        }
    }

    /// The deciding policy and its decision.
    fn said<'a>(&'a self, route: &'a Route) -> (&'a str, LimitDecision) {
        match self.admission() {
            Some(admission) => admission.logged(route),
            // The client left while the request waited.
            None => match &self.line {
                Some(policy) => (policy, LimitDecision::Delayed),
                None => ("", LimitDecision::Allowed),
            },
        }
    }

    /// The time that the request waited, if it did.
    fn delay(&self, duration: Duration) -> Option<Duration> {
        let Some(admission) = self.admission() else {
            return self.line.as_ref().map(|_| duration);
        };
        let until = match admission.delayed_until() {
            None if self.line.is_some() => self.forwarded,
            until => until?,
        };
        Some(until.since(self.context.started))
    }
}
