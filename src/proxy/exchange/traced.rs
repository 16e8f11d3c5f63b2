//! The trace of an exchange: which one it belongs to, what the upstream is told of it, and the
//! spans at the end.

use std::cell::OnceCell;
use std::sync::Arc;
use std::time::Duration;

use http::header::{HeaderName, HeaderValue};
use http::{Method, StatusCode};

use super::Exchange;
use crate::http::forwarded::Peer;
use crate::http::headers::Headers;
use crate::rules::Head;
use crate::telemetry::spans::context::{SpanId, TraceContext, TraceId, is_chosen};
use crate::telemetry::spans::{Forwarded, RequestSpans, SpanQueue};

pub(super) const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// The longest path of a span, in bytes: the queue of spans is bounded by their number.
const MAX_PATH: usize = 1_024;

/// The trace of one request.
#[derive(Debug)]
pub(in crate::proxy) struct RequestTrace {
    pub(super) trace: TraceId,
    parent: Option<SpanId>,
    server: SpanId,
    client: SpanId,
    /// The path without its query, and the queue, if the request is recorded.
    recorded: Option<(Box<str>, Arc<SpanQueue>)>,
    /// The client's name, once its limits have decided.
    client_name: OnceCell<Box<str>>,
}

impl RequestTrace {
    /// The trace of a request. A trusted peer decides if it is recorded; the trace of any other
    /// client goes on, and chance decides.
    pub(super) fn begin(
        queue: &Arc<SpanQueue>,
        headers: &Headers,
        path: &str,
        trust: Peer,
    ) -> Box<Self> {
        let mut fields = headers.get_all(TRACEPARENT);
        let parent = fields.next().and_then(TraceContext::parse);
        // Several fields name no trace.
        let parent = parent.filter(|_| fields.next().is_none());
        let is_recorded = match parent {
            Some(parent) if trust == Peer::Trusted => parent.is_sampled,
            _ => is_chosen(queue.percent),
        };
        Box::new(Self {
            trace: parent.map_or_else(TraceId::random, |parent| parent.trace),
            parent: parent.map(|parent| parent.span),
            server: SpanId::random(),
            client: SpanId::random(),
            recorded: is_recorded.then(|| (cut(path).into(), Arc::clone(queue))),
            client_name: OnceCell::new(),
        })
    }

    /// Notes the name of the client, if it is known and the request is recorded.
    pub(in crate::proxy) fn note_client(&self, head: &Head<'_>) {
        let client = head.client.filter(|_| self.recorded.is_some());
        let name = client.and_then(|client| client.texts(head, &[]).pop());
        _ = name.map(|name| self.client_name.set(name));
    }

    /// Tells the upstream of the trace. The state of a trace that begins here is no one's.
    pub(in crate::proxy) fn write(&self, headers: &mut Headers) {
        let context = TraceContext {
            trace: self.trace,
            span: self.client,
            is_sampled: self.recorded.is_some(),
        };
        if self.parent.is_none() {
            headers.remove(TRACESTATE);
        }
        if let Ok(field) = HeaderValue::from_str(&context.to_field()) {
            headers.insert(TRACEPARENT, field);
        }
    }
}

impl Exchange {
    /// Queues the spans of the request, if it is recorded.
    pub(super) fn record_spans(&self, trace: &RequestTrace, status: StatusCode, elapsed: Duration) {
        let Some((path, queue)) = &trace.recorded else {
            return;
        };
        let route = self.route();
        let logged = self.admission().map(|admission| admission.logged(route));
        let started = self.context.wall_start();
        let ended = started.saturating_add(elapsed);
        queue.push(RequestSpans {
            trace: trace.trace,
            parent: trace.parent,
            server: trace.server,
            client: trace.client,
            started,
            ended,
            method: method_name(&self.context.method),
            path: path.clone(),
            route: Arc::clone(&route.name),
            version: self.context.version,
            client_ip: self.context.client_ip,
            client_name: trace.client_name.get().cloned(),
            status,
            decision: logged
                .and_then(|logged| Some((Arc::clone(logged.name?), logged.word.as_str()))),
            error: self.error,
            forwarded: self.traced_forward(ended),
        });
    }

    fn traced_forward(&self, ended: crate::clock::Timestamp) -> Option<Forwarded> {
        let upstream = self.upstream()?;
        let endpoint = upstream.endpoints().get(self.endpoint.get()?)?;
        let pending = self.pending.get().unwrap_or_default();
        let started = self.context.clock().wall_time(self.forwarded);
        let started = started.saturating_add(pending);
        let answered = self.upstream.map(|took| started.saturating_add(took));
        Some(Forwarded {
            started,
            ended: answered.unwrap_or(ended),
            upstream: Arc::clone(upstream.name()),
            endpoint: Arc::clone(endpoint.label()),
            attempts: self.attempts.get(),
            has_response: answered.is_some(),
        })
    }
}

/// The beginning of a path, as spans have it.
fn cut(path: &str) -> &str {
    &path[..path.floor_char_boundary(MAX_PATH)]
}

/// The method, or `_OTHER` for those that OpenTelemetry's conventions do not know.
fn method_name(method: &Method) -> &'static str {
    const KNOWN: [&str; 9] = [
        "GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH",
    ];
    let mut known = KNOWN.into_iter();
    known.find(|known| method == *known).unwrap_or("_OTHER")
}
