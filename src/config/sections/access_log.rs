//! `access_log`: which lines, and what they have of a request.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::compile::Compiler;
use crate::config::schema::Config;
use crate::config::validate::{report_empty, report_repeated, report_twice};
use crate::config::value::FieldName;
use crate::config::words::{Word, words};
use crate::config::{Code, Finding, Findings, List, Located};
use crate::telemetry::access_log::{AccessLogSpec, KeyForm, LineFormat, LogField, LogTarget};

/// The most header fields that a line may have.
const MAX_HEADERS: usize = 16;

/// `access_log`: a line a request, written in batches; lines that cannot be written in time are
/// dropped and counted.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AccessLog {
    /// How a line looks; `disabled` writes none.
    pub format: Located<AccessLogFormat>,
    /// `stdout`, or a file, which SIGUSR1 reopens.
    pub path: Located<LogTarget>,
    /// How a JSON line shows the key of the deciding bucket.
    pub keys: Option<Located<KeyForm>>,
    /// Header fields of requests that JSON lines have, 16 at most; a value has up to 1024 bytes.
    #[schemars(length(max = 16))]
    pub headers: List<FieldName>,
    /// The fields of JSON lines, in their order; all of them unless given.
    #[schemars(length(min = 1))]
    pub fields: Option<List<LogField>>,
}

/// How a line of the access log looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AccessLogFormat {
    /// An object a line.
    #[default]
    Json,
    /// The format of that name, as Apache and nginx have it.
    Combined,
    /// No log.
    Disabled,
}

words! {
    /// How operators see keys: `access_log.keys`, `admin.keys`.
    "LoggedKeys" for KeyForm {
        /// As `k_` and 16 hexadecimal digits: the hash under which the bucket is found.
        Hashed = "hashed",
        /// As text.
        Readable = "readable",
    }
}

words! {
    /// A field of the access log.
    "LogField" for LogField {
        /// When the request's head had arrived.
        Time = "time",
        /// The client's address.
        ClientIp = "client_ip",
        /// The method.
        Method = "method",
        /// The host, without a port.
        Host = "host",
        /// The path with its query.
        Path = "path",
        /// The version of HTTP.
        Version = "version",
        /// The status of the response.
        Status = "status",
        /// Bytes of the response's body that were sent.
        Bytes = "bytes",
        /// The time of the whole request.
        DurationMs = "duration_ms",
        /// The time that a limit has the request wait.
        DelayMs = "delay_ms",
        /// The time that the request waits for a slot of its upstream.
        PendingMs = "pending_ms",
        /// The time until the upstream's response.
        UpstreamMs = "upstream_ms",
        /// The number of addresses that were tried.
        Attempts = "attempts",
        /// Costs that the response stated, by policy.
        Costs = "costs",
        /// The route.
        Route = "route",
        /// The upstream.
        Upstream = "upstream",
        /// Its endpoint that was sent the request last.
        Endpoint = "endpoint",
        /// The reason for a missing or incomplete response of the upstream.
        Error = "error",
        /// The deciding policy.
        Policy = "policy",
        /// Its decision.
        Decision = "decision",
        /// True if it bans the key.
        Banned = "banned",
        /// The policies whose granted units paid.
        Granted = "granted",
        /// The key of its bucket.
        Key = "key",
        /// Units that its bucket has left.
        Remaining = "remaining",
        /// The time until the same request is allowed.
        RetryAfterMs = "retry_after_ms",
        /// The Referer field.
        Referer = "referer",
        /// The User-Agent field.
        UserAgent = "user_agent",
        /// The X-Request-Id field.
        RequestId = "request_id",
        /// The trace of the Traceparent field.
        TraceId = "trace_id",
        /// The version of TLS.
        TlsVersion = "tls_version",
        /// Header fields of the operator's choice.
        Headers = "headers",
    }
}

impl AccessLog {
    /// The fields of lines.
    pub(in crate::config) fn fields(&self) -> Vec<LogField> {
        match &self.fields {
            Some(fields) => fields.iter().map(|field| field.value).collect(),
            None => LogField::all().collect(),
        }
    }
}

/// Reports lists that are empty, too long, or name a field twice.
pub(in crate::config) fn check(config: &Config, findings: &Findings<'_>) {
    let Some(log) = &config.access_log else {
        return;
    };
    report_twice(&log.headers, findings);
    if let Some(beyond) = log.headers.get(MAX_HEADERS) {
        let message = format!("more than {MAX_HEADERS} header fields");
        let finding = Finding::error(beyond.node, Code::InvalidValue, message);
        findings.add(finding.help("name those alone that limits read"));
    }
    if let Some(fields) = &log.fields {
        report_empty(
            fields,
            findings,
            "name the fields, or remove the key for all of them",
        );
        let items = fields.iter().map(|field| (field.value, field.node));
        report_repeated(items, findings, |field| {
            (format!("`{}` twice", field.word()), "remove one of them")
        });
    }
}

impl Compiler<'_> {
    /// The access log, unless it is disabled.
    pub(in crate::config) fn access_log(&self, log: &AccessLog) -> Option<AccessLogSpec> {
        let format = match log.format.value {
            AccessLogFormat::Json => LineFormat::Json,
            AccessLogFormat::Combined => LineFormat::Combined,
            AccessLogFormat::Disabled => return None,
        };
        let target = match &log.path.value {
            LogTarget::Stdout => LogTarget::Stdout,
            LogTarget::File(path) => LogTarget::File(self.loaded.resolve(path)),
        };
        let keys = log.keys.as_ref();
        Some(AccessLogSpec {
            format,
            target,
            fields: log.fields(),
            keys: keys.map_or(KeyForm::default(), |keys| keys.value),
            headers: log.headers.iter().map(|name| name.get().clone()).collect(),
        })
    }
}
