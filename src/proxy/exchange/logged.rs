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

/// Texts of a request's head, for lines of the access log.
#[derive(Debug, Default)]
pub(in crate::proxy) struct KeyTexts {
    /// The values of the parts of the deciding bucket's key.
    key: Option<Vec<Box<[u8]>>>,
    /// The client's name, and its logged columns; empty without a client.
    client: Vec<Box<str>>,
}

impl RequestContext {
    /// The texts of the deciding bucket's key and of the client, if lines of the access log have them.
    pub(in crate::proxy) fn key_texts(
        &self,
        admission: &Admission,
        route: &Route,
        head: &Head<'_>,
    ) -> Option<Box<KeyTexts>> {
        let parts = self.ruleset.access_log()?.parts();
        let client = head.client.filter(|_| parts.has(LogField::Client));
        let is_readable = parts.keys == Some(KeyForm::Readable);
        if client.is_none() && !is_readable {
            return None;
        }
        let logged = admission.logged(route);
        let key = logged.limit.zip(logged.key).filter(|_| is_readable);
        Some(Box::new(KeyTexts {
            key: key.map(|(limit, _)| limit.spec.descriptor.texts(head)),
            client: client.map_or(Vec::new(), |client| {
                client.texts(head, &parts.client_columns)
            }),
        }))
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
        let names = parts.client_columns.iter().map(|name| &**name);
        let texts_of_client = self.key_texts.iter().flat_map(|texts| &texts.client);
        let client = std::iter::once("").chain(names);
        let client = client.zip(texts_of_client.map(|text| &**text));
        let client: SmallVec<[_; 4]> = client.collect();
        let method = self.context.question.as_deref();
        let tls = self.context.client.connection.tls_version;
        let record = Record {
            time: self.context.wall_start(),
            client_ip: self.context.client_ip,
            client: &client,
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
            return LoggedDecision::default();
        }
        let Some(admission) = self.admission() else {
            // The client left while the request waited.
            return match &self.line {
                Some(policy) => LoggedDecision {
                    policy,
                    decision: LimitDecision::Delayed,
                    ..LoggedDecision::default()
                },
                None => LoggedDecision::default(),
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
            key: match (
                self.key_texts.as_ref().and_then(|texts| texts.key.as_ref()),
                logged.key,
            ) {
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
