//! Spans as OTLP has them (opentelemetry-proto 1.x, `trace/v1/trace.proto`): the messages and the
//! fields that a collector needs of them, by the numbers of the published files.
//!
//! The crates of OpenTelemetry would bring a second pipeline of spans, and gRPC's types with it.

use http::{StatusCode, Version};
use prost::{Message, Oneof};

use super::context::SpanId;
use super::{Forwarded, RequestSpans};
use crate::clock::Timestamp;

/// `SPAN_KIND_SERVER` and `SPAN_KIND_CLIENT`.
const SERVER: i32 = 2;
const CLIENT: i32 = 3;
/// `STATUS_CODE_ERROR`.
const ERROR: i32 = 2;

/// `ExportTraceServiceResponse`.
#[derive(Clone, PartialEq, Message)]
pub struct ExportResponse {
    /// Set if the collector has rejected spans, or warns of something.
    #[prost(message, optional, tag = "1")]
    pub partial_success: Option<PartialSuccess>,
}

/// `ExportTracePartialSuccess`.
#[derive(Clone, PartialEq, Message)]
pub struct PartialSuccess {
    /// The number of rejected spans.
    #[prost(int64, tag = "1")]
    pub rejected_spans: i64,
    /// The reason, or a warning.
    #[prost(string, tag = "2")]
    pub error_message: String,
}

/// `google.rpc.Status`, which failures have.
#[derive(Clone, PartialEq, Message)]
pub struct FailureStatus {
    /// The reason.
    #[prost(string, tag = "2")]
    pub message: String,
}

/// `ExportTraceServiceRequest`.
#[derive(Clone, PartialEq, Message)]
pub struct ExportRequest {
    /// One for each resource.
    #[prost(message, repeated, tag = "1")]
    pub resource_spans: Vec<ResourceSpans>,
}

/// The spans of one resource.
#[derive(Clone, PartialEq, Message)]
pub struct ResourceSpans {
    /// The process.
    #[prost(message, optional, tag = "1")]
    pub resource: Option<Resource>,
    /// One for each scope.
    #[prost(message, repeated, tag = "2")]
    pub scope_spans: Vec<ScopeSpans>,
}

/// The process that the spans are of.
#[derive(Clone, PartialEq, Message)]
pub struct Resource {
    /// Its attributes.
    #[prost(message, repeated, tag = "1")]
    pub attributes: Vec<KeyValue>,
}

/// The spans of one scope.
#[derive(Clone, PartialEq, Message)]
pub struct ScopeSpans {
    /// The program.
    #[prost(message, optional, tag = "1")]
    pub scope: Option<Scope>,
    /// The spans.
    #[prost(message, repeated, tag = "2")]
    pub spans: Vec<Span>,
}

/// `InstrumentationScope`.
#[derive(Clone, PartialEq, Message)]
pub struct Scope {
    /// The program's name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// The program's version.
    #[prost(string, tag = "2")]
    pub version: String,
}

/// One span.
#[derive(Clone, PartialEq, Message)]
pub struct Span {
    /// 16 bytes.
    #[prost(bytes = "vec", tag = "1")]
    pub trace_id: Vec<u8>,
    /// 8 bytes.
    #[prost(bytes = "vec", tag = "2")]
    pub span_id: Vec<u8>,
    /// 8 bytes; empty without a parent.
    #[prost(bytes = "vec", tag = "4")]
    pub parent_span_id: Vec<u8>,
    /// Method and route.
    #[prost(string, tag = "5")]
    pub name: String,
    /// Server or client.
    #[prost(int32, tag = "6")]
    pub kind: i32,
    /// Nanoseconds since the Unix epoch.
    #[prost(fixed64, tag = "7")]
    pub start_time_unix_nano: u64,
    /// Nanoseconds since the Unix epoch.
    #[prost(fixed64, tag = "8")]
    pub end_time_unix_nano: u64,
    /// Attributes.
    #[prost(message, repeated, tag = "9")]
    pub attributes: Vec<KeyValue>,
    /// Set for failures only.
    #[prost(message, optional, tag = "15")]
    pub status: Option<Status>,
}

/// The status of a span.
#[derive(Clone, PartialEq, Message)]
pub struct Status {
    /// 2 for an error.
    #[prost(int32, tag = "3")]
    pub code: i32,
}

/// An attribute.
#[derive(Clone, PartialEq, Message)]
pub struct KeyValue {
    /// Its name.
    #[prost(string, tag = "1")]
    pub key: String,
    /// Its value.
    #[prost(message, optional, tag = "2")]
    pub value: Option<AnyValue>,
}

/// The value of an attribute.
#[derive(Clone, PartialEq, Message)]
pub struct AnyValue {
    /// A text or a number.
    #[prost(oneof = "Value", tags = "1, 3")]
    pub value: Option<Value>,
}

/// A text or a number.
#[derive(Clone, PartialEq, Oneof)]
pub enum Value {
    /// A text.
    #[prost(string, tag = "1")]
    Text(String),
    /// A number.
    #[prost(int64, tag = "3")]
    Number(i64),
}

/// Encodes the spans of requests of the service with this name.
pub fn encode(requests: &[RequestSpans], service_name: &str) -> Vec<u8> {
    let spans = requests.iter().flat_map(|request| {
        let client = request.forwarded.as_ref();
        let client = client.map(|forwarded| client_span(request, forwarded));
        [Some(server_span(request)), client].into_iter().flatten()
    });
    let request = ExportRequest {
        resource_spans: vec![ResourceSpans {
            resource: Some(Resource {
                attributes: vec![text("service.name", service_name)],
            }),
            scope_spans: vec![ScopeSpans {
                scope: Some(Scope {
                    name: env!("CARGO_PKG_NAME").to_owned(),
                    version: env!("CARGO_PKG_VERSION").to_owned(),
                }),
                spans: spans.collect(),
            }],
        }],
    };
    request.encode_to_vec()
}

/// The span of the whole request, with the attributes of OpenTelemetry's conventions for HTTP
/// servers 1.23 and later.
fn server_span(request: &RequestSpans) -> Span {
    let mut attributes = vec![
        text("http.request.method", request.method),
        text("url.path", &request.path),
        text("network.protocol.version", version(request.version)),
        text("client.address", request.client_ip.to_string()),
        number("http.response.status_code", request.status.as_u16().into()),
    ];
    if !request.route.is_empty() {
        attributes.push(text("http.route", &request.route));
    }
    if let Some(name) = &request.client_name {
        attributes.push(text("sluicegate.client", name));
    }
    if let Some((policy, decision)) = &request.decision {
        attributes.push(text("sluicegate.policy", policy));
        attributes.push(text("sluicegate.decision", decision));
    }
    let is_error = request.status.is_server_error();
    attributes.extend(error_type(
        request.error,
        is_error.then_some(request.status),
    ));
    Span {
        name: match &*request.route {
            "" => request.method.to_owned(),
            route => format!("{} {route}", request.method),
        },
        kind: SERVER,
        attributes,
        status: is_error.then_some(Status { code: ERROR }),
        ..span(
            request,
            request.server,
            request.parent,
            [request.started, request.ended],
        )
    }
}

/// The span of the forwarded request, from its start to the head of the response.
fn client_span(request: &RequestSpans, forwarded: &Forwarded) -> Span {
    let Forwarded {
        upstream, endpoint, ..
    } = forwarded;
    let mut attributes = vec![
        text("http.request.method", request.method),
        text("server.address", endpoint),
        text("sluicegate.upstream", upstream),
    ];
    if forwarded.attempts > 1 {
        let again = i64::from(forwarded.attempts - 1);
        attributes.push(number("http.request.resend_count", again));
    }
    let status = request.status;
    if forwarded.has_response {
        attributes.push(number("http.response.status_code", status.as_u16().into()));
    }
    let is_error = !forwarded.has_response || status.is_client_error() || status.is_server_error();
    attributes.extend(error_type(request.error, is_error.then_some(status)));
    let times = [forwarded.started, forwarded.ended];
    Span {
        name: request.method.to_owned(),
        kind: CLIENT,
        attributes,
        status: is_error.then_some(Status { code: ERROR }),
        ..span(request, request.client, Some(request.server), times)
    }
}

/// A span of the request, with its identity and its time.
fn span(
    request: &RequestSpans,
    id: SpanId,
    parent: Option<SpanId>,
    [started, ended]: [Timestamp; 2],
) -> Span {
    let bytes = |id: SpanId| id.0.to_be_bytes().to_vec();
    let nanos = |at: Timestamp| at.as_micros().saturating_mul(1_000);
    Span {
        trace_id: request.trace.0.to_be_bytes().to_vec(),
        span_id: bytes(id),
        parent_span_id: parent.map_or_else(Vec::new, bytes),
        start_time_unix_nano: nanos(started),
        end_time_unix_nano: nanos(ended),
        ..Span::default()
    }
}

/// `error.type`: the word of the access log, or the status of a failure.
fn error_type(error: Option<&'static str>, failed: Option<StatusCode>) -> Option<KeyValue> {
    let status = failed.as_ref().map(StatusCode::as_str);
    error.or(status).map(|word| text("error.type", word))
}

fn text(key: &str, value: impl AsRef<str>) -> KeyValue {
    attribute(key, Value::Text(value.as_ref().to_owned()))
}

fn number(key: &str, value: i64) -> KeyValue {
    attribute(key, Value::Number(value))
}

fn attribute(key: &str, value: Value) -> KeyValue {
    KeyValue {
        key: key.to_owned(),
        value: Some(AnyValue { value: Some(value) }),
    }
}

fn version(version: Version) -> &'static str {
    match version {
        Version::HTTP_10 => "1.0",
        Version::HTTP_2 => "2",
        _ => "1.1",
    }
}
