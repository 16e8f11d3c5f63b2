//! `tracing`: the export of spans.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::schema::{Config, MINUTE, SECOND};
use crate::config::value::{Duration, Name, OriginUrl, Percentage};
use crate::config::{Code, Finding, Findings, Located};
use crate::http::connection::Scheme;
use crate::telemetry::spans::SpanSpec;

/// The path of OTLP for spans.
const PATH: &str = "/v1/traces";

/// Longest time of one export.
pub type ExportTimeout = Duration<100, MINUTE, { 5 * SECOND }>;

/// `tracing`: spans of requests go to a collector by OTLP over HTTP, in batches; those that cannot
/// be sent in time are dropped and counted.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Tracing {
    /// The collector, as in `http://127.0.0.1:4318`; spans are posted to its `/v1/traces`.
    pub endpoint: Located<OriginUrl>,
    /// The percentage of requests that are recorded, `0%` to `100%`; trusted proxies that send a
    /// `traceparent` decide themselves.
    #[serde(default)]
    pub sample_ratio: Located<Percentage<0, 100, 100>>,
    /// `service.name` of the spans; `sluicegate` unless given.
    pub service_name: Option<Located<Name>>,
    /// Longest time of one export, `100ms` to `1m`.
    #[serde(default)]
    pub timeout: Located<ExportTimeout>,
}

/// Reports a collector that is not reached over HTTP in clear text.
pub(in crate::config) fn check(config: &Config, findings: &Findings<'_>) {
    let Some(tracing) = &config.tracing else {
        return;
    };
    let endpoint = &tracing.endpoint;
    if endpoint.scheme != Scheme::Http || endpoint.socket.is_some() {
        let message = format!(
            "spans are sent over http alone, not to `{}`",
            endpoint.value
        );
        let finding = Finding::error(endpoint.node, Code::InvalidValue, message);
        findings.add(finding.help("run a collector on this machine, and let it send them on"));
    }
}

impl Tracing {
    /// The spec of the export.
    pub(in crate::config) fn spec(&self) -> SpanSpec {
        let OriginUrl { host, port, .. } = &self.endpoint.value;
        let name = self.service_name.as_ref();
        SpanSpec {
            authority: match host.contains(':') {
                true => format!("[{host}]:{port}"),
                false => format!("{host}:{port}"),
            },
            path: PATH.to_owned(),
            service_name: name.map_or_else(|| "sluicegate".to_owned(), |name| name.to_string()),
            percent: self.sample_ratio.get(),
            timeout: self.timeout.get(),
        }
    }
}
