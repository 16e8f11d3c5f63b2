//! The fields of a JSON line, and what a log has of each request.

use http::HeaderName;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{EnumIter, IntoEnumIterator};

use super::{AccessLogSpec, LineFormat};

/// The longest value of a logged header field, in bytes; longer ones are cut.
pub const MAX_HEADER_VALUE: usize = 1024;
/// The most values of header fields that a line has.
pub const MAX_HEADER_VALUES: usize = 16;

// In the order of lines.
/// A field of the access log.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, EnumIter, Deserialize, Serialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum LogField {
    /// When the request's head had arrived.
    #[default]
    Time,
    /// The client's address.
    ClientIp,
    /// The name of the client by its key, and its columns of the operator's choice.
    Client,
    /// The method.
    Method,
    /// The host, without a port.
    Host,
    /// The path with its query.
    Path,
    /// The version of HTTP.
    Version,
    /// The status of the response.
    Status,
    /// Bytes of the response's body that were sent.
    Bytes,
    /// The time of the whole request.
    DurationMs,
    /// The time that a limit has the request wait.
    DelayMs,
    /// The time that the request waits for a slot of its upstream.
    PendingMs,
    /// The time until the upstream's response.
    UpstreamMs,
    /// The number of addresses that were tried.
    Attempts,
    /// Costs that the response stated, by policy.
    Costs,
    /// The route.
    Route,
    /// The upstream.
    Upstream,
    /// Its endpoint that was sent the request last.
    Endpoint,
    /// The reason for a missing or incomplete response of the upstream.
    Error,
    /// The deciding policy.
    Policy,
    /// Its decision.
    Decision,
    /// True if it bans the key.
    Banned,
    /// The policies whose granted units paid.
    Granted,
    /// The key of its bucket.
    Key,
    /// Units that its bucket has left.
    Remaining,
    /// The time until the same request is allowed.
    RetryAfterMs,
    /// The Referer field.
    Referer,
    /// The User-Agent field.
    UserAgent,
    /// The X-Request-Id field.
    RequestId,
    /// The trace of the Traceparent field.
    TraceId,
    /// The version of TLS.
    TlsVersion,
    /// Header fields of the operator's choice.
    Headers,
}

impl LogField {
    /// All fields, in the order of lines.
    pub fn all() -> impl Iterator<Item = Self> {
        Self::iter()
    }
}

/// How operators see keys: `access_log.keys`, `admin.keys`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "LoggedKeys")]
pub enum KeyForm {
    /// As `k_` and 16 hexadecimal digits: the hash under which the bucket is found.
    #[default]
    Hashed,
    /// As text.
    Readable,
}

/// The parts of each request that a log has: no other is kept.
#[derive(Clone, Debug)]
pub struct LoggedParts {
    fields: u32,
    /// The form of keys; `None` if lines have none.
    pub keys: Option<KeyForm>,
    /// The header fields of the operator's choice.
    pub headers: Box<[HeaderName]>,
    /// The columns of clients of the operator's choice.
    pub client_columns: Box<[Box<str>]>,
}

impl LoggedParts {
    /// The parts that lines of this log have.
    pub fn of(spec: &AccessLogSpec) -> Self {
        let combined = [LogField::Path, LogField::Referer, LogField::UserAgent];
        let all = match spec.format {
            LineFormat::Json => &spec.fields[..],
            LineFormat::Combined => &combined,
        };
        let fields = all.iter().fold(0, |set, field| set | bit(*field));
        let has = |field| fields & bit(field) != 0;
        LoggedParts {
            fields,
            keys: has(LogField::Key).then_some(spec.keys),
            headers: if has(LogField::Headers) {
                spec.headers.clone().into()
            } else {
                Box::default()
            },
            client_columns: spec.client_columns.clone(),
        }
    }

    /// True if lines have a field that the decision of limits fills.
    pub fn has_decision(&self) -> bool {
        const DECISION: u32 = bit(LogField::Policy)
            | bit(LogField::Decision)
            | bit(LogField::Banned)
            | bit(LogField::Granted)
            | bit(LogField::Key)
            | bit(LogField::Remaining)
            | bit(LogField::RetryAfterMs);
        self.fields & DECISION != 0
    }

    /// True if lines have this field.
    pub fn has(&self, field: LogField) -> bool {
        self.fields & bit(field) != 0
    }
}

const fn bit(field: LogField) -> u32 {
    1 << field as u32
}
