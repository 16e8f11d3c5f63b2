//! The access-log line of an exchange.

mod request;

use std::time::Duration;

use http::StatusCode;
use smallvec::SmallVec;

use super::{Exchange, RequestContext};
use crate::limiter::Decision;
use crate::proxy::admission::Admission;
use crate::proxy::ruleset::Route;
use crate::rules::Head;
use crate::telemetry::access_log::{
    AccessLog, KeyForm, LogField, LoggedDecision, LoggedKey, LoggedParts, Record, RequestTexts,
};
use crate::telemetry::metrics::LimitDecision;
pub(super) use request::LoggedRequest;

/// The values of the parts of a key, as lines have them.
pub(in crate::proxy) type KeyText = Box<[Box<[u8]>]>;

impl RequestContext {
    /// The text of the deciding bucket's key, if lines of the access log have it.
    pub(in crate::proxy) fn key_text(
        &self,
        admission: &Admission,
        route: &Route,
        head: &Head<'_>,
    ) -> Option<KeyText> {
        let parts = self.ruleset.access_log()?.parts();
        if parts.keys != Some(KeyForm::Readable) {
            return None;
        }
        let logged = admission.logged(route);
        let (limit, _) = logged.limit.zip(logged.key)?;
        Some(limit.spec.descriptor.texts(head).into())
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
        let (route, parts) = (self.route(), log.parts());
        let (upstream, endpoint) = self.sent_to().unwrap_or_default();
        let texts = logged.texts();
        // The request names no trace: the proxy's own is logged.
        let own_trace = self.context.trace.as_ref();
        let own_trace = own_trace.filter(|_| texts.trace_id.is_empty());
        let own_trace = own_trace.map(|trace| trace.trace.to_string());
        let headers: SmallVec<[_; 4]> = logged.headers(&parts.headers).collect();
        let method = self.context.question.as_deref();
        let tls = self.context.client.connection.tls_version;
        let record = Record {
            time: self.context.wall_start(),
            client_ip: self.context.client_ip,
            method: method.unwrap_or(&self.context.method).as_str().as_bytes(),
            texts: RequestTexts {
                trace_id: own_trace.as_ref().map_or(texts.trace_id, String::as_bytes),
                ..texts
            },
            version: self.context.version,
            status,
            bytes: self.sent,
            duration,
            delay: parts
                .has(LogField::DelayMs)
                .then(|| self.delay(duration))
                .flatten(),
            pending: self.pending.get(),
            upstream_time: self.upstream,
            upstream: upstream.as_bytes(),
            endpoint: endpoint.as_bytes(),
            attempts: self.attempts.get(),
            error: self.error.unwrap_or_default(),
            route: route.name.as_bytes(),
            limits: self.decision(route, parts),
            costs: &self.stated,
            tls_version: tls.map_or("", |version| version.into_str()),
            headers: &headers,
        };
        log.record(self.context.client.connection.worker, &record);
    }

    /// The upstream and the endpoint, which a request has not that waits for any of them. Those of a
    /// question are unknown.
    pub(super) fn sent_to(&self) -> Option<(&str, &str)> {
        if self.context.is_question() {
            return Some(("decide", ""));
        }
        let upstream = self.upstream()?;
        match self.endpoint.get() {
            Some(number) => Some((upstream.name(), upstream.endpoints().get(number)?.label())),
            None => self.pending.get().map(|_| (&**upstream.name(), "")),
        }
    }

    /// The deciding policy and its decision.
    fn decision<'a>(&'a self, route: &'a Route, parts: &LoggedParts) -> LoggedDecision<'a> {
        if !parts.has_decision() {
            return LoggedDecision::none();
        }
        let Some(admission) = self.admission() else {
            // The client left while the request waited.
            return match &self.line {
                Some(policy) => LoggedDecision {
                    policy,
                    decision: LimitDecision::Delayed,
                    ..LoggedDecision::none()
                },
                None => LoggedDecision::none(),
            };
        };
        let logged = admission.logged(route);
        let retry_at = logged.decision.and_then(Decision::retry_at);
        LoggedDecision {
            policy: logged.name.map_or("", |name| name),
            decision: logged.word,
            is_banned: admission.is_ban(),
            granted: admission
                .granted(route)
                .map(|limit| &*limit.policy.name)
                .collect(),
            key: match (&self.key_text, logged.key) {
                (Some(text), _) => LoggedKey::Readable(text),
                (None, Some(key)) if parts.keys == Some(KeyForm::Hashed) => {
                    LoggedKey::Hashed(key.bits())
                }
                _ => LoggedKey::None,
            },
            remaining: logged.decision.map(|decision| decision.remaining),
            retry_after: retry_at.map(|at| at.since(self.context.started)),
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
